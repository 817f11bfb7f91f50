"""What every verification engine is; and batches for one that computes, in a stage that gives its events one
by one because others wait.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from groundwatch.errors import GroundwatchError, MissingExtraError, Unavailable
from groundwatch.events import ClaimsExtracted, Decision, Judge, Usage, Verdict
from groundwatch.models.engines import Engine
from groundwatch.protocols.base import EvaluationProtocol

NOT_JUDGED = "not judged"
"""What the evidence begins with where a single statement could not be judged."""

RETRY_AFTER = 30.0
"""Seconds until it is looked again whether an extra has been installed."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict for every claim, in the claims' order."""

    verdicts: tuple[Verdict, ...] = ()
    usage: Usage = Usage()

    @property
    def whole(self) -> bool:
        """Whether every claim was judged, if only as undecided: another time may give no more."""
        return not any(verdict.evidence.startswith(NOT_JUDGED) for verdict in self.verdicts)


class VerificationEngine(Engine, Protocol):
    """Decides whether claims hold."""

    def judge(self, protocol: EvaluationProtocol) -> Judge: ...

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        """One result for each event, in order; an error stands in the place of its event's result."""
        ...


async def verify_with(
    engine: VerificationEngine, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
) -> Sequence[Verification | GroundwatchError]:
    """What the engine says. Without the extra that it needs, it is for later."""
    try:
        return await engine.verify(extracted, protocol)
    except MissingExtraError as error:
        # The operator's to mend, as a wrong key is: nothing may be lost meanwhile.
        judge = engine.judge(protocol).engine
        return [Unavailable(str(error), judge=judge, retry_after=RETRY_AFTER)] * len(extracted)


class NoopVerificationEngine(VerificationEngine):
    """Supports every claim without looking."""

    batch = 200

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="noop")

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        supported = Verdict(decision=Decision.SUPPORTED)
        return [Verification(verdicts=(supported,) * len(event.claims)) for event in extracted]


LOOPS = 16
"""Events that a stage has in hand at once for the sake of such batches, beside those that wait."""

Results = Sequence[Verification | GroundwatchError]


class Call:
    """One call: its events, and their results once a batch had them."""

    def __init__(self, events: Sequence[ClaimsExtracted]) -> None:
        self.events = events
        self.results: Results | None = None
        self.alone = False


class Queue:
    """The calls of one protocol, in the order of their turns."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.calls: deque[Call] = deque()


class GatheringEngine(VerificationEngine):
    """Gives an engine what has come for a protocol while it computed, as one batch.

    A batch that breaks is computed again call by call, so that each has its own error.
    """

    def __init__(self, engine: VerificationEngine) -> None:
        self.engine = engine
        self.batch = engine.batch
        self._queues: defaultdict[str, Queue] = defaultdict(Queue)

    def __getattr__(self, name: str) -> Any:
        """What only some engines have: `warm_up`, `problems`."""
        return getattr(self.engine, name)

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return self.engine.judge(protocol)

    async def close(self) -> None:
        await self.engine.close()

    async def verify(self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol) -> Results:
        queue, call = self._queues[protocol.name], Call(extracted)
        queue.calls.append(call)
        try:
            async with queue.turn:
                if call.results is None:
                    await self._compute(call, queue, protocol)
        finally:
            if call in queue.calls:
                queue.calls.remove(call)
        assert call.results is not None
        return call.results

    async def _compute(self, own: Call, queue: Queue, protocol: EvaluationProtocol) -> None:
        """Compute this call, and with it those behind it that fit into the batch."""
        # Those that came at the same moment come along.
        await asyncio.sleep(0)
        together = [own]
        for call in () if own.alone else queue.calls:
            fits = sum(len(one.events) for one in (*together, call)) <= self.batch
            if call is not own and call.results is None and not call.alone and fits:
                together.append(call)
        try:
            events = [event for call in together for event in call.events]
            results = await self.engine.verify(events, protocol)
            if len(results) != len(events):
                raise ValueError(f"{len(results)} results for {len(events)} events")
        except Exception:
            if len(together) == 1:
                raise
            for call in together:
                call.alone = True
            own.results = await self.engine.verify(own.events, protocol)
            return
        at = 0
        for call in together:
            call.results = results[at : at + len(call.events)]
            at += len(call.events)


def gathering(engines: Sequence[VerificationEngine]) -> tuple[list[VerificationEngine], int]:
    """These engines for one stage, in their order, and how many events it is to have in hand at once.

    0 where none of them waits for a server: the stage's own batches are theirs then.
    """
    waiting = [engine for engine in engines if engine.batch == 1]
    if not waiting:
        return list(engines), 0
    computing = max((engine.batch for engine in engines), default=1)
    at_once = sum(getattr(engine, "at_once", 1) for engine in waiting)
    return (
        [engine if engine.batch == 1 else GatheringEngine(engine) for engine in engines],
        at_once + (min(LOOPS, computing) if computing > 1 else 0),
    )
