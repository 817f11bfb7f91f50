"""The services' own handlers, one after the other in this process: how replays and files are judged.

What a service would publish for the next one, that one's handler gets at once. A fault that passes is tried
again here, and what the services would send to the dead letters ends in the same outcome without a letter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from groundwatch.errors import GroundwatchError, InputError, TransientError, UsageError
from groundwatch.events import Event, ResponseRecorded, ResponseScored
from groundwatch.extraction.service import ExtractionService
from groundwatch.matching.service import MatchingService
from groundwatch.models.engines import LoadImage
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.outcomes import dead, outgoing, response_of, so_far
from groundwatch.runtime.delivery.work import InHand, Result, Work, handled
from groundwatch.runtime.services.service import StageService, find_protocol
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import with_judge
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import stage_of
from groundwatch.verification.engines.by_protocol import EngineByProtocol
from groundwatch.verification.service import VerificationService

WINDOW = 32
"""Events that are judged together where an engine has no wish of its own."""

MOST_ATTEMPTS = 5
"""Without a server somebody waits at the terminal: faults that pass are not waited for as long then."""

ORDER = (Stage.EXTRACTION, Stage.VERIFICATION, Stage.MATCHING, Stage.SCORING)


class Pair(msgspec.Struct):
    """A response and a protocol: the event that it has come to, with all that was to be published for it.

    `stage` is where it goes next, empty once it has its outcome.
    """

    event: Event
    protocol: str
    stage: str = ""
    messages: list[Outgoing] = []

    @property
    def outcome(self) -> ResponseScored:
        """What it came to, once it is through."""
        assert isinstance(self.event, ResponseScored)
        return self.event

    def take(self, result: Result | Exception) -> Exception | None:
        """Go on with what a handler made of the event, or say why it made nothing."""
        if isinstance(result, Exception):
            return result
        if result.failures:
            return next(iter(result.failures.values()))
        (publication,) = result.publications
        self.go_on(publication.outgoing)
        return None

    def go_on(self, message: Outgoing) -> None:
        """This was to be published: it is the event now."""
        assert isinstance(message.payload, Event)
        self.event = message.payload
        self.messages.append(message)
        self.stage = "" if isinstance(self.event, ResponseScored) else stage_of(message.subject)

    def fail(self, stage: str, error: Exception) -> None:
        """End in the outcome of what cannot be processed. Raises what the user must mend first."""
        if isinstance(error, UsageError) and not isinstance(error, InputError):
            raise error
        judges, usage = so_far(self.event)
        outcome = dead(response_of(self.event), self.protocol, stage, error, judges=judges, usage=usage)
        self.go_on(outgoing(outcome))


class Pipeline:
    """Services that are not started, each made when it is first needed, so that nothing is loaded in vain.

    `engines` are used as they are; the others are those of the settings. Without a bus nothing is cached,
    and `load_image` gives the images.
    """

    def __init__(
        self,
        settings: Settings,
        bus: Bus | None = None,
        *,
        metrics: Metrics | None = None,
        engines: Mapping[Stage, Any] | None = None,
        load_image: LoadImage | None = None,
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._metrics = metrics or Metrics()
        self._engines = engines or {}
        self._load_image = load_image
        self._services: dict[Stage, StageService] = {}
        self._warm: dict[Any, Stage] = {}
        self._warming = asyncio.Lock()
        self._attempts = settings.retry.attempts if bus else min(settings.retry.attempts, MOST_ATTEMPTS)
        registry.configure(settings.protocols, settings.prompts.folder)

    @classmethod
    def of_run(cls, spec: Spec, settings: Settings, bus: Bus, metrics: Metrics | None = None) -> Pipeline:
        """The judges in use, or the one that the run names.

        Raises `UsageError` for a name nobody knows and a part that is not installed: before anything is read.
        """
        made = cls(with_judge(settings, spec.judge), bus, metrics=metrics)
        stages = {Stage(spec.stage)}
        if spec.stage == Stage.EXTRACTION:
            stages |= {Stage.VERIFICATION} | ({Stage.MATCHING} if made._settings.matching.engine else set())
        for stage in stages:
            made._service(stage)
        return made

    async def outcomes(
        self, protocol: str, responses: Iterable[ResponseRecorded]
    ) -> AsyncIterator[ResponseScored]:
        """One outcome for each recorded response, in order."""
        await self.judges(protocol, Stage.EXTRACTION)
        window = max([WINDOW, *(service.engine.batch for service in self._judging())])
        waiting = iter(responses)
        while batch := list(islice(waiting, window)):
            pairs = [Pair(response, protocol) for response in batch]
            await self.judge(Stage.EXTRACTION, pairs)
            for pair in pairs:
                yield pair.outcome

    async def judges(self, name: str, start: Stage) -> dict[str, str]:
        """Fingerprints of this protocol's judges from `start` on, by stage; they are ready to be asked."""
        protocol = find_protocol(name)
        if isinstance(protocol, GroundwatchError) or start not in protocol.route:
            return {}
        stages = [stage for stage in protocol.route[protocol.route.index(start) :] if stage in ORDER[:3]]
        found = {}
        async with self._warming:
            for stage in stages:
                engine = self._service(stage).engine
                if isinstance(engine, EngineByProtocol):
                    engine = engine.of(protocol)
                # Those without a server load when they are first asked.
                if engine not in self._warm and hasattr(engine, "problems"):
                    await engine.warm_up()
                self._warm[engine] = stage
                found[stage.value] = engine.judge(protocol).fingerprint
        return found

    def problems(self) -> list[str]:
        """Which judges cannot be asked, and why."""
        return [
            f"setting '{stage}.engine': {'; '.join(problems)}"
            for engine, stage in self._warm.items()
            if hasattr(engine, "problems") and (problems := engine.problems())
        ]

    @property
    def compute(self) -> bool:
        """Whether the judges so far compute, and wait for nobody else."""
        return all(service.engine.batch > 1 for service in self._judging())

    async def judge(self, start: Stage, pairs: Sequence[Pair]) -> None:
        """Bring each pair, whose event is one of the stage `start`, to its outcome."""
        for pair in pairs:
            pair.stage = start.value
        for stage in ORDER[ORDER.index(start) :]:
            if waiting := [pair for pair in pairs if pair.stage == stage]:
                # An engine gets as many events of one protocol as there are.
                await self._pass(stage, sorted(waiting, key=attrgetter("protocol")))
        for pair in pairs:
            if pair.stage:
                pair.fail(pair.stage, InputError(f"a replay has no stage {pair.stage}"))

    async def close(self) -> None:
        """Let go of what the engines hold."""
        for service in self._judging():
            await service.engine.close()

    async def _pass(self, stage: Stage, waiting: list[Pair]) -> None:
        """Give these to one stage's handler; what has a fault that passes is tried again after a delay."""
        service = self._service(stage)
        batch = service.engine.batch if service.engine is not None else len(waiting)
        size = batch if batch > 1 else WINDOW
        attempt = 0
        while waiting:
            attempt += 1
            retryable: list[tuple[Pair, TransientError]] = []
            for start in range(0, len(waiting), size):
                part = waiting[start : start + size]
                envelopes = {name: InHand((name,)) for name in {pair.protocol for pair in part}}
                works: list[Work[Any]] = [Work(pair.event, envelopes[pair.protocol]) for pair in part]
                results = await handled(stage.value, service.handler, works)
                for pair, result in zip(part, results, strict=True):
                    error = pair.take(result)
                    if isinstance(error, TransientError) and attempt < self._attempts:
                        retryable.append((pair, error))
                    elif error is not None:
                        pair.fail(stage.value, error)
            if retryable:
                settings = self._settings.retry
                await asyncio.sleep(max(settings.delay(attempt, error) for _, error in retryable))
            waiting = [pair for pair, _ in retryable]

    def _judging(self) -> list[StageService]:
        return [service for service in self._services.values() if service.engine is not None]

    def _service(self, stage: Stage) -> StageService:
        if stage not in self._services:
            self._services[stage] = self._build(stage)
        return self._services[stage]

    def _build(self, stage: Stage) -> StageService:
        settings, bus, metrics, engine = self._settings, self._bus, self._metrics, self._engines.get(stage)
        match stage:
            case Stage.EXTRACTION:
                return ExtractionService(settings, bus, metrics, engine)
            case Stage.VERIFICATION:
                return VerificationService(settings, bus, metrics, engine, load_image=self._load_image)
            case Stage.MATCHING:
                return MatchingService(settings, bus, metrics, engine)
        return ScoringService(settings, bus, metrics)


def judging_stage(protocol: EvaluationProtocol) -> Stage:
    """Verification or matching, whichever the protocol's route has; `UsageError` when it has neither."""
    for stage in (Stage.VERIFICATION, Stage.MATCHING):
        if stage in protocol.route:
            return stage
    raise UsageError(f"protocol '{protocol.name}' judges no claims, so it cannot be judged offline")
