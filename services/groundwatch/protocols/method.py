"""What a package of protocols holds: the protocols themselves, and all that goes with them.

What lies in a room above (a command, an engine, questions about the miniature world) is carried as
"module:attribute" and loaded when it is wanted: `load` of `base`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from groundwatch.protocols.base import ChainProtocol, EvaluationProtocol
from groundwatch.protocols.suite import Images, Pair, Question, mean_score
from groundwatch.protocols.tally import Result, Tally


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A published method of evaluation: one protocol of its name, or one for each of its subsets."""

    name: str
    protocols: tuple[EvaluationProtocol, ...]
    tally: Tally | None = None
    """Its arithmetic over recorded judgements, in the format that the work published."""

    validation: str = ""
    """How far its judges agree with people: "module:function" from an annotated file to numbers."""

    suite: Callable[[Path, Images], Iterable[Question | None]] | None = None
    """The questions of its benchmark in a folder, None for one whose image is not there."""

    world: str = ""
    """Questions about scenes of the miniature world, as "module:function"."""

    figures: Callable[[Sequence[Pair]], Result] = mean_score
    """What the paper reports of a suite's outcomes, each with its question."""

    package: str = ""
    """The package that holds the paper's tables of results, as files `table-*.json`."""

    @property
    def chain(self) -> ChainProtocol | None:
        """Its protocol, if that makes chains."""
        return next((one for one in self.protocols if isinstance(one, ChainProtocol)), None)
