"""One message on its way through a stage, how often it was tried, and how long the stage may work at it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.kv import KeyValue

from groundwatch.errors import UNDECODED, GroundwatchError, WorkTimeout
from groundwatch.events import Event
from groundwatch.keys import digest
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import (
    ATTEMPTS_BUCKET,
    HEADER_ORIGIN,
    HEADER_PROTOCOLS,
    HEADER_RETRY,
    HEADER_SUPERSEDES,
    RETRY,
    Address,
    parse_subject,
)

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from groundwatch.runtime.telemetry.metrics import Metrics

E = TypeVar("E", bound=Event)
T = TypeVar("T")

CANCEL_SECONDS = 1.0
"""How long work that was cancelled may take to end; after that its stage goes on without it."""

TOLD_SECONDS = 900.0
"""For how long work that ran out of time is told, unless it ends before."""


COUNT_SECONDS = 2.0
"""Seconds that the bucket is waited for: an event is never held up for the sake of its count."""

Kind = Literal["faults", "bugs", "released"]


class InHand(NamedTuple):
    """The envelope of an event that no server delivers: it stays in this process."""

    asked: tuple[str, ...]
    first: bool = True
    retried: bool = False
    origin: str = ""


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """How often an event has really been tried: what failed, apart from those that were only handed back, for
    no fault of the event (`released`).

    NATS counts deliveries. Outages, drains and crashes raise that number too, so it says nothing about the
    event.
    """

    faults: int = 0
    bugs: int = 0
    released: int = 0

    @property
    def failed(self) -> int:
        """Those that count against it."""
        return self.faults + self.bugs

    def plus(self, kind: Kind) -> Attempts:
        return msgspec.structs.replace(self, **{kind: getattr(self, kind) + 1})

    def unanswered(self, delivered: int) -> int:
        """Deliveries before this one that nobody answered: whoever had them died, or lost the connection."""
        return max(0, delivered - 1 - self.failed - self.released)


class Arrived:
    """A message with what its envelope says; readable even when its body is not.

    With `foreign` it comes from outside: its headers are whatever somebody wrote, and say nothing.
    """

    def __init__(self, message: Msg, *, foreign: bool = False) -> None:
        self.message = message
        self.headers: Mapping[str, str] = {} if foreign else message.headers or {}
        at = message.metadata
        self.stream = at.stream
        # On every other stream a message is what its subject says, whatever somebody wrote into its headers.
        again = self.stream == RETRY
        self.origin: str = (self.headers.get(HEADER_ORIGIN) if again else "") or message.subject
        self.retried = again and HEADER_RETRY in self.headers
        self.delivered = at.num_delivered
        self.sequence = at.sequence.stream
        self.stored_at = at.timestamp
        self.attempts = Attempts()
        self.handled = 0
        self.handled_at = 0.0
        self.span: Span | None = None
        self.trace: Mapping[str, str] = {}

    @property
    def carried(self) -> dict[str, str]:
        """Headers of whatever follows from it: also which outcomes its own take the place of."""
        superseded = self.headers.get(HEADER_SUPERSEDES)
        return {**({HEADER_SUPERSEDES: superseded} if superseded else {}), **self.trace}

    @property
    def key(self) -> str:
        """A name for this very message."""
        return f"{self.stream}.{self.sequence}"

    @property
    def first(self) -> bool:
        return self.delivered == 1 and self.handled <= 1

    @property
    def asked(self) -> tuple[str, ...]:
        """See `Envelope`. A dead letter that nobody could read names no protocols."""
        return self.protocols if self.retried else ()

    @property
    def answered(self) -> bool:
        """Whether the server has been told what became of it."""
        return self.message.is_acked

    @property
    def address(self) -> Address | None:
        """What the subject says, that of the original for a retried dead letter."""
        return parse_subject(self.origin)

    @property
    def fingerprint(self) -> str:
        """A name for this very message: 32 hex digits over stream and sequence."""
        return digest(self.stream, str(self.sequence))[:32]

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols that the headers name; empty when they name none."""
        named = self.headers.get(HEADER_PROTOCOLS, "")
        return tuple(named.split(",")) if named else ()

    async def ack(self) -> None:
        """Done with it. What the server does not hear it delivers again, and that adds nothing."""
        if not self.answered:
            with contextlib.suppress(nats.errors.Error):
                await self.message.ack()

    async def hand_back(self, delay: float) -> None:
        """Give it back to the server, to be delivered again after `delay` seconds; unheard, after a while."""
        if not self.answered:
            with contextlib.suppress(nats.errors.Error):
                await self.message.nak(delay=delay)


Envelope = Arrived | InHand
"""What a handler is told of how its event came.

`first`: nobody can have worked at it before, so that nothing of what it leads to can be there. `retried`: it
is a dead letter that was sent again. `origin` is the subject that it first came on, and `asked` are the
protocols that it is about; empty: all that the event names.
"""


class AttemptCounts:
    """The attempts at each event of one stage, in a bucket: for all replicas, and over restarts. It is read
    on redelivery only: nearly every event is delivered once."""

    def __init__(self, bus: Bus, consumer: str) -> None:
        self._bus = bus
        self._consumer = consumer
        self._bucket: KeyValue | None = None
        self._decoder = msgspec.json.Decoder(Attempts)

    async def of(self, arrived: Arrived) -> Attempts:
        """What is known; nothing when the bucket does not say."""
        if arrived.delivered == 1:
            return Attempts()
        try:
            found = await (await self._store()).get(self._key(arrived))
            return self._decoder.decode(found.value or b"{}")
        except nats.js.errors.KeyNotFoundError:
            pass
        except (*FAULTS, *UNDECODED) as error:
            logger.warning("attempts.unread", consumer=self._consumer, error=repr(error))
        return Attempts()

    async def put(self, arrived: Arrived, attempts: Attempts) -> None:
        """Remember it. A count that cannot be kept is lost, and its delivery then looks unanswered."""
        try:
            await (await self._store()).put(self._key(arrived), msgspec.json.encode(attempts))
        except FAULTS as error:
            logger.warning("attempts.lost", consumer=self._consumer, error=repr(error))

    def _key(self, arrived: Arrived) -> str:
        # With the time: a stream that was made anew begins to count its messages anew.
        return f"{self._consumer}.{arrived.sequence}.{int(arrived.stored_at.timestamp() * 1e6)}"

    async def _store(self) -> KeyValue:
        if self._bucket is None:
            js = self._bus.client.jetstream(timeout=COUNT_SECONDS)
            self._bucket = await js.key_value(ATTEMPTS_BUCKET)
        return self._bucket


class Work(msgspec.Struct, Generic[E], frozen=True):
    """A decoded event with its envelope."""

    event: E
    arrived: Envelope


class Delivery(Work[E], frozen=True):
    """One that a consumer delivered."""

    arrived: Arrived


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What handling one message led to. `failures` are by protocol; the rest of the message is fine."""

    publications: tuple[Outgoing, ...] = ()
    failures: dict[str, Exception] = {}

    def carrying(self, headers: Mapping[str, str]) -> Result:
        publications = tuple(one.carrying(headers) for one in self.publications)
        return Result(publications=publications, failures=self.failures)


Handler = Callable[[Sequence[Work[E]]], Awaitable[Sequence[Result | GroundwatchError]]]
"""Takes decoded events; returns one result for each, in order. An error stands for the whole event; failures
of single protocols stand in the `Result`. What `Envelope.first` is not true of may have been handled before,
in part: its handler looks what is there before it asks anybody."""


async def handled(stage: str, handler: Handler[E], works: Sequence[Work[E]]) -> list[Result | Exception]:
    """The handler's results; one that breaks on a batch gets its events one by one."""
    try:
        results: list[Result | Exception] = list(await handler(works))
        if len(results) != len(works):
            raise RuntimeError(f"{stage}: {len(results)} results for {len(works)} messages")
    except Exception as error:
        if len(works) == 1:
            if not isinstance(error, GroundwatchError):
                logger.error("stage.bug", stage=stage, error=repr(error), exc_info=True)
            return [error]
        return [one for work in works for one in await handled(stage, handler, [work])]
    return results


class Heartbeat:
    """Tells the server that work goes on, so that slow judging is not taken for a crash.

    What is answered drops out. It beats on the event loop: engines that compute do so in threads.
    """

    def __init__(self, messages: list[Arrived], every: float) -> None:
        self._messages = messages
        self._every = every
        self._handle: asyncio.TimerHandle | None = None
        self._beats: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Heartbeat:
        self._schedule()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._handle is not None:
            self._handle.cancel()
        for beat in self._beats:
            beat.cancel()

    def _schedule(self) -> None:
        # A timer instead of a task: nearly every batch is done before the first beat.
        self._handle = asyncio.get_running_loop().call_later(self._every, self._start_beat)

    def _start_beat(self) -> None:
        beat = asyncio.ensure_future(self._beat())
        self._beats.add(beat)
        beat.add_done_callback(self._beats.discard)
        self._schedule()

    async def _beat(self) -> None:
        for arrived in self._messages:
            if not arrived.answered:
                with contextlib.suppress(nats.errors.Error, OSError):
                    await arrived.message.in_progress()


class WorkClock:
    """Bounds each call of one stage's handler to `timeout` seconds."""

    def __init__(self, stage: str, metrics: Metrics, timeout: float) -> None:
        self._stage = stage
        self._timeout = timeout
        self._timeouts = metrics.stage_timeouts.labels(stage)
        self._began: dict[object, float] = {}
        self._late: dict[str, tuple[str, float]] = {}
        metrics.longest_work(stage, self._longest)

    async def within(self, work: Awaitable[T], arrivals: Sequence[Arrived]) -> T:
        """The result of `work`. Raises `WorkTimeout` when there is none in time; it is cancelled then."""
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        self._began[task] = time.monotonic()
        try:
            await asyncio.wait({task}, timeout=self._timeout)
            if task.done():
                return task.result()
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        finally:
            task.cancel()
            task.add_done_callback(_forget)
            del self._began[task]
        self._timeouts.inc()
        for arrived in arrivals:
            self._late[arrived.key] = (arrived.origin, time.monotonic())
        subjects = ", ".join(arrived.origin for arrived in arrivals[:3])
        logger.error(
            "stage.timeout", stage=self._stage, messages=len(arrivals), subjects=subjects, ended=task.done()
        )
        raise WorkTimeout(f"no result within {self._timeout:g} s")

    def ended(self, arrived: Arrived) -> None:
        """A message is done with: if it ran out of time before, that is over."""
        if self._late:
            self._late.pop(arrived.key, None)

    def problems(self) -> list[str]:
        """What ran out of time and has not ended since."""
        now = time.monotonic()
        self._late = {key: late for key, late in self._late.items() if now - late[1] < TOLD_SECONDS}
        if not self._late:
            return []
        subject, when = next(reversed(self._late.values()))
        return [
            f"{len(self._late)} events had no result within {self._timeout:g} s, the last one "
            f"{now - when:.0f} s ago: {subject}"
        ]

    def _longest(self) -> float:
        return time.monotonic() - min(self._began.values()) if self._began else 0.0


def _forget(task: asyncio.Future[Any]) -> None:
    """Whoever waited for it has gone on: what it raises is of no use to anybody."""
    if not task.cancelled():
        task.exception()
