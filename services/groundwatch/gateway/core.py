"""What HTTP and gRPC are translations of: everything that a call may need, made once for both."""

import asyncio
import contextlib
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from groundwatch.conversations.conversation import Conversation
from groundwatch.errors import TransientError
from groundwatch.events import LIVE, ResponseRecorded, ResponseScored
from groundwatch.gateway.answers import AnswerSearch, Index
from groundwatch.gateway.auth import Access, Caller
from groundwatch.gateway.budgets import Budgets
from groundwatch.gateway.http.requests import Held, Reading
from groundwatch.gateway.intake.admission import Admission, Backlog
from groundwatch.gateway.intake.intake import Intake
from groundwatch.gateway.intake.known_ids import KnownIds
from groundwatch.gateway.intake.logged import LoggedCalls, Source, with_uploaded
from groundwatch.gateway.intake.submissions import Submission
from groundwatch.gateway.live.alarms import AlarmPublisher
from groundwatch.gateway.live.board import Snapshots, counting_of
from groundwatch.gateway.live.gauges import NatsMonitor, StreamGauges
from groundwatch.gateway.live.live import Live
from groundwatch.gateway.refusals import Recorded, Refused, bounded
from groundwatch.gateway.replays import Replays
from groundwatch.gateway.thumbnails import Thumbnails
from groundwatch.keys import home_key, response_key
from groundwatch.reviews.corrected import Corrections
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import limits
from groundwatch.runtime.delivery.streams import FAULTS, Read
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.stores.losses import (
    BATCH_REFUSED,
    OTHER,
    REASONS,
    LossReport,
    Unconfirmed,
    put_report,
)
from groundwatch.runtime.stores.tombstones import Erased
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTCOMES, RESPONSES, subject_of

LOOKUPS = 32
"""Responses of one report that are looked up at once."""

SETTLE_SECONDS = 5.0
LONG_SECONDS = 60.0
RECEIVED_SECONDS = 0.1
"""In which a request that came before another has begun to be read."""

REFUSED_FOR_GOOD = frozenset({400, 413, 415, 422})
"""Statuses after which nobody sends the same again."""

_RECORDED = msgspec.json.Decoder(ResponseRecorded)
_SCORED = msgspec.json.Decoder(ResponseScored)


class GatewayCore:
    """The gateway without its servers. `problems` are why nobody should be sent to it."""

    def __init__(
        self,
        settings: Settings,
        bus: Bus,
        metrics: Metrics,
        replays: Replays | None,
        problems: Callable[[], list[str]],
        answers: Index | None = None,
    ) -> None:
        self.settings = settings.gateway
        judges = settings.verification.judges()
        self.judges = {name: judges[name] for name in self.settings.protocols if name in judges}
        self.bus = bus
        self.metrics = metrics
        self.replays = replays
        self.problems = problems
        self._reading: dict[asyncio.Event, float] = {}
        self._process = secrets.token_hex(8)
        self._lost: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.bounds = limits(self.settings.intake)
        self.threads = Reading()
        self.held = Held(self.settings.http.max_receiving)
        self.access = Access(self.settings)
        self.store = ImageStore(bus.js, bus.cold_images)
        self.thumbnails = Thumbnails(self.store, self.settings.intake)
        self.erased = Erased(bus.js, on_image=self._forget_image)
        self.known = KnownIds(bus, metrics)
        self.budgets = Budgets(bus, metrics)
        self.intake = Intake(self.settings, bus, metrics, self.store, self.budgets, self.erased, self.known)
        self.backlog = Backlog(bus, self.settings.intake.max_backlog)
        most_images = self.settings.intake.max_images
        self.admission = Admission(self.settings.admission, metrics, most_images=most_images)
        self.logged = LoggedCalls(
            self.bounds, metrics, self.intake.left_out, self.intake.senders, self.record, self._complete
        )
        self.telling: list[Callable[[], Sequence[str]]] = [
            lambda: self.intake.left_out.notes,
            lambda: self.access.notes,
        ]
        self.gauges = StreamGauges(bus, metrics)
        self.nats_monitor = NatsMonitor(settings.nats, metrics) if settings.nats.monitors else None
        most = settings.telemetry.max_labels
        alarms = AlarmPublisher(settings.alarm, bus, metrics, most, self.erased.names_response)
        self.live = Live(
            bus,
            alarms,
            self.budgets,
            metrics,
            most,
            erased=self.erased,
            snapshots=Snapshots(bus, counting_of(settings.alarm.rule, most)),
            every=self.settings.snapshot_every,
        )
        self.telling.append(lambda: self.live.notes)
        self.corrections = Corrections(bus, metrics.version_of)
        self.answers = AnswerSearch(bus, answers, self.erased, settings.telemetry.version_tags)

    def _forget_image(self, sha256: str) -> None:
        self.store.forget(sha256)
        self.thumbnails.forget(sha256)

    def notes(self) -> list[str]:
        """What somebody should know although it is no reason to send nobody here."""
        return [note for tell in self.telling for note in tell()]

    async def record(self, read: Callable[[], Submission], *, timeout: float = 0.0) -> Recorded:
        """Record, or ask, the response that `read` returns, if it may be: what every door calls for one.

        A full backlog, and then faults that pass, are waited for `timeout` seconds. Raises `Refused`, and
        counts it.
        """
        tenant = ""
        try:
            if self.backlog.refusal() is not None:
                await self.backlog.room(time.monotonic() + timeout)
            submission = read()
            self.admission.admit(submission.response.tenant, id=submission.response.id)
            tenant = submission.response.tenant
            if submission.strategy is not None:
                ended = await self.intake.ask(submission, submission.strategy)
            else:
                ended = await self.intake.record(submission, timeout=timeout)
        except Refused as error:
            self.intake.count(error)
            if tenant:
                self.ended(error, tenant)
            raise
        self.ended(ended, tenant, asked=submission.strategy is not None)
        return ended

    def ended(self, ended: Recorded | Refused, tenant: str, *, asked: bool = False) -> None:
        """Count what became of a response that was admitted; one that was `asked` has yet to be recorded."""
        if not isinstance(ended, Recorded) or ended.status != "recorded":
            self.admission.give_back(tenant)
        elif not asked:
            self.backlog.sent()

    async def count_losses(self, tenant: str, report: LossReport) -> dict[str, int]:
        """Keep what a sender has lost; what is new of it, by reason. Raises `Unavailable`."""
        new = await put_report(self.bus, tenant, report)
        for reason, number in new.items():
            self.metrics.lost_before_intake.labels(reason if reason in REASONS else OTHER).inc(number)
        return new

    async def batch_refused(self, source: Source, refused: Refused, caller: Caller) -> None:
        """A request with logged calls was refused. Unless it comes again they are lost, and nobody else tells
        of it.
        """
        if refused.status.http not in REFUSED_FOR_GOOD:
            return
        self.logged.batch_refused(source, refused, caller)
        await self.lose(caller.tenant(""), f"{source} batches", BATCH_REFUSED)

    async def lose(self, tenant: str, sender: str, reason: str) -> None:
        """Count what was lost here; while NATS is away it is counted with the next one."""
        lost = self._lost[tenant, sender]
        lost[reason] += 1
        report = LossReport(sender=sender, process=self._process, sequence=lost.total(), lost=dict(lost))
        with contextlib.suppress(TransientError, *FAULTS):
            async with bounded():
                await self.count_losses(tenant, report)

    async def report(self) -> dict[str, Any]:
        """Of all tenants."""
        report = await self.live.report()
        await self.corrections.add_to(report["alarms"], self.live.raised)
        return report

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """While the lines of a request are read, also those of who has hung up since."""
        ended = asyncio.Event()
        self._reading[ended] = time.monotonic()
        try:
            yield
        finally:
            del self._reading[ended]
            ended.set()

    async def settle(self) -> None:
        """Wait for the requests that are read now, which may still record what their senders gave up.

        Raises `TransientError` when they take too long; not for one that is long already, as no sender of
        ours sends.
        """
        await asyncio.sleep(RECEIVED_SECONDS)
        latest = time.monotonic() - LONG_SECONDS
        waiting = [ended.wait() for ended, began in self._reading.items() if began > latest]
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await asyncio.gather(*waiting)
        except TimeoutError as error:
            raise TransientError("what was sent before is still being recorded: report it again") from error

    async def has(self, tenant: str, name: str) -> bool:
        """Whether a response is recorded, or was until it was erased. Raises `TransientError`."""
        if problem := self.erased.problem or self.known.problem:
            raise TransientError(f"cannot be looked up: {problem}")
        response = ResponseRecorded(id=name, tenant=tenant, model="", answer="")
        if self.erased.why(response) or self.known.is_same(RESPONSES, response.key, "") is not None:
            return True
        if await _recorded(self.bus, response.key) is not None:
            return True
        if self.intake.is_unsure(response.key):
            raise TransientError(f"not known yet whether '{name[:64]}' is recorded: report it again")
        return False

    async def _complete(self, call: Conversation, sender: str, tenant: str) -> Conversation:
        """A logged call with what it only names. Raises `Refused`: nothing is fetched for one that is not
        taken now."""
        with self.intake.counting():
            await self.backlog.room()
            self.admission.check(tenant)
        return await with_uploaded(call, self.intake.fetcher, sender, self.settings.intake.max_line)


async def _recorded(bus: Bus, key: str) -> Read | None:
    """A response of live traffic, hot or cold. Raises `TransientError`."""
    return await bus.last_event(RESPONSES, subject_of("recorded", LIVE, home_key(key, bus.partitions)))


async def look_up(bus: Bus, tenant: str, response_id: str) -> dict[str, Any] | None:
    """`response`, its `outcomes` by protocol and the protocols still `waiting`; None if not recorded.

    Raises `TransientError` when the streams cannot be read, or not in time.
    """
    async with bounded():
        read = await _recorded(bus, response_key(tenant, response_id))
        if read is None:
            return None
        response = _RECORDED.decode(read.data)
        key = response.key
        outcome_events = await asyncio.gather(
            *(bus.last_event(OUTCOMES, subject_of("outcome", LIVE, name, key)) for name in response.protocols)
        )
    outcomes = {
        protocol: _SCORED.decode(outcome.data)
        for protocol, outcome in zip(response.protocols, outcome_events, strict=True)
        if outcome is not None
    }
    waiting = [protocol for protocol in response.protocols if protocol not in outcomes]
    return {"response": response, "outcomes": outcomes, "waiting": waiting}


async def confirm(core: GatewayCore, caller: Caller, report: LossReport) -> tuple[LossReport, dict[str, int]]:
    """The report with those unconfirmed counted that are not recorded, and how many others are, by reason.

    Raises `TransientError` when that cannot be looked up.
    """
    turns = asyncio.Semaphore(LOOKUPS)
    if report.unconfirmed:
        await core.settle()

    async def is_recorded(loss: Unconfirmed) -> bool:
        try:
            tenant = caller.tenant(loss.tenant)
        except Refused:
            return False
        async with turns:
            return await core.has(tenant or "default", loss.id)

    answers = await asyncio.gather(*map(is_recorded, report.unconfirmed))
    lost, recorded = Counter(report.lost), Counter[str]()
    for loss, there in zip(report.unconfirmed, answers, strict=True):
        (recorded if there else lost)[loss.reason] += 1
    return msgspec.structs.replace(report, lost=dict(lost), unconfirmed=()), dict(recorded)
