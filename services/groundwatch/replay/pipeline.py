"""The services' own handlers, one after the other in this process: how replays and files are judged.

What a service would publish for the next one, that one's handler gets at once. A fault that passes is tried
again here, and what the services would send to the dead letters ends in the same outcome without a letter.

A replay goes from messages of its source to outcomes in the run: choosing, judging, publishing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from groundwatch.errors import (
    UNDECODED,
    DecodeError,
    GroundwatchError,
    InputError,
    TransientError,
    UsageError,
)
from groundwatch.events import (
    ChainAdvanced,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Event,
    ResponseRecorded,
    ResponseScored,
)
from groundwatch.extraction.service import ExtractionService
from groundwatch.matching.service import MatchingService
from groundwatch.models.engines import LoadImage
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.replay.runs import AT_ONCE, Counts, Run, look_up
from groundwatch.replay.spec import Selection, Spec
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Receipt, Stored, wait_acks
from groundwatch.runtime.delivery.outcomes import dead, outgoing, response_of, so_far
from groundwatch.runtime.delivery.streams import FAULTS, Read
from groundwatch.runtime.delivery.work import InHand, Result, Work, handled
from groundwatch.runtime.services.service import StageService, find_protocol
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import with_judge
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import (
    HEADER_OUTCOME,
    HEADER_PROTOCOLS,
    is_token,
    parse_subject,
    stage_of,
    subject_of,
)
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
        self.go_on(publication)
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


Source = ResponseRecorded | ClaimsExtracted | ClaimsVerified | ClaimsMatched | ChainAdvanced

UNKNOWN = "unknown"


class Item(Pair, kw_only=True):
    """One event of the source for one of its protocols. `broken` says why it does not decode; then the event
    is a response of nobody."""

    key: str
    response: ResponseRecorded
    broken: str = ""

    @property
    def asks(self) -> bool:
        """Whether a judge is asked for it."""
        return (
            not self.broken
            and self.response.unanswered is None
            and self.protocol not in self.response.declined
        )


class Chosen(msgspec.Struct):
    """What of a list of messages the spec is about.

    `last` is the sequence up to which everything is in here or before it; `due` is when its first response
    was recorded. `chains` are pairs that a replay leaves out.
    """

    items: list[Item]
    events: int
    responses: int
    last: int
    chains: int = 0

    @property
    def due(self) -> float:
        """Seconds since the epoch; 0 without any response."""
        return self.items[0].response.recorded_at if self.items else 0.0

    def joined(self, after: Chosen, within: float) -> Chosen | None:
        """Both as one, where the responses of `after` were recorded within so many seconds of ours."""
        if self.items and after.items and abs(after.due - self.due) > within:
            return None
        return Chosen(
            self.items + after.items,
            self.events + after.events,
            self.responses + after.responses,
            after.last,
            self.chains + after.chains,
        )


class Choosing:
    """Decodes messages of the source and picks those that the spec is about."""

    def __init__(self, spec: Spec) -> None:
        self._run = spec.run
        self._recorded = spec.stage == Stage.EXTRACTION
        self.selection = Selection(spec)
        kinds: Any = {
            "extraction": ResponseRecorded,
            "scoring": ClaimsVerified | ClaimsMatched | ChainAdvanced,
        }.get(spec.stage, ClaimsExtracted)
        self._decoder: msgspec.json.Decoder[Source] = msgspec.json.Decoder(kinds)

    def choose(self, messages: Sequence[Read], *, with_chains: bool = False) -> Chosen:
        """The items of these messages, in their order; the run is already the replay's own.

        `with_chains` has those too that a replay leaves out: an export does not.
        """
        items: list[Item] = []
        responses = chains = 0
        for message in messages:
            address = parse_subject(message.subject)
            if address is None or not self.selection.subject(address):
                continue
            key = address.key
            try:
                event = self._decoder.decode(message.data)
            except UNDECODED as error:
                if self.selection.everything:
                    responses += 1
                    items += self._broken(message, key, address.protocol, str(error))
                continue
            response = response_of(event)
            if not self.selection.response(response):
                continue
            responses += 1
            response = msgspec.structs.replace(response, run=self._run)
            if self._recorded:
                judged, left_out = self.selection.asked(response.protocols)
                chains += left_out
                items += [
                    Item(response, protocol, key=key, response=response)
                    for protocol in (response.protocols if with_chains else judged)
                    if is_token(protocol)
                ]
            else:
                event = _with_response(event, response)
                items.append(Item(event, address.protocol, key=key, response=response))
        return Chosen(items, len(messages), responses, messages[-1].sequence if messages else 0, chains)

    def _broken(self, message: Read, key: str, protocol: str, why: str) -> list[Item]:
        nobody = ResponseRecorded(id=UNKNOWN, model=UNKNOWN, tenant=UNKNOWN, answer="", run=self._run)
        named = (protocol,) if protocol else self.selection.named(message.headers.get(HEADER_PROTOCOLS, ""))
        broken = why or "does not decode"
        return [Item(nobody, name, key=key, response=nobody, broken=broken) for name in named]


class Writer:
    """Judges items and publishes what comes of them into the run. Counts what became of each."""

    def __init__(
        self,
        bus: Bus,
        run: Run,
        pipeline: Pipeline,
        *,
        begin_protocol: Callable[[str, dict[str, str]], Awaitable[None]],
        away: Callable[[Exception], Awaitable[None]],
    ) -> None:
        self._bus = bus
        self._run = run.name
        self._keep = run.spec.keep
        self._nonce = run.nonce
        self._pipeline = pipeline
        self._stage = Stage(run.spec.stage)
        self._begin_protocol = begin_protocol
        self._away = away
        self._begun: set[str] = set()
        self._beginning = asyncio.Lock()

    async def write(self, chosen: Chosen, *, look_first: bool) -> Counts:
        """Judge and publish. `look_first` asks the stream first which outcomes there are already, so that
        no judge is paid twice."""
        counts = Counts(events=chosen.events, responses=chosen.responses)
        items = await self._without_done(chosen.items, counts) if look_first else chosen.items
        await self.judge(items)
        if self._keep:
            await self._create([(item, message) for item in items for message in item.messages[:-1]])
        stored = await self._create([(item, item.messages[-1]) for item in items])
        existed = []
        for item, what in zip(items, stored, strict=True):
            if what is Stored.NEW:
                counts.add(item.outcome)
            else:
                existed.append(item)
        for item in await self._without_done(existed, counts):
            # Refused as a repeat, and yet not there: somebody has erased it meanwhile.
            counts.add(item.outcome)
        return counts

    async def judge(self, items: list[Item]) -> None:
        """Bring each to its outcome."""
        for item in items:
            if item.broken:
                item.fail(self._stage.value, DecodeError(item.broken))
        asked = {item.protocol for item in items if item.asks}
        if asked - self._begun:
            # One after the other: who came first is judged first.
            async with self._beginning:
                for name in asked - self._begun:
                    if judges := await self._pipeline.judges(name, self._stage):
                        await self._begin_protocol(name, judges)
                    self._begun.add(name)
        await self._pipeline.judge(self._stage, [item for item in items if not item.broken])

    async def _create(self, messages: list[tuple[Item, Outgoing]]) -> list[Stored]:
        """Publish all, however long the server takes to come back."""
        stored: dict[int, Stored] = {}
        while left := [index for index in range(len(messages)) if index not in stored]:
            sent: dict[int, Receipt] = {}
            trouble: TransientError | None = None
            try:
                for index in left:
                    sent[index] = await self._send(*messages[index])
            except TransientError as error:
                trouble = error
            await wait_acks(sent.values())
            for index, receipt in sent.items():
                try:
                    stored[index] = receipt.result()
                except TransientError as error:
                    trouble = error
            if trouble is not None:
                await self._away(trouble)
        return [stored[index] for index in range(len(messages))]

    async def _send(self, item: Item, message: Outgoing) -> Receipt:
        """An outcome that the server does not take is told by its reason; other events leave their place.

        By the run's own number: the server knows the ids of a deleted run of this name for minutes.
        """
        subject = message.subject
        if HEADER_OUTCOME in message.headers and not subject.endswith(f".{item.key}"):
            subject = subject_of("outcome", self._run, item.protocol, item.key)
        numbered = msgspec.structs.replace(message, subject=subject, message_id=f"{self._nonce}-{subject}")
        try:
            return await self._bus.start_create(numbered)
        except InputError as error:
            bare = msgspec.structs.replace(numbered, payload=b"")
            if HEADER_OUTCOME in message.headers:
                judges, usage = item.outcome.judges, item.outcome.usage
                why = dead(item.response, item.protocol, Stage.SCORING, error, judges=judges, usage=usage)
                item.go_on(outgoing(why))
                bare = msgspec.structs.replace(numbered, payload=why, headers=item.messages[-1].headers)
            return await self._bus.start_create(bare)

    async def _without_done(self, items: list[Item], counts: Counts) -> list[Item]:
        """Those that have no outcome in the run yet; the others are counted as they are there."""
        left = []
        for start in range(0, len(items), AT_ONCE):
            part = items[start : start + AT_ONCE]
            for item, outcome in zip(part, await self._there(part), strict=True):
                if outcome is None:
                    left.append(item)
                else:
                    counts.add(outcome, repeated=True)
        return left

    async def _there(self, items: list[Item]) -> list[ResponseScored | None]:
        subjects = [subject_of("outcome", self._run, item.protocol, item.key) for item in items]
        while True:
            try:
                return await look_up(self._bus.history, subjects)
            except (*FAULTS, TransientError) as error:
                await self._away(error)


def _with_response(event: Source, response: ResponseRecorded) -> Source:
    match event:
        case ResponseRecorded():
            return response
        case ClaimsVerified() | ClaimsMatched():
            extracted = msgspec.structs.replace(event.extracted, response=response)
            return msgspec.structs.replace(event, extracted=extracted)
    return msgspec.structs.replace(event, response=response)
