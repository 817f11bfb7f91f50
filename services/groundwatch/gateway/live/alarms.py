"""Alarms of live traffic: shown while they last, and announced once, as their ends are, whoever restarts.

An alarm, and its end, is announced by putting it into the stream `GW_ALARMS`; only then is it logged and
counted. All alarms of one model and category have one subject there, and the server takes what follows only
from a gateway that has seen what is there: of several gateways one announces, and one that reads the outcomes
again after a restart finds its alarms announced.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

import msgspec

from groundwatch.errors import UNDECODED, GroundwatchError, TransientError, UsageError, words
from groundwatch.events import LIVE, AlarmRaised, ResponseScored
from groundwatch.keys import response_key
from groundwatch.reporting.alarms import REMEMBERED, Alarms, AlarmsState, Raised, kind_of, moment, named
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing, Stored
from groundwatch.runtime.delivery.streams import FAULTS, announced_alarms, decoded, last_message, read_stream
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import AlarmSettings
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ALARMS, ALARMS_BUCKET, run_subjects, subject_of

LONGEST_NOTE = 2_000
"""Characters of a note."""

MOST_NOTES = 50
"""Notes of one alarm."""


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """`by` is who is logged in; "" where no login is needed. `at` is in seconds since the epoch."""

    at: float
    by: str = ""
    note: str = ""


_NOTES = msgspec.json.Decoder(list[Acknowledgement])


class Acknowledgements:
    """Everything raises `Unavailable` when the server does not answer."""

    def __init__(self, bus: Bus) -> None:
        self._bucket = Bucket(bus, ALARMS_BUCKET)

    async def of(self, alarm: AlarmRaised) -> list[Acknowledgement]:
        """The oldest first."""
        found = await self._bucket.get(key_of(alarm))
        return _decoded(found.data if found is not None else None)

    async def of_fault(self, fault: Iterable[Raised]) -> list[Acknowledgement]:
        """Of any of the alarms that one fault raised."""
        found = await asyncio.gather(*(self.of(one.alarm) for one in fault))
        return sorted(chain.from_iterable(found), key=lambda one: one.at)

    async def by_key(self) -> dict[str, list[Acknowledgement]]:
        """Those of all alarms, by `key_of`."""
        return {one.key: _decoded(one.data) async for one in self._bucket.read(">")}

    async def add(self, alarm: AlarmRaised, by: str, note: str) -> None:
        """Raises `UsageError` for a note that is too long, or one too many."""
        if len(note) > LONGEST_NOTE:
            raise UsageError(f"a note has at most {LONGEST_NOTE:,} characters, and this one {len(note):,}")

        def longer(notes: list[Acknowledgement]) -> list[Acknowledgement]:
            if len(notes) >= MOST_NOTES:
                raise UsageError(f"this alarm has {MOST_NOTES} notes already")
            return [*notes, Acknowledgement(at=time.time(), by=by, note=note)]

        await self._bucket.change(key_of(alarm), _decoded, longer)


def key_of(alarm: AlarmRaised) -> str:
    """What tells one alarm from all others, as a key."""
    return f"{alarm.key}.{alarm.protocol}.{alarm.raised_at * 1000:.0f}"


def _decoded(data: bytes | None) -> list[Acknowledgement]:
    try:
        return _NOTES.decode(data or b"[]")
    except UNDECODED:
        return []


PAUSE = 2.0
LOOK_SECONDS = 15.0
"""How often what others announce is read."""

QUIET = 86_400.0
"""A model without an outcome for so many seconds has no alarm raised in the metrics: it is not used."""

SOURCES = 1_000
"""What one series of the gauge counts: of more than so many, those that are not watched any more go."""

_DECODER = msgspec.json.Decoder(AlarmRaised)


class AlarmPublisher(SupervisedTask):
    """Watches outcomes, announces what turns, and says what is raised now."""

    def __init__(
        self,
        settings: AlarmSettings,
        bus: Bus,
        metrics: Metrics,
        most: int | None = None,
        names_erased: Callable[[str, str], bool] = lambda key, tenant: False,
    ) -> None:
        """`most`: so many models are watched, those that come most often. `names_erased` says whether a
        response, by its key, or its tenant was erased."""
        super().__init__("gateway-alarms", self._announce_all)
        self._bus = bus
        self._metrics = metrics
        self._names_erased = names_erased
        self._new_alarms = partial(Alarms, settings.rule, most)
        self.alarms = self._new_alarms()
        self._shown: dict[tuple[str, str, str], set[tuple[str, str, str]]] = {}
        self._generation = metrics.generation
        self._announced: dict[tuple[str, str, str, float], AlarmRaised] = {}
        self._read_to = 0
        self._waiting: deque[AlarmRaised] = deque()
        self._awake = asyncio.Event()
        self._unannounced = ""

    @property
    def problem(self) -> str:
        return super().problem or self._unannounced

    @property
    def waiting(self) -> bool:
        """Whether some alarm is not announced yet."""
        return bool(self._waiting)

    @property
    def raised(self) -> list[Raised]:
        """Alarms, the oldest first. Those that were announced and that the rule of now does not find are
        `earlier` ones: they stay until somebody acknowledges them."""
        own: dict[tuple[str, ...], list[AlarmRaised]] = {}
        for one in self.alarms.raised:
            own.setdefault(kind_of(one.alarm), []).append(one.alarm)
        earlier: list[Raised] = []
        began: dict[tuple[str, ...], float] = {}
        for alarm in reversed(self._announced.values()):
            kind = kind_of(alarm)
            same, over = own.get(kind, ()), began.get(kind)
            began[kind] = alarm.since
            if not any(one.since <= alarm.raised_at and alarm.since <= one.raised_at for one in same):
                # Of one kind, one follows the other, whether or not the end was told.
                if alarm.recovered_at is None and over is not None:
                    alarm = _over(alarm, over, None)
                earlier.append(Raised(alarm=alarm, earlier=True))
        return sorted([*self.alarms.raised, *earlier[::-1]], key=lambda one: one.alarm.raised_at)

    def end(self, alarm: AlarmRaised) -> None:
        """Announce that an earlier alarm is over: the rule of now never would."""
        self._waiting.append(msgspec.structs.replace(alarm, recovered_at=time.time()))
        self._awake.set()

    def reset(self) -> None:
        self.alarms = self._new_alarms()
        self._announced, self._read_to = {}, 0

    async def restore(self, state: AlarmsState) -> None:
        """Go on from there, with alarms as they were announced. Raises what NATS raises, `TransientError`."""
        known = {named(alarm): alarm async for alarm in announced_alarms(self._bus.js)}
        self.alarms = self._new_alarms()
        self.alarms.restore(state, known)
        for model, protocol in self.alarms.models():
            self._show_model(model, protocol)

    def take(self, event: ResponseScored) -> None:
        """Count an outcome."""
        for found in self.alarms.add(event):
            self._waiting.append(found.alarm)
            self._awake.set()
        self._show(event)

    def _show(self, event: ResponseScored) -> None:
        """Make sure that the gauge has every category of this model; it is computed when it is read."""
        if self._generation != self._metrics.generation:
            # Some labels are others' now, and their series have ended.
            self._generation = self._metrics.generation
            self._shown.clear()
            for model, protocol in self.alarms.models():
                self._show_model(model, protocol)
        self._show_model(event.model, event.protocol)

    def _show_model(self, model: str, protocol: str) -> None:
        for category in self.alarms.raised_now(model, protocol):
            names = (model, protocol, category)
            labels = self._metrics.alarm_labels(*names)
            sources = self._shown.setdefault(labels, set())
            if not sources:
                self._metrics.alarm_raised.labels(*labels).set_function(partial(self._count, labels))
            sources.add(names)
            if len(sources) > SOURCES:
                sources -= {one for one in sources if one[:2] not in self.alarms.models()}

    def _count(self, labels: tuple[str, str, str]) -> float:
        since = time.time() - QUIET
        return float(
            sum(
                self.alarms.raised_now(model, protocol, since=since).get(category, 0)
                for model, protocol, category in self._shown.get(labels, ())
            )
        )

    async def _announce_all(self) -> None:
        while True:
            if not self._waiting:
                self._awake.clear()
                with contextlib.suppress(TransientError, *FAULTS):
                    await self._read_announced()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._awake.wait(), LOOK_SECONDS)
                continue
            try:
                await self._announce(self._waiting[0])
            except (TransientError, *FAULTS) as error:
                if not self._unannounced:
                    logger.warning("alarm.not_announced", error=repr(error))
                self._unannounced = f"an alarm waits to be announced: {words(error)}"
                await asyncio.sleep(PAUSE)
                continue
            except GroundwatchError as error:
                logger.error("alarm.lost", error=str(error), model=self._waiting[0].model)
            self._unannounced = ""
            self._waiting.popleft()

    async def _read_announced(self) -> None:
        """What this gateway and others have announced since."""
        subjects, first = [run_subjects("alarm", LIVE)], self._read_to + 1
        async for read in read_stream(self._bus.js, ALARMS, subjects=subjects, start_sequence=first):
            self._read_to = read.sequence
            if (alarm := decoded(_DECODER, read)) is not None:
                self._announced[named(alarm)] = alarm
        self._announced = {name: one for name, one in self._announced.items() if not self._is_erased(one)}
        while len(self._announced) > REMEMBERED:
            del self._announced[next(iter(self._announced))]

    def _is_erased(self, alarm: AlarmRaised) -> bool:
        return self._names_erased(response_key(alarm.tenant, alarm.response_id), alarm.tenant)

    async def _announce(self, alarm: AlarmRaised) -> None:
        """Put it, or its end, into the stream unless it, or what came later of its kind, is there."""
        subject = subject_of("alarm", alarm.run, alarm.protocol, alarm.key)
        while True:
            sequence, last = await self._last(subject)
            news = _news(alarm, last)
            if news is None or self._is_erased(news):
                return
            message = Outgoing(
                subject=subject,
                payload=ENCODER.encode(news),
                message_id=(subject, str(sequence), repr((news.raised_at, news.recovered_at))),
                expect=sequence,
            )
            if await self._bus.create(message) is Stored.NEW:
                self._tell(news)
                if (news.recovered_at is None) is (alarm.recovered_at is None):
                    return
            else:
                # Another gateway was faster: look at what it has written.
                await asyncio.sleep(0.05)

    def _tell(self, alarm: AlarmRaised) -> None:
        names = {name: getattr(alarm, name) for name in ("model", "protocol", "category")}
        logged = names | {"raised_at": moment(alarm.raised_at)}
        if alarm.recovered_at is not None:
            logger.info("alarm.recovered", **logged, recovered_at=moment(alarm.recovered_at))
            return
        self._metrics.alarms.labels(*self._metrics.alarm_labels(**names)).inc()
        told = {name: getattr(alarm, name) for name in ("before", "after", "base", "response_id")}
        responses = alarm.raised_response - alarm.since_response + 1
        logger.warning("alarm.raised", **logged, since=moment(alarm.since), responses=responses, **told)

    async def _last(self, subject: str) -> tuple[int, AlarmRaised | None]:
        read = await last_message(self._bus.js, ALARMS, subject)
        if read is None:
            return 0, None
        return read.sequence, decoded(_DECODER, read)


def _news(alarm: AlarmRaised, last: AlarmRaised | None) -> AlarmRaised | None:
    """What the stream, whose last of this kind is given, lacks of an alarm, or of its end.

    The end is told of the alarm that was announced, so that receivers know which: one that reads the outcomes
    again by other rules can have raised it a little earlier or later.
    """
    if last is None:
        return alarm
    if alarm.recovered_at is None:
        if alarm.since <= last.raised_at:
            return None
        # One of other settings, which never found its end: this one takes its place.
        return alarm if last.recovered_at is not None else _over(last, alarm.since, None)
    if last.recovered_at is not None or last.raised_at > max(alarm.raised_at, alarm.recovered_at):
        return None
    return _over(last, alarm.recovered_at, alarm.recovered_response)


def _over(alarm: AlarmRaised, at: float, response: int | None) -> AlarmRaised:
    return msgspec.structs.replace(alarm, recovered_at=at, recovered_response=response)
