"""Messages of a stream without a consumer: making one costs everybody who publishes.

A new consumer has the server count what it will get while nothing can be stored: 0.35 to 0.5 s for a million
subjects that match its filter. The server then reads whatever lies between two messages that match at one go,
and nothing can be stored either: seconds for a million messages that it has only on disk. Getting a message
by its sequence costs nobody anything.
"""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg, StreamState

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


async def estimate_share(
    js: JetStreamContext, stream: str, state: StreamState, matches: Callable[[str], bool]
) -> float:
    """About which share of the stream's messages has such a subject, by looking at one here and there."""
    step = max(1, (state.last_seq - state.first_seq) // SAMPLES)
    starts = range(state.first_seq, state.last_seq + 1, step)
    # At random within each stretch: what comes at even distances is else seen too often or never.
    subjects = await subjects_at(js, stream, [random.randrange(start, start + step) for start in starts])
    return sum(map(matches, subjects)) / max(1, len(subjects))


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
