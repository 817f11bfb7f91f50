"""Reading a stretch of a stream as fast as the client can, with a bound on what is held.

nats-py's `fetch` waits for each message with a timer of its own, which costs more than the message. Here
messages come by callback, and another request goes out while earlier ones are still being answered; they are
handed on some hundreds at a time, and their headers are read only when somebody asks for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

import msgspec
import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from groundwatch.replay.wire import Tap, headers_of

if TYPE_CHECKING:
    from nats.js import JetStreamContext

MOST = 2_000
"""So many messages, at most, lie here unread or are on their way."""

BEGIN = 100
MOST_BYTES = 16 * 1024 * 1024
"""Large events must not fill the memory: fewer of them are asked for."""

PATIENCE = 5.0
"""Seconds without a message after which the consumer is asked whether it still is."""

FAULTS = (nats.errors.Error, OSError, TimeoutError)


class Broken(Exception):
    """The reading broke off: begin again behind the last message."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message of a stream. `carried` are its headers, or the bytes that they came as."""

    subject: str
    data: bytes
    carried: dict[str, str] | bytes
    sequence: int

    @property
    def headers(self) -> dict[str, str]:
        """By name; read only where somebody asks."""
        return headers_of(self.carried) if isinstance(self.carried, bytes) else self.carried


async def read(
    js: JetStreamContext,
    stream: str,
    subjects: str,
    first: int,
    last: int,
    *,
    most: Callable[[], int] = lambda: MOST,
) -> AsyncGenerator[list[Message]]:
    """What the stream holds of `subjects` at sequences `first` to `last`, in order, in lists as they come.

    `most` is asked each time how many messages may be on their way at once.

    Raises `Broken` when the server goes away in between, `nats.js.errors.NotFoundError` when there is no
    such stream.
    """
    try:
        info = await js.add_consumer(
            stream,
            ConsumerConfig(
                # A name that cannot be guessed, and one filter: what the server's permissions look at.
                name=f"replay-{secrets.token_hex(16)}",
                filter_subject=subjects,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=max(first, 1),
                ack_policy=AckPolicy.NONE,
                inactive_threshold=30.0,
                mem_storage=True,
                num_replicas=1,
            ),
        )
    except nats.js.errors.NotFoundError:
        raise
    except FAULTS as error:
        raise Broken(repr(error)) from error
    left = info.num_pending or 0
    if not left:
        return
    client = js._nc
    request = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{info.name}"
    inbox = client.new_inbox()
    held: list[tuple[bytes, bytes, bytes, bytes]] = []
    news = asyncio.Event()
    enough = 1

    def arrived(subject: bytes, reply: bytes, headers: bytes, data: bytes) -> None:
        held.append((subject, reply, headers, data))
        if len(held) >= enough or not reply:
            news.set()

    tap = Tap.of(client)
    subscription = await tap.subscribe(inbox, arrived)
    expected, coming, size = 1, 0, 0
    bound, position = BEGIN, max(first, 1)
    try:
        while True:
            room = min(bound, most())
            wanted = min(room, left, last - position + 1)
            if coming <= room // 2 and coming < wanted:
                # Never more than there is, so that every request is answered in full; nor much beyond the
                # last one.
                more = wanted - coming
                await client.publish(request, b'{"batch":%d,"expires":30000000000}' % more, inbox)
                coming += more
            enough = min(coming, max(1, room // 4))
            if len(held) < enough:
                news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), PATIENCE)
                if not held:
                    raise Broken("no answer")
            taken = held[:]
            held.clear()
            found: list[Message] = []
            for subject, reply, headers, data in taken:
                if not reply:
                    raise Broken(headers.decode(errors="replace").strip())
                # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>
                tokens = reply.split(b".")
                at = 2 if len(tokens) == 9 else 4
                if int(tokens[at + 4]) != expected:
                    raise Broken(f"message {tokens[at + 4].decode()} where {expected} was expected")
                sequence = int(tokens[at + 3])
                if sequence > last:
                    if found:
                        yield found
                    return
                position = sequence + 1
                expected += 1
                coming -= 1
                left = int(tokens[at + 6])
                size += len(data)
                found.append(Message(subject.decode(), data, headers, sequence))
            if found:
                yield found
            if not left or position > last:
                return
            bound = max(1, min(MOST, MOST_BYTES * expected // (size + 1)))
    except FAULTS as error:
        raise Broken(repr(error)) from error
    finally:
        with contextlib.suppress(*FAULTS):
            await tap.unsubscribe(subscription)
            await js.delete_consumer(stream, info.name)


class Reader:
    """Reads page after page; one that begins where the last ended by the same consumer.

    For each new consumer the server counts everything behind its start, at 400,000 subjects for 0.1 s, and
    whoever writes to the stream waits meanwhile: live traffic would notice each page.
    """

    def __init__(
        self, js: JetStreamContext, stream: str, subjects: str, last: int, *, most: Callable[[], int]
    ) -> None:
        """`last` is the end of all pages; `most` as for `read`."""
        self._js = js
        self._stream = stream
        self._subjects = subjects
        self._last = last
        self._most = most
        self._reading: AsyncGenerator[list[Message]] | None = None
        self._ahead: list[Message] = []
        self._at = 0
        self._dry = last + 1

    async def page(self, first: int, last: int) -> AsyncGenerator[list[Message]]:
        """What there is at sequences `first` to `last`. Raises what `read` raises."""
        if first >= self._dry:
            return
        if self._reading is None or self._at != first:
            await self.close()
            self._reading = read(self._js, self._stream, self._subjects, first, self._last, most=self._most)
        self._at = first
        while self._at <= last:
            messages, self._ahead = self._ahead, []
            if not messages:
                try:
                    messages = await anext(self._reading)
                except StopAsyncIteration:
                    self._reading, self._dry = None, self._at
                    return
                except BaseException:
                    self._reading = None
                    raise
            inside = bisect_right(messages, last, key=lambda one: one.sequence)
            self._ahead = messages[inside:]
            self._at = messages[inside - 1].sequence + 1 if inside and not self._ahead else last + 1
            if inside:
                yield messages[:inside]

    async def close(self) -> None:
        """Let go of the consumer."""
        reading, self._reading = self._reading, None
        self._ahead = []
        if reading is not None:
            await reading.aclose()
