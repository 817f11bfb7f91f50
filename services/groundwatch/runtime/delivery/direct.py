"""Messages of a stream without a consumer: making one costs everybody who publishes.

A new consumer has the server count what it will get while nothing can be stored: 0.35 to 0.5 s for a million
subjects that match its filter. The server then reads whatever lies between two messages that match at one go,
and nothing can be stored either: seconds for a million messages that it has only on disk. Getting a message
by its sequence costs nobody anything.

So where a large stream is asked for few subjects, it is first found out which part of it has them.

Messages are deleted one by one, too: a purge does less, and has everybody wait.

A purge leaves a message's bytes in the server's block files until the server happens to compact the block;
the deletion of a single message can overwrite them at once (nats-server 2.15.1, seen in its files). And a
purge up to a sequence goes through all subjects that the stream has, whether it removes 200 messages or
20,000, while nothing can be stored: 0.5 to 7 s for a million. A deletion takes 0.06 to 0.5 ms, and who
publishes waits 7 to 104 ms at the longest (2.15.1, a busy machine). In order that is 5,100 a second of one
stream and 7,600 of three together (two cores).
"""

import asyncio
import contextlib
import random
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg, StreamInfo

from groundwatch.runtime.services.tasks import until_set

MOST = 2_000
"""So many messages, at most, lie here unread or are on their way."""

MOST_BYTES = 16 * 1024 * 1024
"""Large events must not fill the memory: fewer of them are asked for."""

WAIT = 5.0
"""Seconds without a message after which the server is asked what is the matter."""

TRIES = 5
"""So often a message that is there is asked for again."""

NOT_FOUND, TOO_MANY, END = "404", "413", "204"
LEFT, UP_TO = "Nats-Num-Pending", "Nats-UpTo-Sequence"
"""Headers of a batch's end: how many messages of it did not come, and how far who answered had come."""

STREAM, SUBJECT, SEQUENCE, TIME = "Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"
ADDED = {STREAM, LEFT, "Nats-Last-Sequence"}
"""Headers that the server adds to a message that is got without a consumer."""

SAMPLES, TOGETHER = 500, 8
"""Messages that a share is estimated by, and of those asked for at once: for each the server reads a block of
the stream from disk, several megabytes."""


LARGE = 100_000
"""Messages from which on a stream is so large that a new consumer may have those who publish wait."""

FEW = 20_000
"""So many subjects of a large stream may match what the server is asked about: that takes up to 20 ms, and
40 ms for twice as many, which an estimate of a stream of millions may take for so few."""


ENDS, COMMON = 50, 0.1
"""Of so many messages at either end of what is wanted this share has subjects that are not few: then nothing
else is looked at."""

AT_ONCE, DELETE_SECONDS = 64, 30.0
"""So many messages are deleted at once, and so long each may take."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the stream holds it. `time` in seconds since the epoch.

    At most `pending` are still to come: in a large stream others may be among them that were not asked for.
    """

    subject: str
    data: bytes
    headers: dict[str, str]
    sequence: int
    time: float = 0.0
    pending: int = 0


def read_of(found: RawStreamMsg) -> Read:
    """A message that the leader gave."""
    return Read(
        subject=found.subject or "",
        data=found.data or b"",
        headers=dict(found.headers or {}),
        sequence=found.seq or 0,
        time=found.time.timestamp() if found.time is not None else 0.0,
    )


async def next_of_leader(js: JetStreamContext, stream: str, sequence: int, subject: str = ">") -> Read | None:
    """The first message from here on, deleted ones passed over; None where there is none. Where the subject
    has wildcards the server reads all in between."""
    try:
        return read_of(await js.get_msg(stream, sequence, subject=subject, next=True))
    except nats.js.errors.NotFoundError:
        return None


async def read_by_sequence(
    js: JetStreamContext,
    stream: str,
    start: int,
    last: int,
    *,
    headers_only: bool = False,
    most: Callable[[], int] = lambda: MOST,
    size: int = 0,
) -> AsyncGenerator[list[Read]]:
    """Every message from `start` to `last`, in order. `size` is about how many bytes one has.

    Any replica answers, and says that a message is not there also when it has not come as far, or could not
    read it at that moment. So the stream's leader is asked, which also tells where the next one is, and one
    that is there after all is asked for again. Raises what NATS raises.
    """
    client = js._nc
    inbox = client.new_inbox()
    arrived: dict[int, Msg] = {}
    news = asyncio.Event()

    async def arrive(message: Msg) -> None:
        arrived[int(message.subject.rpartition(".")[2])] = message
        news.set()

    subscription = await client.subscribe(f"{inbox}.*", cb=arrive)
    asked, doubted = start, 0
    try:
        while start <= last:
            room = max(1, min(MOST, most(), MOST_BYTES // (size + 1)))
            while asked <= min(last, start + room - 1):
                request = b'{"seq":%d}' % asked
                await client.publish(f"$JS.API.DIRECT.GET.{stream}", request, f"{inbox}.{asked}")
                asked += 1
            if start not in arrived:
                news.clear()
                await until_set(news, WAIT)
                if not news.is_set():
                    raise nats.errors.TimeoutError
                continue
            messages: list[Read] = []
            while (message := arrived.pop(start, None)) is not None:
                if _status(message) != NOT_FOUND:
                    messages.append(_read(message, last, headers_only))
                    start, doubted = start + 1, 0
                    continue
                there = min(last + 1, await _next_of_leader(js, stream, start))
                if there == start:
                    doubted += 1
                    if doubted > TRIES:
                        raise nats.errors.Error(f"message {start} of {stream} is there, and is not given out")
                    await client.publish(
                        f"$JS.API.DIRECT.GET.{stream}", b'{"seq":%d}' % start, f"{inbox}.{start}"
                    )
                    break
                start, doubted = there, 0
                asked = max(asked, start)
            if messages:
                yield messages
            for skipped in [sequence for sequence in arrived if sequence < start]:
                del arrived[skipped]
    finally:
        with contextlib.suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()


async def last_of_each_subject(
    js: JetStreamContext,
    stream: str,
    subjects: Sequence[str],
    last: int,
    *,
    headers_only: bool = False,
    replicas: int = 1,
) -> list[Read] | None:
    """The last message of each subject that these filters cover, in the order of their sequences.

    None where those are too many for one answer, or where it comes from one of the `replicas` that has not
    come as far as sequence `last`. Raises what NATS raises.
    """
    client = js._nc
    inbox = client.new_inbox()
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    subscription = await client.subscribe(inbox, cb=arrived.put)
    messages: list[Read] = []
    try:
        request = msgspec.json.encode({"multi_last": list(subjects)})
        await client.publish(f"$JS.API.DIRECT.GET.{stream}", request, inbox)
        while True:
            async with asyncio.timeout(js._timeout):
                message = await arrived.get()
            headers = message.headers or {}
            status = _status(message)
            if status == END:
                whole = int(headers.get(LEFT, 0)) == 0 and int(headers.get(UP_TO, 0)) >= last
                return messages if whole else None
            if status == TOO_MANY or (status == NOT_FOUND and replicas > 1):
                return None
            if status == NOT_FOUND:
                return []
            behind = int(headers.get(SEQUENCE, 0)) + int(headers.get(LEFT, 0))
            messages.append(_read(message, behind, headers_only))
    finally:
        with contextlib.suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()


async def subjects_at(js: JetStreamContext, stream: str, sequences: Sequence[int]) -> list[str]:
    """The subjects of what the stream has at these sequences."""
    subject, timeout = f"$JS.API.DIRECT.GET.{stream}", js._timeout
    answers: list[Msg] = []
    for at in range(0, len(sequences), TOGETHER):
        several = sequences[at : at + TOGETHER]
        answers += await asyncio.gather(
            *(js._nc.request(subject, b'{"seq":%d}' % sequence, timeout=timeout) for sequence in several)
        )
    return [answer.headers[SUBJECT] for answer in answers if answer.headers and SUBJECT in answer.headers]


async def _next_of_leader(js: JetStreamContext, stream: str, sequence: int) -> int:
    """The sequence of the first message from here on, and one too large for any where there is none."""
    found = await next_of_leader(js, stream, sequence)
    return found.sequence if found is not None else sys.maxsize


def _status(message: Msg) -> str:
    """What the server says in place of a message; a message may have a header of that name, too."""
    headers = message.headers or {}
    return "" if SEQUENCE in headers else headers.get("Status", "")


def _read(message: Msg, last: int, headers_only: bool) -> Read:
    """Raises `nats.errors.Error` for an answer that is no message."""
    headers = dict(message.headers or {})
    if SEQUENCE not in headers:
        raise nats.errors.Error(f"{headers.get('Status', '')} {headers.get('Description', '')}".strip())
    sequence = int(headers.pop(SEQUENCE))
    return Read(
        subject=headers.pop(SUBJECT),
        data=b"" if headers_only else message.data,
        sequence=sequence,
        time=datetime.fromisoformat(headers.pop(TIME)).timestamp(),
        headers={name: value for name, value in headers.items() if name not in ADDED},
        pending=last - sequence,
    )


async def overwrite(js: JetStreamContext, stream: str, sequences: Iterable[int]) -> int:
    """Delete messages with their bytes; how many were there. Raises what NATS raises."""
    rest, removed = iter(sequences), 0
    while several := list(islice(rest, AT_ONCE)):
        removed += sum(await asyncio.gather(*(_delete(js, stream, b'{"seq":%d}' % one) for one in several)))
    return removed


async def delete(js: JetStreamContext, stream: str, sequences: Iterable[int]) -> int:
    """Delete messages one after the other; their bytes go when the server gives up the block.

    In a cluster several at once may be done in any order, and who is killed in between would leave a hole
    behind the first message that is there: a reader of what has left the stream looks before that one alone.
    """
    removed = 0
    for one in sequences:
        removed += await _delete(js, stream, b'{"seq":%d,"no_erase":true}' % one)
    return removed


async def sequences_on(js: JetStreamContext, stream: str, subject: str) -> list[int]:
    """The sequences of all messages on a subject."""
    found, after = list[int](), 1
    while (message := await next_of_leader(js, stream, after, subject)) is not None:
        found.append(message.sequence)
        after = message.sequence + 1
    return found


async def _delete(js: JetStreamContext, stream: str, request: bytes) -> bool:
    try:
        # The client library's own call always has the bytes overwritten.
        answer = await js._api_request(f"$JS.API.STREAM.MSG.DELETE.{stream}", request, timeout=DELETE_SECONDS)
        return bool(answer["success"])
    except nats.js.errors.NotFoundError:
        return False
    except nats.js.errors.APIError as error:
        # "no message found": somebody else came first, or its age did.
        if error.err_code in (10037, 10043, 10057) or "no message found" in str(error.description):
            return False
        raise


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


is_wide = re.compile(r"(^|\.)(\*|>)(\.|$)").search
"""Whether a subject has wildcards."""


def pattern_of(subject: str) -> str:
    """What it covers, with or without wildcards, as a regular expression."""
    wild = {"*": "[^.]+", ">": ".+"}
    return r"\.".join(wild.get(token, re.escape(token)) for token in subject.split("."))


def matcher(subjects: Sequence[str]) -> Callable[[str], bool]:
    """Whether one of them covers a subject; without any, all do."""
    covering = re.compile("|".join(map(pattern_of, subjects or (">",))))
    return lambda subject: covering.fullmatch(subject) is not None


async def share_of(js: JetStreamContext, stream: str, info: StreamInfo, subjects: Sequence[str]) -> float:
    """About which share of the stream's messages has these subjects, by looking at one here and there."""
    state = info.state
    step = max(1, (state.last_seq - state.first_seq) // SAMPLES)
    starts = range(state.first_seq, state.last_seq + 1, step)
    # At random within each stretch: what comes at even distances is else seen too often or never.
    seen = await subjects_at(js, stream, [random.randrange(start, start + step) for start in starts])
    return sum(map(matcher(subjects), seen)) / max(1, len(seen))


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
