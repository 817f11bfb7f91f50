"""The same connection with less work for each message: what a replay reads and publishes by.

nats-py parses headers character by character, makes an object of each message, puts it into a queue and
wakes a task for it; for an outgoing message it checks and copies every header. A replay moves hundreds of
messages at a time and looks at few of their headers, so here messages come as they are, and many go out as
one piece. Everything else, from logging in to coming back after the server was away, stays nats-py's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import nats.errors

from groundwatch.errors import UNDECODED, TransientError
from groundwatch.runtime.delivery.bus import Stored
from groundwatch.runtime.delivery.publisher import HEADROOM, WRONG_LAST_SEQUENCE
from groundwatch.topology import HEADER_EXPECT_SEQUENCE, HEADER_MESSAGE_ID

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.subscription import Subscription

    from groundwatch.runtime.delivery.bus import Outgoing

Heard = Callable[[bytes, bytes, bytes, bytes], None]
"""Told of each message: its subject, the subject to reply to, its headers as they came, its data."""

PIECE = 256 * 1024
"""Bytes that go to the socket at once, so that the server begins before the last event is made."""

LINE = b"NATS/1.0"

FAULTS = (nats.errors.Error, OSError, TimeoutError)


def headers_of(raw: bytes) -> dict[str, str]:
    """Headers by name, from the bytes that carried them."""
    found: dict[str, str] = {}
    for line in raw.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found[name.decode()] = value.strip().decode("utf-8", "surrogateescape")
    return found


async def _nobody(_: object) -> None:
    """Stands where nats-py wants a callback."""


class Tap:
    """Stands between a client's parser and the client, and takes the messages of some subscriptions."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._heard: dict[int, Heard] = {}

    @classmethod
    def of(cls, client: Client) -> Tap:
        """The client's tap; there is one, and it stays."""
        parser = client._ps
        if not isinstance(parser.nc, cls):
            parser.nc = cls(client)
        tap: Tap = parser.nc
        return tap

    async def subscribe(self, subject: str, heard: Heard) -> Subscription:
        """Like the client's, but `heard` is called with the bytes, from the parser itself."""
        subscription = await self._client.subscribe(subject, cb=_nobody)
        self._heard[subscription._id] = heard
        return subscription

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Hear no more."""
        self._heard.pop(subscription._id, None)
        await subscription.unsubscribe()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        heard = self._heard.get(sid)
        if heard is None:
            await self._client._process_msg(sid, subject, reply, data, headers)
        else:
            heard(subject, reply, headers or b"", data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class _Refusal(msgspec.Struct):
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    duplicate: bool = False
    error: _Refusal | None = None


_ACKS = msgspec.json.Decoder(_Ack)

Result = Stored | TransientError | None
"""What became of an event; None: nothing was heard."""


class _Batch:
    """Events in the air together: one future for all of them."""

    __slots__ = ("done", "left", "results")

    def __init__(self, size: int) -> None:
        self.left = size
        self.results: list[Result] = [None] * size
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Publisher:
    """Publishes many events at once, each acknowledged by its stream. `timeout` in seconds."""

    def __init__(self, client: Client, *, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._inbox = client.new_inbox()
        self._skip = len(self._inbox) + 1
        self._batches: dict[bytes, _Batch] = {}
        self._last = 0
        self._subscription: Subscription | None = None
        self._opening = asyncio.Lock()

    def fits(self, outgoing: Outgoing) -> bool:
        """Whether the server will ever take it, with its headers."""
        return len(outgoing.payload) + HEADROOM <= self._client.max_payload

    async def create(self, messages: Sequence[Outgoing]) -> list[Result]:
        """Publish each unless its subject has a message already. All of them `fits`.

        What became of each, in order; those that nothing was heard of in time are None. Raises
        `TransientError` when the server is away.
        """
        if not messages:
            return []
        client = self._client
        if not client.is_connected or client.is_draining:
            raise TransientError("not connected to NATS")
        try:
            await self._open()
            self._last += 1
            token = b"%d" % self._last
            batch = self._batches[token] = _Batch(len(messages))
            try:
                await self._send(messages, f"{self._inbox}.{self._last}.")
                await asyncio.wait((batch.done,), timeout=self._timeout)
            finally:
                del self._batches[token]
        except FAULTS as error:
            raise TransientError(f"publishing failed: {error!r}") from error
        return batch.results

    async def close(self) -> None:
        """Let go of the inbox."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self._client.is_closed:
            try:
                await Tap.of(self._client).unsubscribe(subscription)
            except FAULTS:
                # It goes with the connection.
                return

    async def _open(self) -> None:
        async with self._opening:
            if self._subscription is None:
                tap = Tap.of(self._client)
                self._subscription = await tap.subscribe(f"{self._inbox}.>", self._acknowledged)

    async def _send(self, messages: Sequence[Outgoing], reply: str) -> None:
        client = self._client
        parts: list[bytes] = []
        size = 0
        for index, message in enumerate(messages):
            part = _command(message, f"{reply}{index}")
            parts.append(part)
            size += len(part)
            if size >= PIECE:
                await client._send_command(b"".join(parts))
                await client._flush_pending()
                parts.clear()
                size = 0
        if parts:
            await client._send_command(b"".join(parts))
            await client._flush_pending()

    def _acknowledged(self, subject: bytes, reply: bytes, headers: bytes, data: bytes) -> None:
        token, _, index = subject[self._skip :].partition(b".")
        batch = self._batches.get(token)
        if batch is None:
            return
        at = int(index)
        if batch.results[at] is not None:
            return
        batch.results[at] = _result(data)
        batch.left -= 1
        if not batch.left and not batch.done.done():
            batch.done.set_result(None)


def _result(data: bytes) -> Stored | TransientError:
    if not data:
        return TransientError("no stream takes this subject")
    try:
        ack = _ACKS.decode(data)
    except UNDECODED as error:
        return TransientError(f"unreadable acknowledgement: {error}")
    if ack.error is None:
        return Stored.EXISTED if ack.duplicate else Stored.NEW
    if ack.error.err_code == WRONG_LAST_SEQUENCE:
        return Stored.EXISTED
    return TransientError(f"the stream refused it: {ack.error.description}")


def _command(message: Outgoing, reply: str) -> bytes:
    lines = "".join([f"{name}: {_in_one_line(value)}\r\n" for name, value in message.headers.items()])
    if message.message_id:
        lines += f"{HEADER_MESSAGE_ID}: {message.message_id}\r\n"
    if message.expect is not None:
        lines += f"{HEADER_EXPECT_SEQUENCE}: {message.expect}\r\n"
    headers = f"NATS/1.0\r\n{lines}\r\n".encode()
    payload = message.payload
    size = len(headers)
    line = f"HPUB {message.subject} {reply} {size} {size + len(payload)}\r\n".encode()
    return b"%b%b%b\r\n" % (line, headers, payload)


def _in_one_line(value: str) -> str:
    """A line break in a value would begin another header."""
    if "\r" in value or "\n" in value:
        return value.replace("\r", " ").replace("\n", " ").strip()
    return value
