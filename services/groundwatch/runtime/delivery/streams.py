"""Reading a stream from end to end, without a durable consumer; across reconnects and server restarts."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from groundwatch.errors import TransientError
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import STREAMS

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

BATCH = 2_000
PATIENCE = 5.0
"""Seconds to wait for what is there, and for what is new before looking whether the consumer still is."""

PAUSE = 0.5
RESUME_SECONDS = 30.0
"""How long a reading goes on trying after its last message."""

FAULTS = (nats.errors.Error, OSError, TimeoutError)


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

    Goes on behind the last message read when the server restarts. Raises `nats.js.errors.NotFoundError`
    when the stream does not exist, `TransientError` when the server stays away.
    """
    state = (await js.stream_info(stream)).state
    last = min(state.last_seq, last_sequence) if last_sequence is not None else state.last_seq
    position = max(start_sequence, 1)
    progress = time.monotonic()
    while state.messages and position <= last:
        try:
            reading = _consume(js, stream, subjects, headers_only, position, follow=False)
            async with contextlib.aclosing(reading):
                async for read in reading:
                    if read.sequence > last:
                        return
                    yield read
                    position, progress = read.sequence + 1, time.monotonic()
            return
        except FAULTS as error:
            if time.monotonic() - progress > RESUME_SECONDS:
                raise TransientError(f"reading {stream} broke off: {error!r}") from error
            await _until_there(js, stream, progress + RESUME_SECONDS)


async def follow_stream(
    js: JetStreamContext, stream: str, *, subjects: Sequence[str] = (), start_sequence: int = 1
) -> AsyncIterator[Read]:
    """Every message from `start_sequence` on, and then the new ones as they come, without end.

    Goes on behind the last message read however long the server is away. Raises
    `nats.js.errors.NotFoundError` when the stream does not exist.
    """
    await js.stream_info(stream)
    position = max(start_sequence, 1)
    while True:
        try:
            reading = _consume(js, stream, subjects, False, position, follow=True)
            async with contextlib.aclosing(reading):
                async for read in reading:
                    yield read
                    position = read.sequence + 1
        except FAULTS as error:
            logger.debug("stream.reading_again", stream=stream, error=repr(error))
        await _until_there(js, stream, None)


async def _until_there(js: JetStreamContext, stream: str, deadline: float | None) -> None:
    """Wait until the server answers for the stream, at most until `deadline` of the monotonic clock.

    A server that has just started answers before it has opened its streams, so "not found" is believed
    only for good.
    """
    absent = 0
    while deadline is None or time.monotonic() < deadline:
        await asyncio.sleep(PAUSE)
        try:
            await js.stream_info(stream)
            return
        except nats.js.errors.NotFoundError:
            absent += 1
            if absent * PAUSE >= PATIENCE:
                raise
        except FAULTS:
            continue


async def _consume(
    js: JetStreamContext,
    stream: str,
    subjects: Sequence[str],
    headers_only: bool,
    start: int,
    *,
    follow: bool,
) -> AsyncGenerator[Read]:
    """Read through an ephemeral consumer, which the server forgets by itself, without a gap.

    Its name cannot be guessed, so nobody else's rights reach it, and a single filter stands in the request's
    subject, where the server's permissions see it.

    Ends when all is read, unless it follows; raises what NATS raises.
    """
    wanted = list(subjects) or _everything(stream)
    info = await js.add_consumer(
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
    left = info.num_pending or 0
    delivered = 0
    subscription = await js.pull_subscribe_bind(consumer=info.name, stream=stream)
    try:
        while left > 0 or follow:
            try:
                messages = await subscription.fetch(min(BATCH, max(left, 1)), timeout=PATIENCE)
            except nats.errors.TimeoutError:
                # What was pending can have been deleted meanwhile, and the consumer with it.
                now = await js.consumer_info(stream, info.name)
                if (now.delivered.consumer_seq if now.delivered else 0) != delivered:
                    raise
                left = now.num_pending or 0
                continue
            for message in messages:
                read, number = _read(message)
                if number != delivered + 1:
                    raise nats.errors.Error(f"gap in {stream} before {read.sequence}")
                delivered, left = number, read.pending
                yield read
    finally:
        with contextlib.suppress(*FAULTS):
            await subscription.unsubscribe()
            await js.delete_consumer(stream, info.name)


def _everything(name: str) -> list[str]:
    """All subjects of a stream of ours."""
    return next((list(spec.subjects) for spec in STREAMS if spec.name == name), [])


def _read(message: Msg) -> tuple[Read, int]:
    """The message, and its number among all that its consumer was given."""
    # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>
    tokens = message.reply.split(".")
    first = 2 if len(tokens) == 9 else 4
    read = Read(
        subject=message.subject,
        data=message.data,
        headers=message.headers or {},
        sequence=int(tokens[first + 3]),
        time=int(tokens[first + 5]) / 1e9,
        pending=int(tokens[first + 6]),
    )
    return read, int(tokens[first + 4])
