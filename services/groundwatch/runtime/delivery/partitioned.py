"""Reading the streams of partitions as one: of all where there are several, or of a single one."""

import contextlib
from asyncio import Queue, create_task, gather
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace
from nats.js import JetStreamContext

from groundwatch.runtime.delivery.history import Cold, History
from groundwatch.runtime.delivery.lookups import Count
from groundwatch.runtime.delivery.streams import MOST, RESUME_SECONDS, Batch, Read, position_of
from groundwatch.runtime.services.tasks import cancelled
from groundwatch.topology import ARCHIVED
from groundwatch.topology.partitions import kind_of, stream_in, stream_of, subjects_in

T = TypeVar("T")

AHEAD = 4
"""Items that are held until they are taken, of all generators together."""


class PartitionedHistory(History):
    """`RESPONSES` and the others of `ARCHIVED` mean the streams of these partitions here, each in its order.

    Sequences are those of one stream: who begins or ends at one reads a single partition, or
    `of_one_partition`.
    """

    def __init__(self, js: JetStreamContext, cold: Cold | None, partitions: range) -> None:
        super().__init__(js, cold)
        self._partitions = partitions

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    @property
    def partition(self) -> int:
        """The first, or the only one."""
        return self._partitions.start

    @property
    def of_one_partition(self) -> History:
        return History(self.js, self._cold)

    @property
    def hot(self) -> "PartitionedHistory":
        """The streams alone."""
        return PartitionedHistory(self.js, None, self._partitions)

    def name(self, stream: str) -> str:
        """Of the first partition's stream of a kind."""
        return stream_in(stream, self.partition) if stream in ARCHIVED else stream

    def _parts(
        self, stream: str, subjects: Sequence[str] = (), *, sequence: bool = False
    ) -> list[tuple[str, tuple[str, ...]]]:
        """The streams that have something of these subjects, with their filters.

        Raises `ValueError` for several where there is a `sequence` to begin or end with.
        """
        if stream not in ARCHIVED:
            return [(stream, tuple(subjects))]
        if sequence and len(self._partitions) > 1:
            raise ValueError(f"{stream}: a sequence is that of one partition's stream")
        parts = [(stream_in(stream, one), subjects_in(subjects, one)) for one in self._partitions]
        return [(name, filters) for name, filters in parts if filters or not subjects]

    async def batches(
        self,
        stream: str,
        *,
        subjects: Sequence[str] = (),
        headers_only: bool = False,
        start_sequence: int = 1,
        last_sequence: int | None = None,
        most: Callable[[], int] = lambda: MOST,
        timeout: float = RESUME_SECONDS,
    ) -> AsyncGenerator[list[Read]]:
        bounded = start_sequence > 1 or last_sequence is not None
        for name, filters in self._parts(stream, subjects, sequence=bounded):
            reading = super().batches(
                name,
                subjects=filters,
                headers_only=headers_only,
                start_sequence=start_sequence,
                last_sequence=last_sequence,
                most=most,
                timeout=timeout,
            )
            async with contextlib.aclosing(reading):
                async for several in reading:
                    yield several

    async def follow(
        self,
        stream: str,
        *,
        subjects: Sequence[str] = (),
        start_sequence: int = 1,
        on_fault: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[Batch]:
        one = super().follow
        several = [
            one(name, subjects=own, start_sequence=start_sequence, on_fault=on_fault)
            for name, own in self._parts(stream, subjects, sequence=start_sequence > 1)
        ]
        async with contextlib.aclosing(merged(several)) as following:
            async for batch in following:
                yield batch

    async def last(self, stream: str, subject: str) -> Read | None:
        """Of several partitions' last ones, that which came last."""
        one = super().last
        found = await gather(*(one(name, filters[0]) for name, filters in self._parts(stream, [subject])))
        return max(filter(None, found), key=lambda read: read.time, default=None)

    async def last_of_each(self, stream: str, subjects: Sequence[str]) -> list[Read | None]:
        kind = kind_of(stream)
        wanted: dict[str, list[str]] = {}
        for subject in subjects:
            wanted.setdefault(stream_of(kind, subject), []).append(subject)
        each = super().last_of_each
        found = await gather(*(each(name, several) for name, several in wanted.items()))
        by_subject = {
            subject: read
            for several, reads in zip(wanted.values(), found, strict=True)
            for subject, read in zip(several, reads, strict=True)
        }
        return [by_subject[subject] for subject in subjects]

    async def next(self, stream: str, subject: str, sequence: int) -> Read | None:
        """Of several partitions' first ones, that which came first; behind a sequence, of one only."""
        one = super().next
        # A subject without wildcards is of one partition.
        parts = self._parts(stream, [subject])
        parts = parts if len(parts) == 1 else self._parts(stream, [subject], sequence=sequence > 1)
        found = await gather(*(one(name, filters[0], sequence) for name, filters in parts))
        return min(filter(None, found), key=lambda read: read.time, default=None)

    async def first_sequence(self, stream: str) -> int:
        ((name, _),) = self._parts(stream, sequence=True)
        return await super().first_sequence(name)

    async def count(self, stream: str, subject: str) -> Count:
        one = super().count
        found = await gather(*(one(name, filters[0]) for name, filters in self._parts(stream, [subject])))
        return Count(sum(each.number for each in found), all(each.exact for each in found))


class JoinedHistory(PartitionedHistory):
    """The same with a stretch of each partition, one behind the other, whose sequences are counted through.

    `parts` are the first and the last sequence in each partition's stream; the last is below the first where
    there is nothing. So a position is one number, and stays right while the streams grow.
    """

    def __init__(self, history: History, parts: Sequence[tuple[int, int]]) -> None:
        super().__init__(history.js, history._cold, range(history.partitions))
        self._joined = parts

    async def batches(
        self,
        stream: str,
        *,
        subjects: Sequence[str] = (),
        headers_only: bool = False,
        start_sequence: int = 1,
        last_sequence: int | None = None,
        most: Callable[[], int] = lambda: MOST,
        timeout: float = RESUME_SECONDS,
    ) -> AsyncGenerator[list[Read]]:
        before = 0
        for partition, (first, last) in enumerate(self._joined):
            # What has the number n here has the number n + shift there.
            shift = first - 1 - before
            begin = max(first, start_sequence + shift)
            end = last if last_sequence is None else min(last, last_sequence + shift)
            before += max(0, last - first + 1)
            if begin > end:
                continue
            reading = self.of_one_partition.batches(
                stream_in(stream, partition),
                subjects=subjects_in(subjects, partition),
                headers_only=headers_only,
                start_sequence=begin,
                last_sequence=end,
                most=most,
                timeout=timeout,
            )
            async with contextlib.aclosing(reading):
                async for several in reading:
                    yield [replace(one, sequence=one.sequence - shift) for one in several]


def history_of(js: JetStreamContext, cold: Cold | None, partitions: int) -> History:
    """Of all partitions."""
    return PartitionedHistory(js, cold, range(partitions)) if partitions > 1 else History(js, cold)


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
