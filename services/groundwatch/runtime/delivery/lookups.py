"""Single messages of a stream by a filter, and how many there are, without anybody who publishes waiting.

In a large stream the server itself would look for them among all subjects that match, or read whatever lies
between two that do, and nothing could be stored meanwhile.
"""

import contextlib
import re

import msgspec
from nats.js import JetStreamContext

from groundwatch.runtime.delivery import large
from groundwatch.runtime.delivery.direct import next_of_leader
from groundwatch.runtime.delivery.large import is_large, part_of, share_of
from groundwatch.runtime.delivery.streams import Read, last_message, pending_of, read_batches

NEAR = 200
"""Messages that are looked at before anything else: mostly there is one among them."""

STEP = 20_000
"""Messages that are read at once where one is looked for from behind."""

_is_wide = re.compile(r"(^|\.)(\*|>)(\.|$)").search
"""Whether a subject has wildcards."""


class Count(msgspec.Struct, frozen=True):
    """How many messages; where that is not `exact`, an estimate from a sample of the stream."""

    number: int
    exact: bool = True


async def next_message(js: JetStreamContext, stream: str, subject: str, sequence: int) -> Read | None:
    """The first message on this subject, which may have wildcards, at or behind a sequence."""
    if subject == ">" or not _is_wide(subject):
        return await next_of_leader(js, stream, sequence, subject)
    info = await js.stream_info(stream)
    if not is_large(stream, info):
        return await next_of_leader(js, stream, sequence, subject)
    start = max(sequence, info.state.first_seq)
    for first, last in ((start, start + NEAR - 1), (start + NEAR, None)):
        reading = read_batches(js, stream, subjects=(subject,), start_sequence=first, last_sequence=last)
        async with contextlib.aclosing(reading):
            async for messages in reading:
                return messages[0]
    return None


async def newest_message(js: JetStreamContext, stream: str, subject: str) -> Read | None:
    """The last message on this subject, which may have wildcards."""
    if not _is_wide(subject):
        return await last_message(js, stream, subject)
    info = await js.stream_info(stream)
    # Of all subjects the server has none where the very last message was deleted.
    if subject != ">" and not is_large(stream, info):
        return await last_message(js, stream, subject)
    first, last = info.state.first_seq, info.state.last_seq
    if near := await _last_between(js, stream, subject, max(first, last - NEAR + 1), last):
        return near
    part = await part_of(js, stream, info, (subject,), first, last)
    if part.messages is not None:
        return part.messages[-1] if part.messages else None
    last, step = part.last, NEAR
    while last >= part.first:
        if found := await _last_between(js, stream, subject, max(part.first, last - step + 1), last):
            return found
        last, step = last - step, STEP
    return None


async def count_messages(js: JetStreamContext, stream: str, subject: str) -> Count:
    """How many there are on this subject, which may have wildcards. In a large stream that is an estimate
    where they are many: counting them has everybody wait, or reads the stream."""
    info = await js.stream_info(stream)
    if subject == ">":
        return Count(info.state.messages)
    if is_large(stream, info):
        share = await share_of(js, stream, info, (subject,))
        if (about := share * info.state.messages) > large.FEW:
            return Count(round(about), exact=False)
    return Count(await pending_of(js, stream, subject))


async def _last_between(
    js: JetStreamContext, stream: str, subject: str, first: int, last: int
) -> Read | None:
    found: Read | None = None
    reading = read_batches(js, stream, subjects=(subject,), start_sequence=first, last_sequence=last)
    async with contextlib.aclosing(reading):
        async for messages in reading:
            found = messages[-1]
    return found
