"""Judging without a server: the stages' engines, called one after the other in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

from groundwatch.errors import GroundwatchError, InputError, TransientError, Unscorable, UsageError
from groundwatch.events import (
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Judge,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    Usage,
)
from groundwatch.extraction.engines.base import ExtractionEngine
from groundwatch.matching.engines.base import Matching, MatchingEngine
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.runtime.outcomes import DEAD_LETTER, outcome_of, without_score
from groundwatch.runtime.settings import RetrySettings
from groundwatch.verification.engines.base import Verification, VerificationEngine

WINDOW = 32
"""Responses that are judged together where an engine has no wish of its own."""

MOST_ATTEMPTS = 5
"""Somebody waits at the terminal, so faults that pass are not waited for as long as in the services."""

T = TypeVar("T")

Judgement = Verification | Matching


def judging_stage(protocol: EvaluationProtocol) -> Stage:
    """Verification or matching, whichever the protocol's route has; `UsageError` when it has neither."""
    for stage in (Stage.VERIFICATION, Stage.MATCHING):
        if stage in protocol.route:
            return stage
    raise UsageError(f"protocol '{protocol.name}' judges no claims, so it cannot be judged offline")


class Judging:
    """A protocol with the engines of its stages; `judge` is the one of `judging_stage`.

    What the running system would send to the dead letters ends here as unscored with the same reason.
    """

    def __init__(
        self,
        protocol: EvaluationProtocol,
        extraction: ExtractionEngine,
        judge: VerificationEngine | MatchingEngine,
        retry: RetrySettings,
    ) -> None:
        self._stage = judging_stage(protocol)
        self._protocol = protocol
        self._extraction = extraction
        self._judge_engine = judge
        self._retry = retry

    async def outcomes(self, responses: Iterable[ResponseRecorded]) -> AsyncIterator[ResponseScored]:
        """One outcome for each response, in order."""
        for engine in (self._extraction, self._judge_engine):
            # It asks a server who its models are, which judgements carry; others load when first asked.
            if hasattr(engine, "problems"):
                await cast(Any, engine).warm_up()
        waiting = iter(responses)
        window = max(WINDOW, self._extraction.batch, self._judge_engine.batch)
        while batch := list(islice(waiting, window)):
            for outcome in await self._judge(batch):
                yield outcome

    async def close(self) -> None:
        """Let go of what the engines hold."""
        await self._extraction.close()
        await self._judge_engine.close()

    async def _judge(self, responses: Sequence[ResponseRecorded]) -> list[ResponseScored]:
        extractor = self._extraction.judge(self._protocol)
        found = await self._all(responses, self._extraction.extract, self._extraction.batch)
        extracted = [
            ClaimsExtracted(
                response=response,
                protocol=self._protocol.name,
                judge=extractor,
                units=result.units,
                claims=result.claims,
                usage=result.usage,
            )
            for response, result in zip(responses, found, strict=True)
            if not isinstance(result, GroundwatchError)
        ]
        judged = iter(await self._judged(extracted))
        judges = {Stage.EXTRACTION.value: extractor}
        return [
            self._without(response, result, judges) if isinstance(result, GroundwatchError) else next(judged)
            for response, result in zip(responses, found, strict=True)
        ]

    async def _judged(self, extracted: Sequence[ClaimsExtracted]) -> list[ResponseScored]:
        judge = self._judge_engine.judge(self._protocol)
        asked = [event for event in extracted if event.claims]
        answers = await self._all(asked, self._ask, self._judge_engine.batch)
        found = iter(cast(list[Judgement | GroundwatchError], answers))
        nothing = Verification() if self._stage is Stage.VERIFICATION else Matching()
        outcomes = []
        for event in extracted:
            result = next(found) if event.claims else nothing
            try:
                if isinstance(result, GroundwatchError):
                    raise result
                outcomes.append(outcome_of(_event(event, judge, result), self._protocol))
            except GroundwatchError as error:
                judges = {Stage.EXTRACTION.value: event.judge, self._stage.value: judge}
                outcomes.append(self._without(event.response, error, judges, event.usage))
        return outcomes

    async def _ask(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Judgement | GroundwatchError]:
        if self._stage is Stage.VERIFICATION:
            return await cast(VerificationEngine, self._judge_engine).verify(extracted, protocol)
        return await cast(MatchingEngine, self._judge_engine).match(extracted, protocol)

    async def _all(
        self,
        inputs: Sequence[Any],
        ask: Callable[[Sequence[Any], EvaluationProtocol], Awaitable[Sequence[T | GroundwatchError]]],
        batch: int,
    ) -> list[T | GroundwatchError]:
        """One result for each input; those with a fault that passes are asked again after a delay."""
        results: dict[int, T | GroundwatchError] = {}
        left = list(range(len(inputs)))
        delay = self._retry.first_delay
        for attempt in range(1, min(self._retry.attempts, MOST_ATTEMPTS) + 1):
            for part in _parts(left, batch if batch > 1 else WINDOW):
                answers = await ask([inputs[index] for index in part], self._protocol)
                results.update(zip(part, answers, strict=True))
            left = [index for index in left if isinstance(results[index], TransientError)]
            if not left or attempt == MOST_ATTEMPTS:
                break
            await asyncio.sleep(delay)
            delay = min(2 * delay, self._retry.max_delay)
        return [results[index] for index in range(len(inputs))]

    def _without(
        self,
        response: ResponseRecorded,
        error: GroundwatchError,
        judges: dict[str, Judge],
        usage: Usage | None = None,
    ) -> ResponseScored:
        if isinstance(error, Unscorable):
            reason, detail = error.reason, error.detail
        elif isinstance(error, InputError | TransientError):
            reason, detail = DEAD_LETTER, str(error)
        else:
            raise error
        return without_score(
            response,
            self._protocol.name,
            OutcomeKind.UNSCORED,
            reason,
            detail=detail,
            judges=judges,
            usage=usage,
        )


def _event(extracted: ClaimsExtracted, judge: Judge, found: Judgement) -> ClaimsVerified | ClaimsMatched:
    if isinstance(found, Verification):
        return ClaimsVerified(extracted=extracted, judge=judge, verdicts=found.verdicts, usage=found.usage)
    return ClaimsMatched(extracted=extracted, judge=judge, matches=found.matches, usage=found.usage)


def _parts(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(indices), size):
        yield indices[start : start + size]
