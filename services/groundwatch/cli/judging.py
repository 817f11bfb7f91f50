"""Judging without a server: the stages' engines, called one after the other in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from groundwatch.errors import GroundwatchError, InputError, TransientError, Unscorable, UsageError
from groundwatch.events import (
    ClaimsExtracted,
    ClaimsVerified,
    Judge,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    Usage,
)
from groundwatch.extraction.engines.base import ExtractionEngine
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.runtime.outcomes import DEAD_LETTER, outcome_of, without_score
from groundwatch.runtime.settings import RetrySettings
from groundwatch.verification.engines.base import Verification, VerificationEngine

WINDOW = 32
"""Responses that are judged together where an engine has no wish of its own."""

MOST_ATTEMPTS = 5
"""Somebody waits at the terminal, so faults that pass are not waited for as long as in the services."""

T = TypeVar("T")


class Judging:
    """A protocol with the engines of its stages.

    What the running system would send to the dead letters ends here as unscored with the same reason.
    """

    def __init__(
        self,
        protocol: EvaluationProtocol,
        extraction: ExtractionEngine,
        verification: VerificationEngine,
        retry: RetrySettings,
    ) -> None:
        if Stage.VERIFICATION not in protocol.route:
            raise UsageError(f"protocol '{protocol.name}' has no verification and cannot be judged offline")
        self._protocol = protocol
        self._extraction = extraction
        self._verification = verification
        self._retry = retry

    async def outcomes(self, responses: Iterable[ResponseRecorded]) -> AsyncIterator[ResponseScored]:
        """One outcome for each response, in order."""
        waiting = iter(responses)
        window = max(WINDOW, self._extraction.batch, self._verification.batch)
        while batch := list(islice(waiting, window)):
            for outcome in await self._judge(batch):
                yield outcome

    async def close(self) -> None:
        """Let go of what the engines hold."""
        await self._extraction.close()
        await self._verification.close()

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
        judged = iter(await self._verify(extracted))
        judges = {Stage.EXTRACTION.value: extractor}
        return [
            self._without(response, result, judges) if isinstance(result, GroundwatchError) else next(judged)
            for response, result in zip(responses, found, strict=True)
        ]

    async def _verify(self, extracted: Sequence[ClaimsExtracted]) -> list[ResponseScored]:
        verifier = self._verification.judge(self._protocol)
        asked = [event for event in extracted if event.claims]
        found = iter(await self._all(asked, self._verification.verify, self._verification.batch))
        outcomes = []
        for event in extracted:
            result = next(found) if event.claims else Verification()
            try:
                if isinstance(result, GroundwatchError):
                    raise result
                judged = ClaimsVerified(
                    extracted=event, judge=verifier, verdicts=result.verdicts, usage=result.usage
                )
                outcomes.append(outcome_of(judged, self._protocol))
            except GroundwatchError as error:
                judges = {Stage.EXTRACTION.value: event.judge, Stage.VERIFICATION.value: verifier}
                outcomes.append(self._without(event.response, error, judges, event.usage))
        return outcomes

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


def _parts(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(indices), size):
        yield indices[start : start + size]
