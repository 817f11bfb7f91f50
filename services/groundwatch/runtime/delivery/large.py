"""Which part of a large stream has messages of some subjects, without having those who publish wait."""

import re
from collections.abc import Callable, Sequence

import msgspec
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import StreamInfo

from groundwatch.runtime.delivery.direct import (
    Read,
    estimate_share,
    last_of_each_subject,
    next_of_leader,
    subjects_at,
)

LARGE = 100_000
"""Messages from which on a stream is so large that a new consumer may have those who publish wait."""

FEW = 20_000
"""So many subjects of a large stream may match what the server is asked about: that takes up to 20 ms, and
40 ms for twice as many, which an estimate of a stream of millions may take for so few."""


ENDS, COMMON = 50, 0.1
"""Of so many messages at either end of what is wanted this share has subjects that are not few: then nothing
else is looked at."""


class Part(msgspec.Struct, frozen=True):
    """All messages that are wanted lie between `first` and `last`; there is none where that is empty.

    Where `messages` is not None, those are all.
    """

    first: int
    last: int
    messages: tuple[Read, ...] | None = None


def is_large(stream: str, info: StreamInfo) -> bool:
    """Whether nobody may ask for a consumer with a filter. Objects' pieces are large: there one has to."""
    return bool(info.state.messages > LARGE and info.config.allow_direct and not stream.startswith("OBJ_"))


def counts_long(info: StreamInfo, start: int) -> bool:
    """Whether the server would count long for a consumer without a filter that begins there.

    It counts only when something was deleted and it is not to begin with the first message.
    """
    state = info.state
    whole = state.last_seq - state.first_seq + 1 == state.messages
    asked = state.messages > LARGE and info.config.allow_direct
    return bool(asked and not whole and state.first_seq < start)


def matcher(subjects: Sequence[str]) -> Callable[[str], bool]:
    """Whether one of them covers a subject; without any, all do."""
    patterns = (re.escape(one).replace(r"\*", r"[^.]+").replace(">", ".+") for one in subjects or (">",))
    covering = re.compile("|".join(patterns))
    return lambda subject: covering.fullmatch(subject) is not None


async def share_of(js: JetStreamContext, stream: str, info: StreamInfo, subjects: Sequence[str]) -> float:
    """About which share of the stream's messages has these subjects."""
    return await estimate_share(js, stream, info.state, matcher(subjects))


async def part_of(
    js: JetStreamContext,
    stream: str,
    info: StreamInfo,
    subjects: Sequence[str],
    first: int,
    last: int,
    *,
    headers_only: bool = False,
) -> Part:
    """The part between `first` and `last` that has these subjects. Raises what NATS raises."""
    if last - first < LARGE or not subjects or not is_large(stream, info):
        return Part(first, last)
    first = max(first, info.state.first_seq)
    ends = [*range(first, first + ENDS), *range(max(1, last - ENDS + 1), last + 1)]
    if sum(map(matcher(subjects), await subjects_at(js, stream, ends))) > len(ends) * COMMON:
        return Part(first, last)
    share = await share_of(js, stream, info, subjects)
    if share * info.state.messages > FEW:
        return Part(first, last)
    if not share and info.config.max_msgs_per_subject == 1:
        # Such as those of one response: they may lie far apart.
        messages = await last_of_each_subject(
            js, stream, subjects, last, headers_only=headers_only, replicas=info.config.num_replicas or 1
        )
        if messages is not None:
            return Part(first, last, tuple(one for one in messages if first <= one.sequence <= last))
    bounds = [await _bounds(js, stream, one) for one in subjects]
    there = [one for one in bounds if one is not None]
    first = max(first, min((one for one, _ in there), default=first))
    last = min(last, max((one for _, one in there), default=0))
    return Part(first, last, None if first <= last else ())


async def _bounds(js: JetStreamContext, stream: str, subject: str) -> tuple[int, int] | None:
    """The first and the last sequence on this subject, by the leader's index; None where there is none.

    The first one is asked for from the stream's beginning: from elsewhere the server reads all in between.
    """
    first = await next_of_leader(js, stream, 1, subject)
    try:
        last = await js.get_last_msg(stream, subject)
    except nats.js.errors.NotFoundError:
        return None
    return (first.sequence, last.seq or 0) if first is not None else None
