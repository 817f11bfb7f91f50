"""What every matching engine is."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from groundwatch.errors import GroundwatchError
from groundwatch.events import ClaimsExtracted, Judge, Match, Usage
from groundwatch.protocols.base import EvaluationProtocol


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """The claims that have a counterpart in the reference, each with it."""

    matches: tuple[Match, ...] = ()
    usage: Usage = Usage()


class MatchingEngine(Protocol):
    """Matches claims with reference annotations. Chosen by name in settings; `batch` as elsewhere."""

    batch: int

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """Who judges when this engine works for this protocol."""
        ...

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        """One result for each event, in order; an error stands in the place of its event's result."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...
