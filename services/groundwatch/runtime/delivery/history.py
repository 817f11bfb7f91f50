"""Recorded events, whether a stream still holds them (hot) or the archive alone does (cold).

What leaves a stream is in the archive first. So of a stream that begins at sequence n, everything below n is
read from the archive, as it is after the stream was asked, and everything else from the stream. While the
stream is read it is asked again for every batch: where it begins later by then, what it gave may have a gap,
and reading goes on in the archive from there.

A stream that was made anew counts from 1 again. Its sequences are not those of the old one, and only the
present one's events have a place in what is read.

Of several partitions the streams of a kind are read as one, each in its order.
"""

import contextlib
import time
from asyncio import Queue, create_task, gather
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Protocol, TypeVar, Unpack

import msgspec
from nats.js import JetStreamContext

from groundwatch.errors import TransientError, words
from groundwatch.events import REPLACEABLE
from groundwatch.runtime.delivery.streams import (
    FAULTS,
    RESUME_SECONDS,
    Batch,
    Count,
    Mark,
    Position,
    Read,
    Reading,
    count_messages,
    follow_stream,
    last_message,
    next_message,
    one_by_one,
    position_of,
    read_batches,
    until_there,
)
from groundwatch.runtime.services.tasks import cancelled
from groundwatch.runtime.stores.repeats import IdFile
from groundwatch.topology import ARCHIVED, HEADER_REASON, OUTCOMES
from groundwatch.topology.partitions import kind_of, stream_in, stream_of, subjects_in

T = TypeVar("T")

AHEAD = 4
"""Items that are held until they are taken, of all generators together."""

ONE = range(1)


class LostFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the archive should have and has not, or that is damaged: it held events of this stream that
    were stored on this day, of the sequences `first` to `last`, of which other files may have others."""

    path: str
    stream: str
    day: date
    first: int
    last: int


class Cold(Protocol):
    """The archive's part of a stream, which `created` (µs since the epoch) tells from others of its name.

    `subjects` are filters as a stream takes them, with wildcards; none means all. Sequences are `first` to
    `last`, both included. Everything raises `TransientError` when the archive does not answer,
    `MissingExtraError` without what reading it takes.
    """

    def read(
        self,
        stream: str,
        created: int,
        *,
        subjects: Sequence[str],
        first: int,
        last: int,
        headers_only: bool = False,
    ) -> AsyncGenerator[list[Read]]:
        """The events in the order of their sequences."""
        ...

    async def last_of_each(
        self, stream: str, created: int, subjects: Sequence[str], last: int
    ) -> dict[str, Read]:
        """The last event, up to sequence `last`, of each of these subjects that has one."""
        ...

    async def count(
        self, stream: str, created: int, *, subjects: Sequence[str], first: int, last: int
    ) -> int:
        """How many events that are."""
        ...

    async def newest(self, stream: str, created: int) -> Mark | None:
        """The last event that was archived."""
        ...

    async def id_files(self, streams: Mapping[str, Position]) -> dict[str, list[IdFile]] | None:
        """Files with what was recorded in these streams in the last days that ids are known for; None where
        the archive cannot be read from here: it lies on another machine, or packages lack."""
        ...

    async def read_ids(self, stream: str, created: int, file: IdFile, until: int) -> bytes:
        """The ids of live traffic in a file, up to a sequence, as `stores.repeats` has them. Raises
        `FileNotFoundError` for one that is there no more."""
        ...

    async def lost_files(self) -> list[LostFile]:
        """Files of the archive that are lost or damaged: all of them are read whole."""
        ...

    def without_lost(self, on_lost: Callable[[LostFile], None]) -> "Cold":
        """The same, without what was in files that are lost, each of which `on_lost` is told once."""
        ...


class History:
    """Events of one server's streams, and of their archive where there is one.

    `RESPONSES` and the others of `ARCHIVED` mean the streams of these `partitions` here, each in its order.
    Sequences are those of one stream: who begins or ends at one reads a single partition, or
    `of_one_partition`.
    """

    def __init__(self, js: JetStreamContext, cold: Cold | None = None, partitions: range = ONE) -> None:
        self.js = js
        self._cold = cold
        self._partitions = partitions

    @property
    def partitions(self) -> int:
        """How many streams a name of `ARCHIVED` means."""
        return len(self._partitions)

    @property
    def partition(self) -> int:
        """The first, or the only one."""
        return self._partitions.start

    @property
    def of_one_partition(self) -> "History":
        """The same where each name of a stream is that of one partition's."""
        return History(self.js, self._cold)

    @property
    def hot(self) -> "History":
        """The streams alone."""
        return History(self.js, None, self._partitions)

    def name(self, stream: str) -> str:
        """Of the first partition's stream of a kind."""
        return stream_in(stream, self.partition) if stream in ARCHIVED else stream

    def _parts(
        self, stream: str, subjects: Sequence[str] = (), *, sequence: bool = False
    ) -> list[tuple[str, Sequence[str]]]:
        """The streams that have something of these subjects, with their filters.

        Raises `ValueError` for several where there is a `sequence` to begin or end with.
        """
        if self._partitions == ONE or stream not in ARCHIVED:
            return [(stream, subjects)]
        if sequence and len(self._partitions) > 1:
            raise ValueError(f"{stream}: a sequence is that of one partition's stream")
        parts = [(stream_in(stream, one), subjects_in(subjects, one)) for one in self._partitions]
        return [(name, filters) for name, filters in parts if filters or not subjects]

    def read(self, stream: str, **reading: Unpack[Reading]) -> AsyncGenerator[Read]:
        """`batches`, event by event."""
        return one_by_one(self.batches(stream, **reading))

    async def batches(self, stream: str, **reading: Unpack[Reading]) -> AsyncGenerator[list[Read]]:
        """Every event from `start_sequence` up to what is recorded now (or `last_sequence`), in order: each
        once, however much of it leaves the stream meanwhile. Errors are those of `read_batches`."""
        bounded = reading.get("start_sequence", 1) > 1 or reading.get("last_sequence") is not None
        for name, filters in self._parts(stream, reading.get("subjects", ()), sequence=bounded):
            own: Reading = {**reading, "subjects": filters}
            async with contextlib.aclosing(self._batches(name, **own)) as part:
                async for several in part:
                    yield several

    async def _batches(self, stream: str, **reading: Unpack[Reading]) -> AsyncGenerator[list[Read]]:
        """Of one stream."""
        if self._cold is None:
            async with contextlib.aclosing(read_batches(self.js, stream, **reading)) as alone:
                async for several in alone:
                    yield several
            return
        timeout = reading.get("timeout", RESUME_SECONDS)
        held = begun = await self._position(stream)
        wanted = reading.get("last_sequence")
        last = held.last if wanted is None else min(held.last, wanted)
        position = max(reading.get("start_sequence", 1), 1)
        while position <= last:
            if position < held.first:
                until = min(last, held.first - 1)
                cold = self._cold.read(
                    stream,
                    held.created,
                    subjects=reading.get("subjects", ()),
                    first=position,
                    last=until,
                    headers_only=reading.get("headers_only", False),
                )
                async with contextlib.aclosing(cold):
                    async for several in cold:
                        if standing := await self._standing(stream, held, several):
                            yield standing
                position = until + 1
                continue
            bounds: Reading = {**reading, "start_sequence": position, "last_sequence": last}
            async with contextlib.aclosing(read_batches(self.js, stream, **bounds)) as hot:
                async for several in hot:
                    held = await self._position(stream, begun, timeout)
                    if held.first > position:
                        # What came may lack what has just left.
                        break
                    yield several
                    position = several[-1].sequence + 1
                else:
                    held = await self._position(stream, begun, timeout)
                    if held.first <= position:
                        return

    async def follow(
        self,
        stream: str,
        *,
        subjects: Sequence[str] = (),
        start_sequence: int = 1,
        on_fault: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[Batch]:
        """`follow_stream`, from what has left the stream on. Until it has come to the end for the first time,
        nothing is missed that leaves meanwhile."""
        several = [
            self._follow(name, filters, start_sequence, on_fault)
            for name, filters in self._parts(stream, subjects, sequence=start_sequence > 1)
        ]
        async with contextlib.aclosing(merged(several)) as following:
            async for batch in following:
                yield batch

    async def _follow(
        self,
        stream: str,
        subjects: Sequence[str],
        start_sequence: int,
        on_fault: Callable[[str], None] | None,
    ) -> AsyncGenerator[Batch]:
        """One stream."""
        position = max(start_sequence, 1)
        behind = self._cold is not None
        while True:
            held = await self._position(stream) if behind else None
            if held is not None and position < held.first and position <= held.last:
                reading = self._batches(
                    stream, subjects=subjects, start_sequence=position, last_sequence=held.first - 1
                )
                async with contextlib.aclosing(reading):
                    async for several in reading:
                        # That there is no more is for the stream to say.
                        yield Batch(several, held.last + 1 - several[-1].sequence)
                position = held.first
                continue
            following = follow_stream(
                self.js, stream, subjects=subjects, start_sequence=position, on_fault=on_fault
            )
            async with contextlib.aclosing(following):
                async for batch in following:
                    if behind and (await self._position(stream)).first > position:
                        # What came may lack what has just left.
                        break
                    if batch.messages:
                        position = batch.messages[-1].sequence + 1
                    behind = behind and batch.pending > 0
                    yield batch
                else:
                    return

    async def last(self, stream: str, subject: str) -> Read | None:
        """The last event on this subject; None where there is none."""
        return (await self.last_of_each(stream, [subject]))[0]

    async def last_of_each(self, stream: str, subjects: Sequence[str]) -> list[Read | None]:
        """The last event on each of these subjects, together: in the archive they are looked for at once."""
        wanted: dict[str, list[str]] = {}
        for subject in subjects:
            wanted.setdefault(stream_of(kind_of(stream), subject), []).append(subject)
        found: dict[str, Read] = {}
        for each in await gather(*(self._last_of_each(name, several) for name, several in wanted.items())):
            found.update(each)
        return [found.get(subject) for subject in subjects]

    async def _last_of_each(self, stream: str, subjects: Sequence[str]) -> dict[str, Read]:
        """Of one stream."""
        found = await gather(*(last_message(self.js, stream, subject) for subject in subjects))
        hot = {subject: one for subject, one in zip(subjects, found, strict=True) if one is not None}
        missing = [subject for subject in subjects if subject not in hot]
        if not missing or self._cold is None:
            return hot
        return hot | await self._cold_last(stream, missing)

    async def next(self, stream: str, subject: str, sequence: int) -> Read | None:
        """The first event on this subject, which may have wildcards, at or behind a sequence. Of several
        partitions' first ones, that which came first; behind a sequence, of one only."""
        # A subject without wildcards is of one partition.
        parts = self._parts(stream, [subject])
        parts = parts if len(parts) == 1 else self._parts(stream, [subject], sequence=sequence > 1)
        found = await gather(*(self._next(name, filters[0], sequence) for name, filters in parts))
        return min(filter(None, found), key=lambda read: read.time, default=None)

    async def _next(self, stream: str, subject: str, sequence: int) -> Read | None:
        """Of one stream."""
        if self._cold is None:
            return await next_message(self.js, stream, subject, sequence)
        while True:
            held = await self._position(stream)
            if sequence < held.first:
                reading = self._cold.read(
                    stream, held.created, subjects=(subject,), first=sequence, last=held.first - 1
                )
                async with contextlib.aclosing(reading):
                    async for several in reading:
                        if standing := await self._standing(stream, held, several):
                            return standing[0]
                sequence = held.first
            found = await next_message(self.js, stream, subject, sequence)
            if (await self._position(stream)).first <= sequence:
                return found

    async def count(self, stream: str, subject: str) -> Count:
        """How many events there are on this subject, which may have wildcards: see `count_messages`.

        Of outcomes that were replaced when they were cold already, both are counted.
        """
        found = await gather(
            *(self._count(name, filters[0]) for name, filters in self._parts(stream, [subject]))
        )
        return Count(sum(each.number for each in found), all(each.exact for each in found))

    async def _count(self, stream: str, subject: str) -> Count:
        """Of one stream."""
        while True:
            held = await self._position(stream)
            hot = await count_messages(self.js, stream, subject)
            if self._cold is None or held.first <= 1:
                return hot
            cold = await self._cold.count(
                stream, held.created, subjects=(subject,), first=1, last=held.first - 1
            )
            if (await self._position(stream)).first == held.first:
                return Count(hot.number + cold, hot.exact)

    async def first_sequence(self, stream: str) -> int:
        """The sequence of the oldest event of one stream; one behind the newest where there is none."""
        ((name, _),) = self._parts(stream, sequence=True)
        oldest = await self._next(name, ">", 1)
        return oldest.sequence if oldest is not None else (await position_of(self.js, name)).last + 1

    async def _cold_last(self, stream: str, subjects: Sequence[str]) -> dict[str, Read]:
        """Of subjects on which the stream held nothing a moment ago."""
        assert self._cold is not None
        held = await self._position(stream)
        if held.first <= 1:
            return {}
        return await self._cold.last_of_each(stream, held.created, subjects, held.first - 1)

    async def _standing(self, stream: str, held: Position, several: list[Read]) -> list[Read]:
        """Without outcomes that stood for a dead letter and were replaced when they had left the stream: of
        those, nobody but the reader can tell."""
        if kind_of(stream) != OUTCOMES:
            return several
        stood = {one.subject for one in several if one.headers.get(HEADER_REASON) in REPLACEABLE}
        if not stood:
            return several
        newest = await self._last_of_each(stream, list(stood))
        return [
            one
            for one in several
            if one.subject not in newest or one.sequence >= newest[one.subject].sequence
        ]

    async def _position(self, stream: str, begun: Position | None = None, timeout: float = 0.0) -> Position:
        """What the stream holds now, where it is the one that was begun with.

        Raises `TransientError` for another one, and when the server stays away for `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                now = await position_of(self.js, stream)
            except FAULTS as error:
                if begun is None:
                    raise
                if time.monotonic() >= deadline:
                    raise TransientError(f"reading {stream} broke off: {words(error)}") from error
                await until_there(self.js, stream, deadline)
                continue
            if begun is not None and now.created != begun.created:
                raise TransientError(f"{stream} was made anew while it was read: begin again")
            return now


class JoinedHistory(History):
    """The same with a stretch of each partition, one behind the other, whose sequences are counted through.

    `parts` are the first and the last sequence in each partition's stream; the last is below the first where
    there is nothing. So a position is one number, and stays right while the streams grow.
    """

    def __init__(self, history: History, parts: Sequence[tuple[int, int]]) -> None:
        super().__init__(history.js, history._cold, history._partitions)
        self._joined = parts

    async def batches(self, stream: str, **reading: Unpack[Reading]) -> AsyncGenerator[list[Read]]:
        last_sequence = reading.get("last_sequence")
        before = 0
        for partition, (first, last) in enumerate(self._joined):
            # What has the number n here has the number n + shift there.
            shift = first - 1 - before
            begin = max(first, reading.get("start_sequence", 1) + shift)
            end = last if last_sequence is None else min(last, last_sequence + shift)
            before += max(0, last - first + 1)
            if begin > end:
                continue
            filters = subjects_in(reading.get("subjects", ()), partition)
            bounds: Reading = {
                **reading,
                "subjects": filters,
                "start_sequence": begin,
                "last_sequence": end,
            }
            async with contextlib.aclosing(self._batches(stream_in(stream, partition), **bounds)) as part:
                async for several in part:
                    yield [msgspec.structs.replace(one, sequence=one.sequence - shift) for one in several]


async def last_before(history: History, stream: str, moment: float) -> int:
    """The sequence of the last message that a stream took before a moment, or of one gone before; 0 where
    there is none. Raises what NATS and the archive raise."""
    held = await position_of(history.js, stream)
    first = await first_since(
        partial(History(history.js).next, stream, ">"), moment, held.first, held.last + 1
    )
    if 1 < first == held.first:
        # It may have left the stream.
        first = await first_since(partial(history.next, stream, ">"), moment, 1, held.first)
    return first - 1


async def first_since(
    look: Callable[[int], Awaitable[Read | None]], moment: float, low: int, high: int
) -> int:
    """The first sequence from `low` on of what came at a moment or later; `high` where there is none. `look`
    gives the first message from a sequence on."""
    while low < high:
        middle = (low + high) // 2
        found = await look(middle)
        if found is None or found.time >= moment:
            high = middle
        else:
            low = found.sequence + 1
    return low


async def merged(generators: Sequence[AsyncGenerator[T]]) -> AsyncGenerator[T]:
    """What several generators give, as it comes, until one of them ends. Raises what one of them raises."""
    if len(generators) == 1:
        async with contextlib.aclosing(generators[0]) as alone:
            async for item in alone:
                yield item
        return
    queue: Queue[list[T] | BaseException | None] = Queue(AHEAD)

    async def take(generator: AsyncGenerator[T]) -> None:
        try:
            async with contextlib.aclosing(generator) as items:
                async for item in items:
                    await queue.put([item])
        except Exception as error:
            await queue.put(error)
        else:
            await queue.put(None)

    tasks = [create_task(take(one)) for one in generators]
    try:
        while (taken := await queue.get()) is not None:
            if isinstance(taken, BaseException):
                raise taken
            yield taken[0]
    finally:
        await cancelled(tasks)
