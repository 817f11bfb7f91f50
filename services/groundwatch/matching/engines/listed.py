"""Protocols that bring a fixed list to match by, beside the engine that matches for all others."""

from collections.abc import Sequence

from groundwatch.errors import GroundwatchError
from groundwatch.events import ClaimsExtracted, Judge
from groundwatch.matching.engines.base import Matching, MatchingEngine
from groundwatch.protocols.base import EvaluationProtocol, ListedMatching


class ListedFirst:
    """Lets a protocol with a list of its own match by it, and asks `engine` for every other.

    CHAIR's numbers depend on its list of synonyms alone; with an LLM's or a lexicon's matches they would be
    another metric's.
    """

    def __init__(self, engine: MatchingEngine) -> None:
        self.engine = engine
        self.batch = engine.batch

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        """The list, where the protocol has one; else the engine."""
        if isinstance(protocol, ListedMatching):
            return protocol.matching_judge()
        return self.engine.judge(protocol)

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        """One result for each event, in order."""
        if isinstance(protocol, ListedMatching):
            return [_matched(event, protocol) for event in extracted]
        return await self.engine.match(extracted, protocol)

    async def close(self) -> None:
        """Close the engine."""
        await self.engine.close()


def _matched(event: ClaimsExtracted, protocol: ListedMatching) -> Matching | GroundwatchError:
    try:
        return Matching(matches=protocol.match(event))
    except GroundwatchError as error:
        return error
