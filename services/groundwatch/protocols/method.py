"""What a package of protocols holds: the protocols themselves, and all that goes with them.

What lies in a room above (engines, the miniature world) is carried as "module:attribute" and loaded when it
is wanted: `load` of `base`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from groundwatch.events import ResponseRecorded
from groundwatch.protocols.base import ChainProtocol, EvaluationProtocol
from groundwatch.protocols.suite import Images, Pair, Question, mean_score
from groundwatch.protocols.tally import Result, Tally
from groundwatch.section import Section

if TYPE_CHECKING:
    from groundwatch.terminal import RenderableType


EMBEDDING_MODEL = "Folder of a sentence-transformers model in place of the embedded one."

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many are done, and of how many."""


ReadResponses = Callable[[Path], Iterable[ResponseRecorded]]
"""Reads the recorded responses of a file."""


class MethodSettings(Section):
    """What can be set of a method, in the section `protocols.NAME` of the settings."""

    def protocols(self) -> tuple[EvaluationProtocol, ...]:
        """The protocols with these settings."""
        raise NotImplementedError


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command prints: `table` to people who did not ask for JSON, `problem` if it failed in part."""

    numbers: Result
    table: RenderableType | None = None
    problem: str = ""


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A published method of evaluation: one protocol of its name, or one for each of its subsets.

    `validation` and `dataset` are commands, as "module:function". The function's parameters are the
    command's: those before `*` its arguments, the others its options, described by `msgspec.Meta`. It is
    given `settings` and `progress` if it takes them, and returns its numbers or a `CommandResult`.
    """

    name: str
    protocols: tuple[EvaluationProtocol, ...]
    settings: type[MethodSettings] | None = None

    tally: Tally | None = None
    """Its arithmetic over recorded judgements, in the format that the work published."""

    answers: Callable[[Path], Sequence[ResponseRecorded] | None] | None = None
    """The answers in a file of the work's own format; None when the file is not in it."""

    annotate: Callable[[Path, Path, ReadResponses], list[ResponseRecorded]] | None = None
    """The answers of a file, with references from its benchmark's annotation."""

    file_judge: str = ""
    """Who judges a file of the work's own format, in place of its protocols: "module:function"."""

    validation: str = ""
    """How far its judges agree with people."""

    dataset: str = ""
    """Builds its benchmark as the paper did."""

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
