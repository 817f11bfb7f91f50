"""The one reader of streams: in order, without a gap, across reconnects and server restarts.

Everything reads through an ephemeral pull consumer, which the server forgets by itself. `read_stream` and
`read_batches` come to an end, `follow_stream` goes on with what is new. Of nats-py's `fetch`, which waits for
each message with a timer of its own and lingers on a batch that is not full, only the protocol is used:
messages come by callback, and another request goes out while earlier ones are still being answered.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy, RetentionPolicy

from groundwatch.errors import TransientError
from groundwatch.runtime.security.connecting import covers
from groundwatch.runtime.services.tasks import until_set
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import STREAMS

MOST = 2_000
"""So many messages, at most, lie here unread or are on their way."""

BEGIN = 100
MOST_BYTES = 16 * 1024 * 1024
"""Large events must not fill the memory: fewer of them are asked for."""

WAIT = 5.0
"""Seconds without a message after which the consumer is asked whether it still is, and what is left."""

PAUSE = 0.5
RESUME_SECONDS = 30.0
"""How long a reading with an end goes on trying after its last message."""

EXPIRED = "408"
UNSENT = "Nats-Pending-Messages"
"""Header of a request's end: how many of the messages that it asked for did not come."""

FAULTS = (nats.errors.Error, OSError)
"""What NATS' client raises when something is wrong with the server or the way to it; time that is up too."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the stream holds it. `time` in seconds since the epoch; `pending` are still to come."""

    subject: str
    data: bytes
    headers: dict[str, str]
    sequence: int
    time: float = 0.0
    pending: int = 0


class Batch(msgspec.Struct, frozen=True):
    """Messages in order; `pending` more are in the stream by now.

    One without messages tells that the server has just been asked, and that there were no others.
    """

    messages: list[Read]
    pending: int


class _Gap(nats.errors.Error):
    """A message did not come: reading begins again behind the one before it."""


async def last_message(js: JetStreamContext, stream: str, subject: str) -> Read | None:
    """The last message that the stream has on this subject; None when it has none there."""
    try:
        found = await js.get_last_msg(stream, subject)
    except nats.js.errors.NotFoundError:
        return None
    return Read(
        subject=found.subject or subject,
        data=found.data or b"",
        headers=dict(found.headers or {}),
        sequence=found.seq or 0,
    )


async def read_stream(
    js: JetStreamContext,
    stream: str,
    *,
    subjects: Sequence[str] = (),
    headers_only: bool = False,
    start_sequence: int = 1,
    last_sequence: int | None = None,
) -> AsyncGenerator[Read]:
    """`read_batches`, message by message."""
    reading = read_batches(
        js,
        stream,
        subjects=subjects,
        headers_only=headers_only,
        start_sequence=start_sequence,
        last_sequence=last_sequence,
    )
    async with contextlib.aclosing(reading):
        async for messages in reading:
            for message in messages:
                yield message


async def read_batches(
    js: JetStreamContext,
    stream: str,
    *,
    subjects: Sequence[str] = (),
    headers_only: bool = False,
    start_sequence: int = 1,
    last_sequence: int | None = None,
    most: Callable[[], int] = lambda: MOST,
    timeout: float = RESUME_SECONDS,
) -> AsyncGenerator[list[Read]]:
    """Every message from `start_sequence` up to what the stream holds now (or `last_sequence`), in order.

    `most` is asked each time how many messages may be on their way at once. Goes on behind the last message
    read when the server restarts. Raises `nats.js.errors.NotFoundError` when the stream does not exist,
    `TransientError` when the server stays away for `timeout` seconds.
    """
    info = await js.stream_info(stream)
    state = info.state
    last = min(state.last_seq, last_sequence) if last_sequence is not None else state.last_seq
    position = max(start_sequence, 1)
    progress = time.monotonic()
    work_queue = info.config.retention == RetentionPolicy.WORK_QUEUE
    while state.messages and position <= last:
        try:
            if work_queue:
                reading = _one_by_one(js, stream, subjects, position, last, headers_only=headers_only)
            else:
                reading = _consume(js, stream, subjects, position, last, headers_only=headers_only, most=most)
            async with contextlib.aclosing(reading):
                async for batch in reading:
                    yield batch.messages
                    position, progress = batch.messages[-1].sequence + 1, time.monotonic()
            return
        except FAULTS as error:
            if time.monotonic() - progress >= timeout:
                raise TransientError(f"reading {stream} broke off: {error!r}") from error
            await _until_there(js, stream, progress + timeout)


async def follow_stream(
    js: JetStreamContext,
    stream: str,
    *,
    subjects: Sequence[str] = (),
    start_sequence: int = 1,
    on_fault: Callable[[str], None] | None = None,
) -> AsyncGenerator[Batch]:
    """Every message from `start_sequence` on, and then each new one, however long the server is away.

    Ends only when the stream turns out to be another one, or one that has not come as far: the caller must
    begin anew. `on_fault` is told what keeps it from reading, and an empty string when it works; without it,
    a stream that does not exist raises `nats.js.errors.NotFoundError`.
    """
    if on_fault is None:
        await js.stream_info(stream)
    position, created = max(start_sequence, 1), None
    while True:
        try:
            info = await js.stream_info(stream)
            if info.state.last_seq < position - 1 or (created is not None and info.created != created):
                return
            created = info.created
            reading = _consume(js, stream, subjects, position, None)
            async with contextlib.aclosing(reading):
                async for batch in reading:
                    if on_fault is not None:
                        on_fault("")
                    if batch.messages:
                        position = batch.messages[-1].sequence + 1
                    yield batch
        except _Gap as gap:
            logger.debug("stream.reading_again", stream=stream, error=repr(gap))
        except FAULTS as error:
            logger.debug("stream.reading_again", stream=stream, error=repr(error))
            if on_fault is not None:
                on_fault(f"cannot read {stream}: {error!r}")
        await asyncio.sleep(PAUSE)


async def _until_there(js: JetStreamContext, stream: str, deadline: float) -> None:
    """Wait until the server answers for the stream, at most until `deadline` of the monotonic clock.

    A server that has just started answers before it has opened its streams, so "not found" is believed
    only for good.
    """
    absent = 0
    while time.monotonic() < deadline:
        await asyncio.sleep(PAUSE)
        try:
            await js.stream_info(stream)
            return
        except nats.js.errors.NotFoundError:
            absent += 1
            if absent * PAUSE >= WAIT:
                raise
        except FAULTS:
            continue


async def _consume(
    js: JetStreamContext,
    stream: str,
    subjects: Sequence[str],
    start: int,
    last: int | None,
    *,
    headers_only: bool = False,
    most: Callable[[], int] = lambda: MOST,
) -> AsyncGenerator[Batch]:
    """Read by one consumer, up to `last` or without end. Raises what NATS raises, and `_Gap`."""
    client = js._nc
    info = await _ephemeral(js, stream, subjects, start, headers_only=headers_only)
    asking = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{info.name}"
    inbox = client.new_inbox()
    arrived: list[Msg] = []
    news = asyncio.Event()

    async def arrive(message: Msg) -> None:
        arrived.append(message)
        news.set()

    subscription = await client.subscribe(inbox, cb=arrive)
    left = info.num_pending or 0
    requested = delivered = size = 0
    room = BEGIN
    try:
        if last is None and not left:
            yield Batch([], 0)
        while last is None or (left and start <= last):
            room = max(1, min(room, most()))
            # Never more than there is, where there is an end, so that every request is answered in full.
            wanted = room if last is None else min(room, left, last - start + 1)
            if requested <= room // 2 and requested < wanted:
                request = {"batch": wanted - requested, "expires": int(WAIT * 1e9)}
                await client.publish(asking, msgspec.json.encode(request), inbox)
                requested = wanted
            if not arrived:
                news.clear()
                await until_set(news, WAIT)
            taken = arrived[:]
            arrived.clear()
            messages = []
            for message in taken:
                if not message.reply:
                    requested = max(0, requested - _unsent(message))
                    continue
                at = message.metadata
                if at.sequence.consumer != delivered + 1:
                    raise _Gap(f"gap in {stream} before {at.sequence.stream}")
                delivered, left, start = delivered + 1, at.num_pending, at.sequence.stream + 1
                requested = max(0, requested - 1)
                size += len(message.data)
                if last is not None and start > last + 1:
                    break
                messages.append(_read(message))
            if messages:
                room = min(MOST, MOST_BYTES * delivered // (size + 1))
                yield Batch(messages, left)
            elif last is None or start <= last:
                # What was pending can have been deleted meanwhile, and the consumer with it.
                now = await js.consumer_info(stream, info.name)
                if not arrived:
                    if (now.delivered.consumer_seq if now.delivered else 0) != delivered:
                        raise _Gap(f"nothing came of {stream} behind {start - 1}")
                    requested, left = 0, now.num_pending or 0
                    if last is None:
                        yield Batch([], left)
    finally:
        with contextlib.suppress(*FAULTS):
            await subscription.unsubscribe()
            await js.delete_consumer(stream, info.name)


async def _one_by_one(
    js: JetStreamContext,
    stream: str,
    subjects: Sequence[str],
    start: int,
    last: int,
    *,
    headers_only: bool,
) -> AsyncGenerator[Batch]:
    """Read a work queue, which the server lets nobody but its own consumers consume: message by message."""
    wanted = subjects[0] if len(subjects) == 1 else ">"
    while start <= last:
        try:
            found = await js.get_msg(stream, start, subject=wanted, next=True)
        except nats.js.errors.NotFoundError:
            return
        sequence = found.seq or 0
        if sequence > last:
            return
        start = sequence + 1
        if len(subjects) > 1 and not any(covers(one, found.subject or "") for one in subjects):
            continue
        read = Read(
            subject=found.subject or "",
            data=b"" if headers_only else found.data or b"",
            headers=dict(found.headers or {}),
            sequence=sequence,
            time=found.time.timestamp() if found.time is not None else 0.0,
        )
        yield Batch([read], last - sequence)


async def _ephemeral(
    js: JetStreamContext, stream: str, subjects: Sequence[str], start: int, *, headers_only: bool
) -> ConsumerInfo:
    """A consumer whose name cannot be guessed, so that nobody else's rights reach it.

    A single filter stands in the request's subject, where the server's permissions see it.
    """
    declared = (list(spec.subjects) for spec in STREAMS if spec.name == stream)
    wanted = list(subjects) or next(declared, [])
    return await js.add_consumer(
        stream,
        ConsumerConfig(
            name=f"reading-{secrets.token_hex(16)}",
            filter_subject=wanted[0] if len(wanted) == 1 else None,
            filter_subjects=wanted if len(wanted) > 1 else None,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=start,
            ack_policy=AckPolicy.NONE,
            headers_only=headers_only or None,
            inactive_threshold=60.0,
            mem_storage=True,
            num_replicas=1,
        ),
    )


def _unsent(status: Msg) -> int:
    """How many messages a request that has ended still stood for. Raises for every other status."""
    headers = status.headers or {}
    if headers.get("Status") != EXPIRED:
        raise nats.errors.Error(f"{headers.get('Status', '')} {headers.get('Description', '')}".strip())
    return int(headers.get(UNSENT, 0))


def _read(message: Msg) -> Read:
    at = message.metadata
    return Read(
        subject=message.subject,
        data=message.data,
        headers=message.headers or {},
        sequence=at.sequence.stream,
        time=at.timestamp.timestamp(),
        pending=at.num_pending,
    )
