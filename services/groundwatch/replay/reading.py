"""Reading a stretch of a stream as fast as the client can, with a bound on what is held.

nats-py's `fetch` waits for each message with a timer of its own, which costs more than the message. Here
messages come by callback, and another request goes out while earlier ones are still being answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import msgspec
import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

if TYPE_CHECKING:
    from nats.aio.msg import Msg
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
    """A message of a stream."""

    subject: str
    data: bytes
    headers: dict[str, str]
    sequence: int


async def read(
    js: JetStreamContext, stream: str, subjects: str, first: int, last: int
) -> AsyncGenerator[list[Message]]:
    """What the stream holds of `subjects` at sequences `first` to `last`, in order, in lists as they come.

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
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{info.name}"
    inbox = client.new_inbox()
    held: list[Msg] = []
    news = asyncio.Event()

    async def arrived(message: Msg) -> None:
        held.append(message)
        news.set()

    subscription = await client.subscribe(inbox, cb=arrived, pending_bytes_limit=-1, pending_msgs_limit=-1)
    expected, coming, size = 1, 0, 0
    most, position = BEGIN, max(first, 1)
    try:
        while True:
            wanted = min(most, left, last - position + 1)
            if coming <= most // 2 and coming < wanted:
                # Never more than there is, so that every request is answered in full; nor much beyond the
                # last one.
                more = wanted - coming
                await client.publish(subject, b'{"batch":%d,"expires":30000000000}' % more, inbox)
                coming += more
            if not held:
                news.clear()
                try:
                    await asyncio.wait_for(news.wait(), PATIENCE)
                except TimeoutError:
                    raise Broken("no answer") from None
            taken, held = held, []
            found: list[Message] = []
            for message in taken:
                reply = message.reply
                if not reply:
                    raise Broken(str(message.headers))
                # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>
                tokens = reply.split(".")
                at = 2 if len(tokens) == 9 else 4
                if int(tokens[at + 4]) != expected:
                    raise Broken(f"message {tokens[at + 4]} where {expected} was expected")
                sequence = int(tokens[at + 3])
                if sequence > last:
                    if found:
                        yield found
                    return
                position = sequence + 1
                expected += 1
                coming -= 1
                left = int(tokens[at + 6])
                size += len(message.data)
                found.append(Message(message.subject, message.data, message.headers or {}, sequence))
            if found:
                yield found
            if not left or position > last:
                return
            most = max(1, min(MOST, MOST_BYTES * expected // (size + 1)))
    except FAULTS as error:
        raise Broken(repr(error)) from error
    finally:
        with contextlib.suppress(*FAULTS):
            await subscription.unsubscribe()
            await js.delete_consumer(stream, info.name)
