"""What every matching engine is; an LLM that matches, and a protocol's own list before any engine."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec

from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Judge, Match, Usage
from groundwatch.models.engines import Engine, LlmEngine, attempt, each
from groundwatch.protocols.base import EvaluationProtocol, ListedMatching, MatchingQuestions, Stage


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """The claims that have a counterpart in the reference, each with it."""

    matches: tuple[Match, ...] = ()
    usage: Usage = Usage()


class MatchingEngine(Engine, Protocol):
    """Matches claims with reference annotations."""

    def judge(self, protocol: EvaluationProtocol) -> Judge: ...

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        """One result for each event, in order; an error stands in the place of its event's result."""
        ...


class ListedFirst(MatchingEngine):
    """Lets a protocol with a list of its own match by it, and asks `engine` for every other.

    CHAIR's numbers depend on its list of synonyms alone; with an LLM's or a lexicon's matches they would be
    another metric's.
    """

    def __init__(self, engine: MatchingEngine) -> None:
        self.engine = engine
        self.batch = engine.batch

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return (
            protocol.matching_judge() if isinstance(protocol, ListedMatching) else self.engine.judge(protocol)
        )

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        if not isinstance(protocol, ListedMatching):
            return await self.engine.match(extracted, protocol)
        return [attempt(lambda event: Matching(matches=protocol.match(event)), event) for event in extracted]

    async def close(self) -> None:
        await self.engine.close()


def annotated(event: ClaimsExtracted) -> tuple[str, ...]:
    """What the response's reference names. Raises `Unscorable` when there is nothing to match with."""
    reference = event.response.reference
    if reference is None or not reference.objects:
        raise Unscorable("no_reference", "the response's reference names no objects or features")
    return reference.objects


def head(claim: Claim) -> str:
    """What the claim is about: its first part, else its text."""
    return claim.parts[0] if claim.parts else claim.text


class LlmMatchingEngine(LlmEngine):
    """Matches claims with references. No claims need no call."""

    stage = Stage.MATCHING
    version = "1"

    async def match(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Matching | GroundwatchError]:
        return await each(partial(self._match, protocol), extracted)

    async def _match(self, protocol: EvaluationProtocol, event: ClaimsExtracted) -> Matching:
        if not isinstance(protocol, MatchingQuestions):
            raise InputError(f"engine 'llm' cannot match for protocol '{protocol.name}'")
        annotated(event)
        if not event.claims:
            return Matching()
        read = partial(protocol.read_matching, extracted=event)
        completion = await self._chat.complete(protocol.matching_step(event), check=read)
        return Matching(matches=read(completion.reply), usage=completion.usage)
