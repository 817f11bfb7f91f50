"""Judging without a server: the stages' engines, called one after the other in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

import msgspec

from groundwatch.errors import (
    GroundwatchError,
    InputError,
    TransientError,
    Unavailable,
    Unscorable,
    UsageError,
)
from groundwatch.events import (
    ChainAdvanced,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Judge,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    Usage,
)
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.matching.engines.base import Matching, MatchingEngine
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.runtime.delivery.outcomes import DEAD_LETTER, outcome_of, without_score
from groundwatch.runtime.settings import RetrySettings
from groundwatch.runtime.stores.cache import JudgementCache
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.verification.engines.base import Verification, VerificationEngine

WINDOW = 32
"""Responses that are judged together where an engine has no wish of its own."""

MOST_ATTEMPTS = 5
"""Somebody waits at the terminal, so faults that pass are not waited for as long as in the services."""

T = TypeVar("T")

Judgement = Verification | Matching
Judged = ClaimsVerified | ClaimsMatched


class Made(msgspec.Struct, frozen=True):
    """An outcome with the events on the way to it, where it came so far."""

    outcome: ResponseScored
    extracted: ClaimsExtracted | None = None
    judged: Judged | None = None


def judging_stage(protocol: EvaluationProtocol) -> Stage:
    """Verification or matching, whichever the protocol's route has; `UsageError` when it has neither."""
    for stage in (Stage.VERIFICATION, Stage.MATCHING):
        if stage in protocol.route:
            return stage
    raise UsageError(f"protocol '{protocol.name}' judges no claims, so it cannot be judged offline")


class Judging:
    """A protocol with the engines of its stages; `judge` is the one of `judging_stage`.

    What the running system would send to the dead letters ends here as unscored with the same reason.
    `attempts` bounds how often a fault that passes is met again; `extraction` may be absent where only
    claims are judged. What `cache` knows is not asked again.
    """

    def __init__(
        self,
        protocol: EvaluationProtocol,
        extraction: ExtractionEngine | None,
        judge: VerificationEngine | MatchingEngine,
        retry: RetrySettings,
        *,
        attempts: int = MOST_ATTEMPTS,
        cache: JudgementCache | None = None,
    ) -> None:
        self._stage = judging_stage(protocol)
        self._protocol = protocol
        self._extraction = extraction
        self._judge_engine = judge
        self._retry = retry
        self._attempts = min(retry.attempts, attempts)
        self._cache = cache

    async def outcomes(self, responses: Iterable[ResponseRecorded]) -> AsyncIterator[ResponseScored]:
        """One outcome for each response, in order."""
        await self.warm_up()
        waiting = iter(responses)
        while batch := list(islice(waiting, self.window)):
            for made in await self.from_responses(batch):
                yield made.outcome

    async def warm_up(self) -> None:
        """Ask the servers behind the engines who their models are, which judgements carry."""
        for engine in self._engines():
            # Those without a server load when they are first asked.
            if hasattr(engine, "problems"):
                await cast(Any, engine).warm_up()

    @property
    def window(self) -> int:
        """How many responses the engines like to see at once."""
        return max(WINDOW, *(int(engine.batch) for engine in self._engines()))

    async def close(self) -> None:
        """Let go of what the engines hold."""
        for engine in self._engines():
            await engine.close()

    def fingerprints(self) -> dict[str, str]:
        """The judges' fingerprints by stage."""
        found = {self._stage.value: self._judge_engine.judge(self._protocol).fingerprint}
        if self._extraction is not None:
            found[Stage.EXTRACTION.value] = self._extraction.judge(self._protocol).fingerprint
        return found

    async def from_responses(self, responses: Sequence[ResponseRecorded]) -> list[Made]:
        """Judge recorded responses: one result for each, in order."""
        if self._extraction is None:
            raise UsageError(f"{self._protocol.name}: no extraction engine to begin with")
        extractor = self._extraction.judge(self._protocol)
        extract = self._unless_known(Stage.EXTRACTION, self._extraction, self._extraction.extract, Extraction)
        found = await self._all(responses, extract, self._extraction.batch)
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
        judged = iter(await self.from_extracted(extracted))
        judges = {Stage.EXTRACTION.value: extractor}
        return [
            Made(self._without(response, result, judges))
            if isinstance(result, GroundwatchError)
            else next(judged)
            for response, result in zip(responses, found, strict=True)
        ]

    async def from_extracted(self, extracted: Sequence[ClaimsExtracted]) -> list[Made]:
        """Judge extracted claims: one result for each event, in order. Without claims nobody is asked."""
        judge = self._judge_engine.judge(self._protocol)
        asked = [event for event in extracted if event.claims]
        nothing = Verification() if self._stage is Stage.VERIFICATION else Matching()
        ask = self._unless_known(self._stage, self._judge_engine, self._ask, type(nothing))
        answers = await self._all(asked, ask, self._judge_engine.batch) if asked else []
        found = iter(cast(list[Judgement | GroundwatchError], answers))
        made = []
        for event in extracted:
            result = next(found) if event.claims else nothing
            judged = None
            try:
                if isinstance(result, GroundwatchError):
                    raise result
                judged = _event(event, judge, result)
                made.append(Made(outcome_of(judged, self._protocol), event, judged))
            except GroundwatchError as error:
                judges = {Stage.EXTRACTION.value: event.judge, self._stage.value: judge}
                made.append(Made(self._without(event.response, error, judges, event.usage), event, judged))
        return made

    def _engines(self) -> list[Any]:
        return [engine for engine in (self._extraction, self._judge_engine) if engine is not None]

    def _unless_known(self, stage: Stage, engine: Any, ask: Any, form: type[Any]) -> Any:
        """`ask`, but for what the cache knows of what this engine says."""
        cache = self._cache
        if cache is None:
            return ask

        async def through(items: Sequence[Any], protocol: EvaluationProtocol) -> Sequence[Any]:
            return await cache.through(stage.value, protocol, engine.judge, items, ask, form)

        return through

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
        for attempt in range(1, self._attempts + 1):
            for part in _parts(left, batch if batch > 1 else WINDOW):
                answers = await self._answers([inputs[index] for index in part], ask)
                results.update(zip(part, answers, strict=True))
            left = [index for index in left if isinstance(results[index], TransientError)]
            if not left or attempt == self._attempts:
                break
            # One who is left alone for a while is not to be asked before that is over.
            waits = [one.retry_after or 0.0 for one in results.values() if isinstance(one, Unavailable)]
            await asyncio.sleep(max(delay, min(max(waits, default=0.0), self._retry.max_delay)))
            delay = min(2 * delay, self._retry.max_delay)
        return [results[index] for index in range(len(inputs))]

    async def _answers(
        self,
        inputs: Sequence[Any],
        ask: Callable[[Sequence[Any], EvaluationProtocol], Awaitable[Sequence[T | GroundwatchError]]],
    ) -> Sequence[T | GroundwatchError]:
        """The engine's answers; one that breaks on a batch gets its inputs one by one."""
        try:
            return await ask(inputs, self._protocol)
        except UsageError:
            raise
        except Exception as error:
            if len(inputs) > 1:
                return [answer for one in inputs for answer in await self._answers([one], ask)]
            if isinstance(error, GroundwatchError):
                return [error]
            logger.error("judging.bug", protocol=self._protocol.name, error=repr(error), exc_info=True)
            return [InputError(f"{error!r}")]

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


def scored(event: ClaimsVerified | ClaimsMatched | ChainAdvanced, protocol: EvaluationProtocol) -> Made:
    """Only the arithmetic, from what judges said before."""
    try:
        return Made(outcome_of(event, protocol))
    except InputError as error:
        response = event.response if isinstance(event, ChainAdvanced) else event.extracted.response
        return Made(
            without_score(response, protocol.name, OutcomeKind.UNSCORED, DEAD_LETTER, detail=str(error))
        )


def _event(extracted: ClaimsExtracted, judge: Judge, found: Judgement) -> ClaimsVerified | ClaimsMatched:
    if isinstance(found, Verification):
        return ClaimsVerified(extracted=extracted, judge=judge, verdicts=found.verdicts, usage=found.usage)
    return ClaimsMatched(extracted=extracted, judge=judge, matches=found.matches, usage=found.usage)


def _parts(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(indices), size):
        yield indices[start : start + size]
