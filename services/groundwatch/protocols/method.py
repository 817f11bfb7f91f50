"""What a package of protocols holds: the protocols themselves, and all that goes with them.

What lies in a room above (a command, an engine, questions about the miniature world) is carried as
"module:attribute" and loaded when it is wanted: `load` of `base`.
"""

from __future__ import annotations

import msgspec

from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.tally import Tally


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A published method of evaluation: one protocol of its name, or one for each of its subsets."""

    name: str
    protocols: tuple[EvaluationProtocol, ...]
    tally: Tally | None = None
    """Its arithmetic over recorded judgements, in the format that the work published."""

    package: str = ""
    """The package that holds the paper's tables of results, as files `table-*.json`."""
