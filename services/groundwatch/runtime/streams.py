"""Reading a stream from end to end, without a durable consumer and without waiting for more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

BATCH = 2_000
PATIENCE = 5.0


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the stream holds it. `time` in seconds since the epoch; `pending` are still to come."""

    subject: str
    data: bytes
    headers: dict[str, str]
    sequence: int
    time: float
    pending: int = 0


async def read_stream(
    js: JetStreamContext,
    stream: str,
    *,
    subjects: Sequence[str] = (),
    headers_only: bool = False,
    start_sequence: int = 1,
    last_sequence: int | None = None,
) -> AsyncIterator[Read]:
    """Every message from `start_sequence` up to what the stream holds now (or `last_sequence`), in order.

    Uses an ephemeral consumer that the server forgets by itself. Raises `nats.js.errors.NotFoundError`
    when the stream does not exist.
    """
    state = (await js.stream_info(stream)).state
    last = min(state.last_seq, last_sequence) if last_sequence is not None else state.last_seq
    if state.messages == 0 or start_sequence > last:
        return
    info = await js.add_consumer(
        stream,
        ConsumerConfig(
            filter_subjects=list(subjects) or None,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=max(start_sequence, 1),
            ack_policy=AckPolicy.NONE,
            headers_only=headers_only or None,
            inactive_threshold=60.0,
            mem_storage=True,
            num_replicas=1,
        ),
    )
    left = info.num_pending or 0
    subscription = await js.pull_subscribe_bind(consumer=info.name, stream=stream)
    try:
        while left > 0:
            try:
                messages = await subscription.fetch(min(BATCH, left), timeout=PATIENCE)
            except nats.errors.TimeoutError:
                # Messages between counting and reading were deleted: fewer come than were pending.
                if not (left := (await js.consumer_info(stream, info.name)).num_pending or 0):
                    return
                continue
            for message in messages:
                read = _read(message)
                left = read.pending
                if read.sequence > last:
                    return
                yield read
    finally:
        await subscription.unsubscribe()
        await js.delete_consumer(stream, info.name)


async def follow_stream(
    js: JetStreamContext, stream: str, *, subjects: Sequence[str] = (), start_sequence: int = 1
) -> AsyncIterator[Read]:
    """Every message from `start_sequence` on, and then the new ones as they come, without end.

    An ordered consumer: it starts itself again behind the last message seen when it misses one or the
    server restarts.
    """
    subscription = await js.subscribe(
        subjects[0] if subjects else ">",
        stream=stream,
        ordered_consumer=True,
        config=ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=max(start_sequence, 1)
        ),
    )
    try:
        async for message in subscription.messages:
            yield _read(message)
    finally:
        await subscription.unsubscribe()


def _read(message: Msg) -> Read:
    # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>
    tokens = message.reply.split(".")
    first = 2 if len(tokens) == 9 else 4
    return Read(
        subject=message.subject,
        data=message.data,
        headers=message.headers or {},
        sequence=int(tokens[first + 3]),
        time=int(tokens[first + 5]) / 1e9,
        pending=int(tokens[first + 6]),
    )
