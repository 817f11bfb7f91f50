"""The NATS client under every service: what it may put on the wire, and when.

nats-py keeps what is published while the server is away and sends it after the reconnect. Whoever was told
by then that it was not sent would be told wrong, so here nothing is kept.

It also hands on subjects of any length, and the server closes the connection of whoever sends a line that is
too long; nats-py then never connects again.
"""

import asyncio
import contextlib
from typing import Any

import nats.errors
from faststream.nats import NatsBroker
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from groundwatch.errors import InvalidName

ABANDON_SECONDS = 1.0

MAX_SUBJECTS = 3_500
"""Bytes of a subject and its reply subject. The server's max_control_line is 4,096 with the words around."""


class Connection(Client):
    """A connection that sends now or not at all. `closed` is set once it will never be open again."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Raises `InvalidName` for a subject that is too long, `nats.errors.Error` while not connected."""
        self._check(subject, reply)
        await super().publish(subject, payload, reply, headers)

    async def request(self, subject: str, *args: Any, **options: Any) -> Msg:
        """Raises as `publish` does, before anything waits for the answer."""
        self._check(subject, "")
        return await super().request(subject, *args, **options)

    async def subscribe(self, subject: str, *args: Any, **options: Any) -> Subscription:
        """Raises `InvalidName` for a subject that is too long. While not connected, it is opened later."""
        self._check(subject, "", connected=False)
        return await super().subscribe(subject, *args, **options)

    def _check(self, subject: str, reply: str, *, connected: bool = True) -> None:
        length = len(subject.encode()) + len(reply.encode())
        if length > MAX_SUBJECTS:
            raise InvalidName(
                f"'{subject[:32]}…' is a subject of {length:,} bytes, and NATS takes {MAX_SUBJECTS:,}: use "
                "shorter names"
            )
        if connected and not (self.is_connected or self.is_closed):
            raise nats.errors.ConnectionReconnectingError

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        try:
            return await super()._flush_pending(force_flush)
        except RuntimeError as error:
            # uvloop has a RuntimeError for a transport that was closed. nats-py's task that writes ends with
            # the first one, without a word, and then whoever publishes would meet it until the reader does.
            await self._process_op_err(error)
            raise nats.errors.ConnectionReconnectingError from error

    async def _process_connect_init(self) -> None:
        # What an earlier connection did not send before it broke is not sent over this one; subscriptions
        # are opened again from their own list.
        self._pending.clear()
        self._pending_data_size = 0
        await super()._process_connect_init()

    async def _attempt_reconnect(self) -> None:
        # An attempt that is cancelled for the next one ends the next one's future, which then ends it again.
        with contextlib.suppress(asyncio.InvalidStateError):
            await super()._attempt_reconnect()

    async def drain(self) -> None:
        """Send what is left and close. Whoever consumes over it has ended by then.

        nats-py's would also wait for what readers have not read, in tasks that outlive a close cut short.
        Raises `nats.errors.Error` when the server does not answer.
        """
        if not self.is_connected:
            raise nats.errors.ConnectionReconnectingError
        await self.flush()
        await self._close(Client.CLOSED)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        try:
            # The server may have hung up already.
            with contextlib.suppress(OSError):
                await super()._close(status, do_cbs)
        finally:
            # While it first connects, nats-py closes what it could not use as "disconnected", and tries on.
            if status == Client.CLOSED:
                self.closed.set()

    async def abandon(self) -> None:
        """Close without a word to the server, and leave no task behind."""
        for answer in self._pongs:
            # Who waits for one waits for the server.
            answer.cancel()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(ABANDON_SECONDS):
                await self._close(Client.CLOSED, do_cbs=False)
        for task in (
            self._reading_task,
            self._ping_interval_task,
            self._flusher_task,
            self._reconnection_task,
        ):
            if task is not None:
                task.cancel()


class Broker(NatsBroker):
    """FastStream's broker over such a connection, `last_connection` once it has been connected."""

    last_connection: Connection | None = None

    async def _connect(self) -> Client:
        connection = self.last_connection = Connection()
        await connection.connect(**self._connection_kwargs)
        self.config.connect(connection)
        return connection
