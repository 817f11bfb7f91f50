"""The one reader of streams: in order, without a gap, across reconnects and server restarts.

`read_stream` and `read_batches` come to an end, `follow_stream` goes on with what is new. They read through
an ephemeral pull consumer, which the server forgets by itself. Nobody must wait for one: in a large stream it
has no filter, and what lies in the middle of one from which something was deleted is got by sequence. Where
few messages have such a subject, the server's index says between which sequences they lie. Of nats-py's
`fetch`, which waits for each message with a timer of its own and lingers on a batch that is not full, only
the protocol is used: messages come by callback, and another request goes out while earlier ones are still
being answered.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypedDict, TypeVar, Unpack

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    DeliverPolicy,
    RetentionPolicy,
    StreamConfig,
    StreamInfo,
)

from groundwatch.errors import UNDECODED, TransientError, words
from groundwatch.events import LIVE, AlarmRaised
from groundwatch.runtime.delivery import direct
from groundwatch.runtime.delivery.direct import (
    MOST,
    MOST_BYTES,
    WAIT,
    Part,
    Read,
    counts_long,
    is_large,
    is_wide,
    matcher,
    next_of_leader,
    part_of,
    read_by_sequence,
    read_of,
    share_of,
)
from groundwatch.runtime.services.tasks import still_wanted, until_set
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import ALARMS, run_subjects

__all__ = [
    "FAULTS",
    "LABEL",
    "MOST",
    "Batch",
    "Count",
    "Mark",
    "Position",
    "Read",
    "Reading",
    "follow_stream",
    "last_message",
    "position_of",
    "read_batches",
    "read_stream",
]

BEGIN = 100

NEAR = 5_000
"""Who follows a large stream gets what is there by sequences until so many are left, and then consumes."""

LOOKED = 200
"""Messages that are looked at before anything else: mostly there is one among them."""

LABEL = "groundwatch-created"
"""Metadata of a stream: when it was created, µs since the epoch. Backups keep it."""

PAUSE = 0.5
RESUME_SECONDS = 30.0
"""How long a reading with an end goes on trying after its last message."""

EXPIRED = "408"
UNSENT = "Nats-Pending-Messages"
"""Header of a request's end: how many of the messages that it asked for did not come."""

FAULTS = (nats.errors.Error, OSError)
"""What NATS' client raises when something is wrong with the server or the way to it; time that is up too."""


LAG_SECONDS = 5.0
"""So long a stream may not have come as far as it had: its new leader need not have everything yet."""

PRECISION = 0.001
"""Seconds by which the time of one message may differ: it is rounded where it is written down."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream stands: `created`, µs since the epoch, tells it from others of its name.

    A stream that was made anew counts from 1 again, and its sequences are not those of the old one. One that
    was restored from a backup is the old one, although the server says that it made it then (`made`): it is
    `labelled` with when it was created, as soon as the archive has seen it.
    """

    created: int
    first: int
    last: int
    made: int = 0
    labelled: bool = False


SKIPPED = 1
"""A sequence that need never have had a message. A stream that never had one skips it when the disk is full
as the first comes, and the server is then stopped (nats-server 2.15.1)."""


class Mark(msgspec.Struct, frozen=True, order=True):
    """A message of a stream: its sequence, and when the server stored it; 0 where that is not known."""

    sequence: int
    time: float = 0.0


class Batch(msgspec.Struct, frozen=True):
    """Messages in order; `pending` more are in the stream by now.

    One without messages tells that the server has just been asked, and that there were no others.
    """

    messages: list[Read]
    pending: int


class _Gap(nats.errors.Error):
    """A message did not come: reading begins again behind the one before it."""


def own_metadata(config: StreamConfig) -> dict[str, str]:
    """Without what the server says of itself."""
    return {name: text for name, text in (config.metadata or {}).items() if not name.startswith("_nats.")}


async def position_of(js: JetStreamContext, stream: str) -> Position:
    """Look at the stream. Raises what NATS raises."""
    info = await js.stream_info(stream)
    made = round(info.created.timestamp() * 1e6) if info.created is not None else 0
    label = (info.config.metadata or {}).get(LABEL, "")
    state = info.state
    # Purged up to a message that had been deleted, an empty stream still tells where it began before.
    first = state.first_seq if state.messages else state.last_seq + 1
    return Position(
        created=int(label) if label.isdecimal() else made,
        first=first,
        last=state.last_seq,
        made=made,
        labelled=label.isdecimal(),
    )


async def mark_at(js: JetStreamContext, stream: str, sequence: int) -> Mark:
    """The message of this sequence. Raises what NATS raises."""
    found = await next_of_leader(js, stream, sequence) if sequence else None
    return Mark(sequence, found.time if found is not None and found.sequence == sequence else 0.0)


async def is_same(js: JetStreamContext, stream: str, mark: Mark) -> bool | None:
    """Whether the stream has this message at its sequence; None where it has none there, or the mark has no
    time. Raises what NATS raises."""
    there = await mark_at(js, stream, mark.sequence)
    return abs(there.time - mark.time) <= PRECISION if there.time and mark.time else None


async def has_gone_back(js: JetStreamContext, stream: str, at: Position, mark: Mark) -> bool | None:
    """Whether the stream, which had this message once, does not come so far now or has another one there.
    None where that message has left it. Raises what NATS raises."""
    if mark.sequence > at.last:
        return True
    same = await is_same(js, stream, mark) if mark.sequence >= at.first else None
    return not same if same is not None else None


async def label(js: JetStreamContext, stream: str, created: int) -> None:
    """Write down when the stream was created, so that a restored one says so too. Raises what NATS raises."""
    config = (await js.stream_info(stream)).config
    await js.update_stream(config.evolve(metadata=own_metadata(config) | {LABEL: str(created)}))


T = TypeVar("T")

_ALARM = msgspec.json.Decoder(AlarmRaised)


def decoded(decoder: msgspec.json.Decoder[T], read: Read) -> T | None:
    """The event of a message; None of one that cannot be read, which the log tells."""
    try:
        return decoder.decode(read.data)
    except UNDECODED as error:
        logger.warning("stream.unreadable", subject=read.subject, error=str(error))
        return None


async def announced_alarms(js: JetStreamContext) -> AsyncGenerator[AlarmRaised]:
    """Alarms of live traffic, the oldest first, and once more with its end each that is over; none where
    there is no such stream."""
    with contextlib.suppress(nats.js.errors.NotFoundError):
        async for read in read_stream(js, ALARMS, subjects=[run_subjects("alarm", LIVE)]):
            if (alarm := decoded(_ALARM, read)) is not None:
                yield alarm


async def last_message(js: JetStreamContext, stream: str, subject: str) -> Read | None:
    """The last message that the stream has on this subject; None when it has none there."""
    try:
        return read_of(await js.get_last_msg(stream, subject))
    except nats.js.errors.NotFoundError:
        return None


class Reading(TypedDict, total=False):
    """Which messages `read_batches` gives: those of `subjects`, which may have wildcards (without any, all),
    from `start_sequence` up to `last_sequence`, or to what the stream holds when it begins.

    With `headers_only` they have no data. `most` is asked each time how many may be on their way at once.
    The server may stay away for `timeout` seconds.
    """

    subjects: Sequence[str]
    headers_only: bool
    start_sequence: int
    last_sequence: int | None
    most: Callable[[], int]
    timeout: float


def read_stream(js: JetStreamContext, stream: str, **reading: Unpack[Reading]) -> AsyncGenerator[Read]:
    """`read_batches`, message by message."""
    return one_by_one(read_batches(js, stream, **reading))


async def read_newest(js: JetStreamContext, stream: str, subjects: str) -> dict[str, bytes]:
    """The newest message on each subject, also of one that is replaced while all are read. Raises as
    `read_batches`."""
    there = (await js.stream_info(stream, subjects_filter=subjects)).state.subjects or {}
    newest = {one.subject: one.data async for one in read_stream(js, stream, subjects=(subjects,))}
    for subject in there.keys() - newest.keys():
        with contextlib.suppress(nats.js.errors.NotFoundError):
            newest[subject] = (await js.get_last_msg(stream, subject)).data or b""
    return newest


async def one_by_one(batches: AsyncGenerator[list[Read]]) -> AsyncGenerator[Read]:
    """What comes in batches; those are closed with it."""
    async with contextlib.aclosing(batches):
        async for messages in batches:
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
    """Every message that is wanted, in order: see `Reading`.

    Goes on behind the last message read when the server restarts. Raises `nats.js.errors.NotFoundError` when
    the stream does not exist, `TransientError` when the server stays away for `timeout` seconds.
    """
    info = await _info_up_to(js, stream, last_sequence or 0)
    state = info.state
    last = min(state.last_seq, last_sequence) if last_sequence is not None else state.last_seq
    position = max(start_sequence, 1)
    progress = time.monotonic()
    wanted = matcher(subjects)
    while state.messages and position <= last:
        try:
            part = await part_of(js, stream, info, subjects, position, last, headers_only=headers_only)
            reading = _bounded(js, stream, info, subjects, part, headers_only=headers_only, most=most)
            async with contextlib.aclosing(reading):
                async for batch in reading:
                    if found := [read for read in batch.messages if wanted(read.subject)]:
                        yield found
                    position, progress = batch.messages[-1].sequence + 1, time.monotonic()
            return
        except FAULTS as error:
            if time.monotonic() - progress >= timeout:
                raise TransientError(f"reading {stream} broke off: {words(error)}") from error
            info = await until_there(js, stream, progress + timeout) or info


async def follow_stream(
    js: JetStreamContext,
    stream: str,
    *,
    subjects: Sequence[str] = (),
    start_sequence: int = 1,
    on_fault: Callable[[str], None] | None = None,
    most_bytes: int = MOST_BYTES,
) -> AsyncGenerator[Batch]:
    """Every message from `start_sequence` on, and then each new one, however long the server is away.

    About `most_bytes` of them are on their way at once.

    Ends only when the stream turns out to be another one, or one that has not come as far: the caller must
    begin anew. `on_fault` is told what keeps it from reading, and an empty string when it works; without it,
    a stream that does not exist raises `nats.js.errors.NotFoundError`.
    """
    if on_fault is None:
        await js.stream_info(stream)
    position, created = max(start_sequence, 1), None
    wanted = matcher(subjects)
    while True:
        still_wanted()
        try:
            info = await _info_up_to(js, stream, position - 1, created)
            if info.state.last_seq < position - 1 or (created is not None and info.created != created):
                return
            created = info.created
            most = partial(_most, info, most_bytes)
            last = info.state.last_seq
            part = await part_of(js, stream, info, subjects, position, last)
            counts = counts_long(info, position)
            if part != Part(position, last) or (counts and last - position >= NEAR):
                reading = _bounded(js, stream, info, subjects, part, most=most)
            else:
                filters = () if is_large(stream, info) else subjects
                behind = info if counts and not filters else None
                reading = _consume(js, stream, filters, position, None, most=most, behind=behind)
            async with contextlib.aclosing(reading):
                async for batch in reading:
                    if on_fault is not None:
                        on_fault("")
                    if batch.messages:
                        position = batch.messages[-1].sequence + 1
                    found = [read for read in batch.messages if wanted(read.subject)]
                    if found or not batch.pending:
                        yield Batch(found, batch.pending)
            position = max(position, info.state.last_seq + 1)
            continue
        except _Gap as gap:
            logger.debug("stream.reading_again", stream=stream, error=repr(gap))
        except FAULTS as error:
            logger.debug("stream.reading_again", stream=stream, error=repr(error))
            if on_fault is not None:
                on_fault(f"cannot read {stream}: {words(error)}")
        await asyncio.sleep(PAUSE)


async def _info_up_to(
    js: JetStreamContext, stream: str, last: int, created: datetime | None = None
) -> StreamInfo:
    """The stream, once it has come as far as it is known to have; as it is where it is another one, or has
    not for `LAG_SECONDS`."""
    until = time.monotonic() + LAG_SECONDS
    while True:
        info = await js.stream_info(stream)
        another = created is not None and info.created != created
        if info.state.last_seq >= last or another or time.monotonic() >= until:
            return info
        await asyncio.sleep(PAUSE)


def _most(info: StreamInfo, most_bytes: int) -> int:
    """How many messages of the stream's usual size that are."""
    if not info.state.bytes:
        return MOST
    return min(MOST, max(1, most_bytes * info.state.messages // info.state.bytes))


async def _at_hand(messages: Sequence[Read]) -> AsyncGenerator[Batch]:
    if messages:
        yield Batch(list(messages), 0)


def _bounded(
    js: JetStreamContext,
    stream: str,
    info: StreamInfo,
    subjects: Sequence[str],
    part: Part,
    *,
    headers_only: bool = False,
    most: Callable[[], int],
) -> AsyncGenerator[Batch]:
    """What lies in a part of the stream; of a large one also what has other subjects."""
    if part.messages is not None:
        return _at_hand(part.messages)
    filters = () if is_large(stream, info) else subjects
    get = info.config.retention == RetentionPolicy.WORK_QUEUE or (
        not filters and counts_long(info, part.first)
    )
    if get:
        return _get(js, stream, info, part.first, part.last, headers_only=headers_only, most=most)
    return _consume(js, stream, filters, part.first, part.last, headers_only=headers_only, most=most)


async def _get(
    js: JetStreamContext,
    stream: str,
    info: StreamInfo,
    start: int,
    last: int,
    *,
    headers_only: bool = False,
    most: Callable[[], int] = lambda: MOST,
) -> AsyncGenerator[Batch]:
    reading = read_by_sequence(
        js,
        stream,
        max(start, info.state.first_seq),
        last,
        headers_only=headers_only,
        most=most,
        size=info.state.bytes // max(1, info.state.messages),
    )
    async with contextlib.aclosing(reading):
        async for messages in reading:
            yield Batch(messages, messages[-1].pending)


async def until_there(js: JetStreamContext, stream: str, deadline: float) -> StreamInfo | None:
    """Wait until the server answers for the stream, at most until `deadline` of the monotonic clock.

    A server that has just started answers before it has opened its streams, so "not found" is believed
    only for good.
    """
    absent = 0
    while time.monotonic() < deadline:
        await asyncio.sleep(PAUSE)
        try:
            return await js.stream_info(stream)
        except nats.js.errors.NotFoundError:
            absent += 1
            if absent * PAUSE >= WAIT:
                raise
        except FAULTS:
            continue
    return None


async def _consume(
    js: JetStreamContext,
    stream: str,
    subjects: Sequence[str],
    start: int,
    last: int | None,
    *,
    headers_only: bool = False,
    most: Callable[[], int] = lambda: MOST,
    behind: StreamInfo | None = None,
) -> AsyncGenerator[Batch]:
    """Read by one consumer, up to `last` or without end. Raises what NATS raises, and `_Gap`.

    `behind` is for a stream in which it must begin with what is new: what is there by then is got before.
    """
    client = js._nc
    new = behind is not None
    info = await _ephemeral(js, stream, subjects, start, headers_only=headers_only, new=new)
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
        if behind is not None and info.delivered is not None:
            async for batch in _get(js, stream, behind, start, info.delivered.stream_seq, most=most):
                yield batch
            start = info.delivered.stream_seq + 1
        if last is None and not left:
            yield Batch([], 0)
        while last is None or (left and start <= last):
            if last is None:
                still_wanted()
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


async def pending_of(js: JetStreamContext, stream: str, subject: str) -> int:
    """How many messages a new consumer would get from the beginning: so the server counts them."""
    info = await _ephemeral(js, stream, (subject,), 1, headers_only=True, new=False)
    with contextlib.suppress(*FAULTS):
        await js.delete_consumer(stream, info.name)
    return info.num_pending or 0


async def _ephemeral(
    js: JetStreamContext, stream: str, subjects: Sequence[str], start: int, *, headers_only: bool, new: bool
) -> ConsumerInfo:
    """A consumer whose name cannot be guessed, so that nobody else's rights reach it.

    A single filter stands in the request's subject, where the server's permissions see it.
    """
    wanted = list(subjects) or [">"]
    config = ConsumerConfig(
        name=f"reading-{secrets.token_hex(16)}",
        filter_subject=wanted[0] if len(wanted) == 1 else None,
        filter_subjects=wanted if len(wanted) > 1 else None,
        deliver_policy=DeliverPolicy.NEW if new else DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=None if new else start,
        ack_policy=AckPolicy.NONE,
        headers_only=headers_only or None,
        inactive_threshold=60.0,
        mem_storage=True,
        num_replicas=1,
    )
    if wanted != [">"]:
        return await js.add_consumer(stream, config)
    # The library leaves this filter out of the subject, and no user has a right to a consumer without one.
    answer = await js._api_request(
        f"$JS.API.CONSUMER.CREATE.{stream}.{config.name}.>",
        msgspec.json.encode({"stream_name": stream, "config": config.as_dict()}),
        timeout=js._timeout,
    )
    info: ConsumerInfo = ConsumerInfo.from_response(answer)
    return info


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


class Count(msgspec.Struct, frozen=True):
    """How many messages; where that is not `exact`, an estimate from a sample of the stream."""

    number: int
    exact: bool = True


async def next_message(js: JetStreamContext, stream: str, subject: str, sequence: int) -> Read | None:
    """The first message on this subject, which may have wildcards, at or behind a sequence."""
    if subject == ">" or not is_wide(subject):
        return await next_of_leader(js, stream, sequence, subject)
    info = await js.stream_info(stream)
    if not is_large(stream, info):
        return await next_of_leader(js, stream, sequence, subject)
    start = max(sequence, info.state.first_seq)
    for first, last in ((start, start + LOOKED - 1), (start + LOOKED, None)):
        reading = read_batches(js, stream, subjects=(subject,), start_sequence=first, last_sequence=last)
        async with contextlib.aclosing(reading):
            async for messages in reading:
                return messages[0]
    return None


async def count_messages(js: JetStreamContext, stream: str, subject: str) -> Count:
    """How many there are on this subject, which may have wildcards. In a large stream that is an estimate
    where they are many: counting them has everybody wait, or reads the stream."""
    info = await js.stream_info(stream)
    if subject == ">":
        return Count(info.state.messages)
    if is_large(stream, info):
        share = await share_of(js, stream, info, (subject,))
        if (about := share * info.state.messages) > direct.FEW:
            return Count(round(about), exact=False)
    return Count(await pending_of(js, stream, subject))
