"""The connection to NATS and the one way to publish: at most one message on a subject, acknowledged.

`Bus.create` is what makes a stage exactly once: the server itself refuses a second event on the same
subject, so a redelivered input adds nothing however late it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec
import nats.errors
from nats.js import JetStreamContext

from groundwatch.addresses import concealed, shown_address
from groundwatch.errors import ConnectionLost, InputError, TransientError, Unavailable, UsageError, words
from groundwatch.events import Event
from groundwatch.keys import digest
from groundwatch.runtime.delivery.connection import Broker, Connection
from groundwatch.runtime.delivery.history import Cold, History
from groundwatch.runtime.delivery.publisher import Publisher, Receipt, StorageHealth, Stored, wait_acks
from groundwatch.runtime.delivery.streams import FAULTS, Read, last_message
from groundwatch.runtime.security.connecting import Refusals, nats_servers, security, why_not_connected
from groundwatch.runtime.settings import NatsSettings
from groundwatch.runtime.telemetry.logs import logger, outage
from groundwatch.runtime.telemetry.traces import Traces
from groundwatch.topology import HEADER_EXPECT_SEQUENCE, HEADER_MESSAGE_ID
from groundwatch.topology.partitions import stream_of
from groundwatch.topology.rights import inbox_prefix

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from groundwatch.runtime.stores.images import ColdImages

__all__ = ["ENCODER", "Bus", "Outgoing", "Receipt", "Stored", "wait_acks"]

ENCODER = msgspec.json.Encoder()

DEFAULT_SERVER = "nats://127.0.0.1:4222"

RECONNECT_POLL = 0.05

CLOSE_SECONDS = 4.0
"""With the drain before it, below Kubernetes' 30 seconds between SIGTERM and SIGKILL."""

TELL_SECONDS = 5.0
"""After which a server that is away is told of in the log; one that is back sooner is told of then, once."""

BROKEN = (OSError, nats.errors.UnexpectedEOF, nats.errors.StaleConnectionError)

CANCEL_SECONDS = 0.5
"""After which an attempt to connect that goes on is cancelled again."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """An event on its way out. `expect` is the sequence its subject must be at; 0: nothing there yet.

    `message_id` may be the parts that it is to be a digest of: what is never sent needs none.
    `whole` is for dead letters: they may be as large as the server takes. `counted` is what to do once the
    stream has taken it as new.
    """

    subject: str
    payload: bytes | Event
    message_id: str | tuple[str, ...] = ""
    headers: dict[str, str] = {}
    expect: int | None = 0
    whole: bool = False
    counted: Callable[[], None] | None = None

    def carrying(self, headers: Mapping[str, str]) -> Self:
        return msgspec.structs.replace(self, headers={**self.headers, **headers}) if headers else self


class Bus:
    """A FastStream broker with the JetStream calls that the runtime needs beside it.

    `user` is whose rights it works with, where that is not the `name` it is shown under.
    """

    def __init__(self, settings: NatsSettings, *, name: str, user: str = "") -> None:
        self._settings = settings
        self._name = name
        self._refusals = Refusals(user or name, settings.partitions)
        self.storage = StorageHealth()
        self.broker = Broker(
            nats_servers(settings.url) or [DEFAULT_SERVER],
            name=name,
            apply_types=False,
            logger=None,
            graceful_timeout=None,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            connect_timeout=5,
            # A server that has frozen or gone without a word is noticed in seconds, not in four minutes.
            ping_interval=5,
            max_outstanding_pings=2,
            allow_reconnect=True,
            drain_timeout=15,
            pending_size=64 * 1024 * 1024,
            inbox_prefix=inbox_prefix(user or name),
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            **security(settings),
        )
        self._js: JetStreamContext | None = None
        self._publisher: Publisher | None = None
        self._closing = False
        self._trouble = ""
        self.reconnects = 0
        self._broken = 0.0, ""
        self._telling: asyncio.TimerHandle | None = None
        self._causes: set[str] = set()
        self.outage = outage
        """Another one where the server is not the one that everything here waits for."""
        self.traces: Traces | None = None
        self.cold: Cold | None = None
        """What has left the streams, where an archive keeps it."""
        self.cold_images: ColdImages | None = None
        """Where images lie that have left the object store, where there is an archive."""

    @property
    def publish_timeout(self) -> float:
        """Seconds that a stream has to confirm an event."""
        return self._settings.publish_timeout

    @property
    def client(self) -> Connection:
        """The client under the broker; it reconnects by itself, until it is closed."""
        connection = self.broker.connection
        assert isinstance(connection, Connection)
        return connection

    @property
    def js(self) -> JetStreamContext:
        if self._js is None:
            self._js = self.client.jetstream(timeout=self._settings.publish_timeout)
        return self._js

    @property
    def history(self) -> History:
        """What was recorded, in the streams or the archive."""
        return History(self.js, self.cold, range(self.partitions))

    @property
    def partitions(self) -> int:
        """How many streams there are of each kind of event."""
        return self._settings.partitions

    @property
    def connected(self) -> bool:
        """Whether the socket is up. Says nothing of consumers: see `health`."""
        return self._publisher is not None and self.client.is_connected

    @property
    def lost(self) -> str:
        """Why the connection will never be open again, in one line; empty while it is, or may be."""
        if self._closing or self._publisher is None or not self.client.closed.is_set():
            return ""
        return (
            f"the connection to NATS at {shown_address(self._settings.url or DEFAULT_SERVER)} was closed "
            f"for good ({self.client.last_error or self._trouble or 'nobody said why'})"
        )

    async def until_lost(self) -> NoReturn:
        """Wait until the connection is closed for good. Raises `ConnectionLost` then."""
        await self.client.closed.wait()
        raise ConnectionLost(self.lost or "the connection to NATS was closed")

    async def until_connected(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.connected or self.lost:
                return
            await asyncio.sleep(RECONNECT_POLL)

    async def connect(self, *, timeout: float = 10.0) -> None:
        """Connect, trying for `timeout` seconds. Raises `UsageError` naming the address."""
        try:
            await _within(timeout, asyncio.create_task(self.broker.connect()))
        except (OSError, TimeoutError, nats.errors.Error, asyncio.CancelledError) as error:
            if _cancelled():
                raise
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                await asyncio.wait_for(self.broker.stop(), 5)
            raise UsageError(why_not_connected(self._settings, self._trouble)) from error
        # FastStream's callback around ours raises where a server turns us away, which would end reconnecting
        # for ever, and silently.
        self.client._error_cb = self._on_error
        if self._settings.tls_ca and not self.encrypted:
            await self.close()
            raise UsageError(
                f"the NATS server at {shown_address(self._settings.url)} speaks no TLS, and nats.tls_ca "
                "demands it: give it a tls block (groundwatch admin auth writes one), or "
                "unset nats.tls_ca"
            )
        _ = self.js
        publisher = Publisher(self.client, timeout=self._settings.publish_timeout, storage=self.storage)
        try:
            await publisher.start()
        except (nats.errors.Error, OSError) as error:
            await self.close()
            raise UsageError(why_not_connected(self._settings, self._trouble or words(error))) from error
        self._publisher = publisher

    @property
    def encrypted(self) -> bool:
        """Whether the server wants TLS, which the client then speaks or fails."""
        return bool(self.client._server_info.get("tls_required"))

    def problems(self) -> list[str]:
        """Why whoever works over this connection is not ready: gone, or refused something it needs."""
        return [away] if (away := self.away) else self.refused()

    @property
    def away(self) -> str:
        """Why nothing goes over this connection; empty while it does."""
        if lost := self.lost:
            return lost
        if not self.connected:
            return "not connected to NATS"
        if self._settings.tls_ca and not self.encrypted:
            return "the NATS server speaks no TLS any more, and nats.tls_ca demands it"
        return ""

    def refused(self) -> list[str]:
        """What the server refuses: a subject that this user may not use, events that it does not store."""
        return [*self._refusals.problems(), *self.storage.problems()]

    @contextlib.asynccontextmanager
    async def unless_refused(self) -> AsyncIterator[None]:
        """End the block at once when NATS refuses a subject, which otherwise shows as a timeout only.

        Raises `UsageError` with what was refused and what to do.
        """
        try:
            async with asyncio.timeout(None) as limit:
                with self._refusals.telling(lambda: limit.reschedule(0)):
                    yield
        except (nats.errors.Error, TimeoutError, TransientError) as error:
            if refused := self._refusals.problems():
                raise UsageError(refused[0]) from error
            raise

    async def close(self) -> None:
        """Drain and close, within `CLOSE_SECONDS`. A broken connection is closed without waiting for it."""
        self._closing = True
        self._settle(0.0)
        # From here on the broker has no connection to ask about.
        self._publisher = None
        # A task of its own: nats-py swallows that it is cancelled while it drains, and waits on.
        stopping = asyncio.create_task(self.broker.stop())
        try:
            await asyncio.wait({stopping}, timeout=CLOSE_SECONDS)
        finally:
            failed = not stopping.done() or stopping.cancelled() or stopping.exception() is not None
            if failed and self.broker.last_connection is not None:
                stopping.cancel()
                await self.broker.last_connection.abandon()
                await asyncio.wait({stopping}, timeout=CLOSE_SECONDS)
                # Whatever it is: what was done over the connection is done.
                logger.debug("nats.not_closed", service=self._name)

    def begin_trace(self, outgoing: Outgoing, name: str) -> tuple[Outgoing, Span | None]:
        """The event as the first of a trace, where it is traced, and the span of recording it."""
        span = self.traces.root(name, outgoing.subject) if self.traces is not None else None
        if span is None or self.traces is None:
            return outgoing, None
        return outgoing.carrying(self.traces.headers(span)), span

    async def create(self, outgoing: Outgoing) -> Stored:
        """Publish unless the subject has a message already; return when the stream has it.

        Raises `InputError` when the event is too large to ever fit or no text, `Unavailable` otherwise.
        """
        return await (await self.start_create(outgoing))

    async def start_create(self, outgoing: Outgoing) -> Receipt:
        """Like `create`, but return once it is sent; the caller must await the receipt, or `wait_acks`."""
        headers = dict(outgoing.headers)
        if name := outgoing.message_id:
            headers[HEADER_MESSAGE_ID] = name if isinstance(name, str) else digest(*name)[:32]
        if outgoing.expect is not None:
            headers[HEADER_EXPECT_SEQUENCE] = str(outgoing.expect)
        if self._publisher is None:
            raise Unavailable("not connected to NATS yet")
        payload = outgoing.payload
        if not isinstance(payload, bytes):
            try:
                payload = ENCODER.encode(payload)
            except UnicodeEncodeError as error:
                raise InputError(f"the event for {outgoing.subject} cannot be written: {error}") from error
        return await self._publisher.send(outgoing.subject, payload, headers or None, whole=outgoing.whole)

    async def holds(self, stream: str, subject: str) -> bool:
        """Whether the stream of this kind has a message on this subject."""
        return await self.headers_of(stream, subject) is not None

    async def last_event(self, stream: str, subject: str) -> Read | None:
        """The last event on this subject, in the streams or the archive; None where there is none. Raises
        `TransientError`."""
        try:
            return await self.history.last(stream, subject)
        except FAULTS as error:
            raise TransientError(f"cannot read {stream}: {words(error)}") from error
        except UsageError as error:
            # Nothing that whoever asks could mend: the archive cannot be read from here.
            raise TransientError(str(error)) from error

    async def headers_of(self, stream: str, subject: str) -> Mapping[str, str] | None:
        """The headers of the stream's message on this subject; None when it has none there."""
        try:
            found = await last_message(self.js, stream_of(stream, subject), subject)
        except FAULTS as error:
            raise Unavailable(f"cannot look up {subject}: {words(error)}") from error
        return found.headers if found is not None else None

    async def _on_error(self, error: Exception) -> None:
        self._trouble = concealed(str(error) or type(error).__name__)
        # While connecting, the one line that `connect` raises tells it.
        # That it broke is told of as the outage that it begins.
        quiet = self._closing or not self.connected or isinstance(error, BROKEN)
        if not quiet and not self._refusals.add(self._trouble):
            logger.warning("nats.error", service=self._name, error=repr(error))

    async def _on_disconnected(self) -> None:
        # It may break again before it is told that it is back.
        if not self._closing and self._telling is None:
            self._broken = time.monotonic(), self._trouble
            self.outage.begin()
            self._tell_later()

    def _tell_later(self) -> None:
        self._telling = asyncio.get_running_loop().call_later(TELL_SECONDS, self._tell_away)

    def _tell_away(self) -> None:
        """Each cause once: a server that is back may turn us away."""
        if self._trouble not in self._causes:
            self._causes.add(self._trouble)
            logger.warning("nats.disconnected", service=self._name, error=self._trouble)
        self._tell_later()

    async def _on_reconnected(self) -> None:
        self.reconnects += 1
        self._refusals.clear()
        self.storage.forget()
        self._settle()
        began, why = self._broken
        seconds = round(time.monotonic() - began, 1)
        logger.warning("nats.reconnected", service=self._name, seconds=seconds, error=why)

    def _settle(self, *seconds: float) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
            self._causes.clear()
            self.outage.end(*seconds)


async def _within(timeout: float, connecting: asyncio.Task[Any]) -> None:
    """Wait for it; ended, whatever ends the waiting. Raises `TimeoutError`, and what it raises.

    `asyncio.wait_for` cancels once, and waits: but an attempt that is refused at that very moment swallows a
    cancellation (Python 3.11), and nats-py would try on for ever.
    """
    try:
        done, _ = await asyncio.wait({connecting}, timeout=timeout)
        if not done:
            raise TimeoutError
        connecting.result()
    finally:
        while not connecting.done():
            connecting.cancel()
            await asyncio.wait({connecting}, timeout=CANCEL_SECONDS)
        if not connecting.cancelled():
            # Looked at, or asyncio complains of it later.
            connecting.exception()


def _cancelled() -> bool:
    """Whether this task was cancelled, and not only a future that the client library gave up."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
