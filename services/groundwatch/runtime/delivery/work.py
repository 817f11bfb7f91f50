"""One message on its way through a stage."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import nats.errors
from nats.aio.msg import Msg

from groundwatch.errors import GroundwatchError
from groundwatch.events import Event, digest
from groundwatch.runtime.delivery.attempts import Attempts
from groundwatch.runtime.delivery.bus import Outgoing
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import HEADER_ORIGIN, HEADER_PROTOCOLS, HEADER_RETRY, Address, parse_subject

if TYPE_CHECKING:
    from opentelemetry.trace import Span

E = TypeVar("E", bound=Event)


class Envelope(Protocol):
    """What a handler is told of how its event came."""

    @property
    def first(self) -> bool:
        """Whether nobody can have worked at it before, so that nothing of what it leads to can be there."""
        ...

    @property
    def retried(self) -> bool:
        """Whether it is a dead letter that was sent again."""
        ...

    @property
    def origin(self) -> str:
        """The subject that it first came on."""
        ...

    @property
    def asked(self) -> tuple[str, ...]:
        """The protocols that it is about; empty: all that the event names."""
        ...


class InHand(NamedTuple):
    """The envelope of an event that no server delivers: it stays in this process."""

    asked: tuple[str, ...]
    first: bool = True
    retried: bool = False
    origin: str = ""


class Arrived:
    """A message with what its envelope says; readable even when its body is not."""

    __slots__ = (
        "attempts",
        "delivered",
        "handled",
        "handled_at",
        "headers",
        "message",
        "origin",
        "sequence",
        "span",
        "stored_at",
        "stream",
        "trace",
    )

    def __init__(self, message: Msg) -> None:
        self.message = message
        self.headers: Mapping[str, str] = message.headers or {}
        self.origin: str = self.headers.get(HEADER_ORIGIN) or message.subject
        at = message.metadata
        self.stream = at.stream
        self.delivered = at.num_delivered
        self.sequence = at.sequence.stream
        self.stored_at = at.timestamp
        self.attempts = Attempts()
        self.handled = 0
        self.handled_at = 0.0
        self.span: Span | None = None
        self.trace: Mapping[str, str] = {}

    @property
    def key(self) -> str:
        """A name for this very message."""
        return f"{self.stream}.{self.sequence}"

    @property
    def first(self) -> bool:
        """See `Envelope`."""
        return self.delivered == 1 and self.handled <= 1

    @property
    def retried(self) -> bool:
        """See `Envelope`."""
        return HEADER_RETRY in self.headers

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


class Work(msgspec.Struct, Generic[E], frozen=True):
    """A decoded event with its envelope."""

    event: E
    arrived: Envelope


class Delivery(Work[E], frozen=True):
    """One that a consumer delivered."""

    arrived: Arrived


class Publication(msgspec.Struct, frozen=True):
    """An event to create, and what to do once the stream has taken it as new."""

    outgoing: Outgoing
    counted: Callable[[], None] | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What handling one message led to. `failures` are by protocol; the rest of the message is fine."""

    publications: tuple[Publication, ...] = ()
    failures: dict[str, Exception] = {}

    def carrying(self, headers: Mapping[str, str]) -> Result:
        """With these headers on all that it publishes."""
        publications = tuple(
            Publication(one.outgoing.carrying(headers), one.counted) for one in self.publications
        )
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
