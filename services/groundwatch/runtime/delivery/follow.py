"""One ordered reading of a stream that never ends: no gaps, across reconnects and server restarts."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import msgspec
import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

BATCH = 500
WAIT = 5.0
PAUSE = 1.0
FORGET = 60.0

FAULTS = (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Messages in order, each as (sequence, subject, data); `pending` more are in the stream by now.

    One without messages tells that the server has just been asked, and that there were no others.
    """

    messages: list[tuple[int, str, bytes]]
    pending: int


async def follow(
    js: JetStreamContext,
    stream: str,
    subject: str,
    *,
    after: int = 0,
    on_fault: Callable[[str], None] = lambda problem: None,
) -> AsyncIterator[Batch]:
    """Every message of the stream after sequence `after`, then each new one.

    Faults are told to `on_fault` and tried again; an empty string tells that it works. Ends only when the
    stream turns out to be another one, or one that has not come as far: the caller must begin anew.
    """
    position, created = after, None
    while True:
        try:
            info = await js.stream_info(stream)
            if info.state.last_seq < position or (created is not None and info.created != created):
                return
            created = info.created
            async for batch in _read(js, stream, subject, position):
                on_fault("")
                if batch.messages:
                    position = batch.messages[-1][0]
                yield batch
        except FAULTS as error:
            on_fault(f"cannot read {stream}: {error!r}")
        await asyncio.sleep(PAUSE)


async def _read(js: JetStreamContext, stream: str, subject: str, after: int) -> AsyncIterator[Batch]:
    """Until a gap shows. Raises what NATS raises."""
    info = await js.add_consumer(
        stream,
        ConsumerConfig(
            name=f"following-{secrets.token_hex(16)}",
            filter_subject=subject,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=FORGET,
            mem_storage=True,
            num_replicas=1,
        ),
    )
    subscription = await js.pull_subscribe_bind(consumer=info.name, stream=stream)
    delivered = 0
    try:
        if not info.num_pending:
            yield Batch(messages=[], pending=0)
        while True:
            try:
                messages = await subscription.fetch(BATCH, timeout=WAIT)
            except (TimeoutError, nats.errors.TimeoutError):
                now = await js.consumer_info(stream, info.name)
                if ((now.delivered.consumer_seq if now.delivered else 0) or 0) != delivered:
                    return
                yield Batch(messages=[], pending=now.num_pending or 0)
                continue
            batch = _in_order(messages, delivered)
            delivered += len(batch.messages)
            if batch.messages:
                yield batch
            if len(batch.messages) < len(messages):
                return
    finally:
        with contextlib.suppress(*FAULTS):
            await subscription.unsubscribe()
            await js.delete_consumer(stream, info.name)


def _in_order(messages: list[Msg], delivered: int) -> Batch:
    """The messages up to the first that does not follow on the one before it."""
    taken: list[tuple[int, str, bytes]] = []
    pending = 0
    for message in messages:
        # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>
        tokens = message.reply.split(".")
        first = 2 if len(tokens) == 9 else 4
        if int(tokens[first + 4]) != delivered + len(taken) + 1:
            break
        pending = int(tokens[first + 6])
        taken.append((int(tokens[first + 3]), message.subject, message.data))
    return Batch(messages=taken, pending=pending)
