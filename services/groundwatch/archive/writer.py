"""Writing one stream into one table, in order and once.

How far it has come stands in the table itself, changed in the same moment as its rows: there is nothing to
acknowledge that could be acknowledged too early or too late. While the table cannot be written, nothing more
is read, and the stream keeps what waits.

A NATS server that lost its latest messages, or was restored from a backup, gives their sequences to others.
Those would pass for archived, and would leave their stream unread. And a stream that was restored through the
server's API counts as made then: it is known again by its messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from groundwatch.addresses import shown_address
from groundwatch.errors import UNDECODED, TransientError, words
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import (
    FAULTS,
    LABEL,
    Mark,
    Position,
    Read,
    follow_stream,
    has_gone_back,
    is_same,
    label,
    position_of,
)
from groundwatch.runtime.services.tasks import until_set
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from groundwatch.archive.events import Events
    from groundwatch.archive.table import ArchiveTable, Row

R = TypeVar("R", bound="Row")

MAX_BYTES = 20 * 1024 * 1024
"""Events of all streams that are held in memory before they are written, however few."""

AHEAD_BYTES = 2 * 1024 * 1024
"""What is on its way from each stream beside."""

OVERHEAD = 1_024
"""Bytes that a message takes in memory beside its own."""

LONGEST_PAUSE = 30.0
"""Seconds between two attempts to write: the disk may have room again at any time."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Memory:
    """What all writers hold together: who would read more than there is room for waits."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._held: dict[object, int] = {}
        self._waiting = 0
        self._room = asyncio.Event()
        self._wanted: dict[object, asyncio.Event] = {}

    def join(self, who: object) -> asyncio.Event:
        """An event that is set when somebody waits for room."""
        return self._wanted.setdefault(who, asyncio.Event())

    async def take(self, who: object, size: int) -> None:
        """Hold so many bytes more, as soon as there is room; one message finds room in any case."""
        while self._held and sum(self._held.values()) + size > self._most:
            self._waiting += 1
            self._room.clear()
            for event in self._wanted.values():
                event.set()
            try:
                await self._room.wait()
            finally:
                self._waiting -= 1
        self._held[who] = self._held.get(who, 0) + size

    def free(self, who: object, size: int | None = None) -> None:
        """Hold so much less, or nothing more."""
        left = self._held.pop(who, 0) - size if size is not None else 0
        self._held.pop(who, None)
        if left > 0:
            self._held[who] = left
        self._room.set()

    def is_wanted_of(self, who: object) -> bool:
        """Whether somebody waits for room, and this one holds the most."""
        return self._waiting > 0 and self._held.get(who, 0) == max(self._held.values(), default=0)


class Held(msgspec.Struct, Generic[R]):
    """What was read and is not written yet. `position` is that of the last message, readable or not."""

    rows: list[R] = []
    bytes: int = 0
    position: int = 0
    since: float = 0.0


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What all writers have in common. `turn` lets one write at a time, `known` says where a stream stands,
    once it is known which one it is."""

    bus: Bus
    settings: Settings
    metrics: Metrics
    memory: Memory
    turn: asyncio.Lock
    draining: asyncio.Event
    known: Callable[[str], Awaitable[Position]]


class Writer(Generic[R]):
    """Writes the messages of `stream`, as `row_of` makes rows of them, into the table that `opened` gives."""

    def __init__(
        self,
        stream: str,
        shared: Shared,
        *,
        opened: Callable[[], ArchiveTable[R]],
        row_of: Callable[[Read, int], R],
        before: Callable[[Sequence[R]], Awaitable[None]] | None = None,
    ) -> None:
        """`before` is done with rows before they are written; what they raise is tried again."""
        self.stream = stream
        self.created = 0
        """Of which stream of that name, 0 where that is not known."""
        self.position = 0
        self.held = 0
        self.problem = ""
        self._shared = shared
        self._opened = opened
        self._row_of = row_of
        self._before = before
        self._news = shared.memory.join(self)
        self._arrived: deque[Read] = deque()
        self._table: ArchiveTable[R] | None = None

    async def run(self) -> None:
        """Read from where the table ends; begin anew when the stream turns out to be another one."""
        attempt = 0
        while not self._shared.draining.is_set():
            try:
                await self._follow()
                attempt = 0
            except Exception as error:
                attempt += 1
                await self._failed(error, attempt)

    async def _follow(self) -> None:
        at = await position_of(self._shared.bus.js, self.stream)
        if at.last == 0 and self._table is None:
            # Nothing to write yet: what writing needs takes a second to load, and memory.
            self.problem = ""
            await until_set(self._shared.draining, 1.0)
            return
        at = await self._shared.known(self.stream)
        async with self._shared.turn:
            table = self._table = await asyncio.to_thread(self._opened)
            state = await asyncio.to_thread(table.begin)
        self.problem, self.position = "", state.position(at.created, self.stream)
        if at.first > self.position + 1 and at.last > self.position and self.position:
            logger.warning(
                "archive.gap",
                stream=self.stream,
                archived_to=self.position,
                stream_begins_at=at.first,
                meaning="events between were erased, replaced, or cut by retention too early",
            )
        self.created = at.created
        reader = asyncio.create_task(self._read(self.position + 1))
        try:
            await self._write(table, at, reader)
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await reader
            self._arrived.clear()
            self._shared.memory.free(self)

    async def _read(self, start: int) -> None:
        following = follow_stream(
            self._shared.bus.js, self.stream, start_sequence=start, most_bytes=AHEAD_BYTES
        )
        try:
            async with contextlib.aclosing(following):
                async for batch in following:
                    for read in batch.messages:
                        await self._shared.memory.take(self, _size(read))
                        self._arrived.append(read)
                        self._news.set()
        finally:
            self._news.set()

    async def _write(self, table: ArchiveTable[R], at: Position, reader: asyncio.Task[None]) -> None:
        """Gather and write until the service drains, the reading ends or the stream is another one."""
        held: Held[R] = Held(rows=[])
        limits = self._shared.settings.archive
        while self.created == at.created:
            self._news.clear()
            if self._shared.draining.is_set():
                reader.cancel()
            ending = self._shared.draining.is_set() or reader.done()
            while self._arrived and len(held.rows) < limits.flush_rows:
                self._take(held, self._arrived.popleft(), at)
            self.held = len(held.rows)
            full = len(held.rows) >= limits.flush_rows or self._shared.memory.is_wanted_of(self)
            late = time.monotonic() - held.since >= limits.flush_seconds
            if held.position and (full or late or ending):
                if not await self._flush(table, held, at):
                    return
                self._shared.memory.free(self, held.bytes)
                held = Held(rows=[])
                self.held = 0
            elif ending:
                if reader.done() and not self._shared.draining.is_set():
                    await reader
                return
            else:
                left = held.since + limits.flush_seconds - time.monotonic() if held.position else 1.0
                await until_set(self._news, min(max(left, 0.0), 1.0))

    def _take(self, held: Held[R], read: Read, at: Position) -> None:
        held.since = held.since or time.monotonic()
        held.position = read.sequence
        held.bytes += _size(read)
        try:
            held.rows.append(self._row_of(read, at.created))
        except UNDECODED as error:
            self._shared.metrics.archive_unreadable.labels("undecodable").inc()
            logger.error(
                "archive.undecodable", subject=read.subject, sequence=read.sequence, error=str(error)
            )

    async def _flush(self, table: ArchiveTable[R], held: Held[R], at: Position) -> bool:
        """Write, trying again for as long as it takes; False when the stream is another one by now."""
        attempt = 0
        while True:
            try:
                if (await position_of(self._shared.bus.js, self.stream)).created != at.created:
                    return False
                if self._before is not None:
                    await self._before(held.rows)
                async with self._shared.turn:
                    added = await asyncio.to_thread(
                        table.add,
                        held.rows,
                        created=at.created,
                        position=held.position,
                        stream=self.stream,
                    )
                break
            except Exception as error:
                attempt += 1
                await self._failed(error, attempt)
                if self._shared.draining.is_set():
                    return False
        if self.problem:
            logger.info("archive.writes_again", stream=self.stream)
        self.problem, self.position = "", held.position
        for sequence in added.unreadable:
            self._shared.metrics.archive_unreadable.labels("unfit").inc()
            logger.error("archive.unfit", stream=self.stream, sequence=sequence)
        for kind, number in added.counts.items():
            self._shared.metrics.archive_rows.labels(kind).inc(number)
        return True

    async def _failed(self, error: Exception, attempt: int) -> None:
        """Tell why, and wait until it is time for another attempt."""
        reason = reason_of(error)
        self._shared.metrics.archive_failures.labels(reason).inc()
        told = " ".join((words(error)).split())
        url = self._table.url if self._table is not None else shown_address(self._shared.settings.archive.url)
        self.problem = f"cannot write to {url}: {told}"
        logger.error("archive.failed", reason=reason, url=url, stream=self.stream, error=told)
        await until_set(self._shared.draining, min(LONGEST_PAUSE, self._shared.settings.retry.delay(attempt)))


def reason_of(error: Exception) -> str:
    return "disk_full" if isinstance(error, OSError) and error.errno in FULL else "other"


def _size(read: Read) -> int:
    return len(read.data) + OVERHEAD


COMPARED = 20
"""Messages that are looked at, at the most, to tell whether a stream is one that was archived."""


class Continuity:
    """Knows streams again, and compares the last message that was archived of each with what it has there."""

    def __init__(self, bus: Bus, events: Callable[[], Events]) -> None:
        self._bus = bus
        self._events = events
        self._last: dict[tuple[str, int], Mark] = {}
        self._turn = asyncio.Lock()

    async def position(self, stream: str) -> Position:
        """Where a stream stands that is labelled, or is labelled now. Raises `TransientError` where nobody
        can tell which one it is, and what NATS and the archive raise."""
        async with self._turn:
            at = await position_of(self._bus.js, stream)
            if at.labelled:
                return at
            created = await self._creation(stream, at)
            try:
                await label(self._bus.js, stream, created)
            except FAULTS as error:
                why = (
                    f"cannot label {stream} with when it was created ({LABEL}={created}): {words(error)}. "
                    "With users of NATS, run groundwatch admin auth of this version"
                )
                if created != at.made:
                    raise TransientError(why) from error
                logger.warning("archive.not_labelled", stream=stream, meaning=why)
                return at
            if created != at.made:
                logger.warning(
                    "archive.restored", stream=stream, created=created, meaning="it is the one from before"
                )
            return await position_of(self._bus.js, stream)

    async def check(self, stream: str) -> Position:
        """Where the stream stands. Raises `TransientError` where it has gone back, and what `position`
        raises."""
        at = await self.position(stream)
        last = self._last.get((stream, at.created))
        if last is None:
            last = await asyncio.to_thread(lambda: self._events().newest(stream, at.created))
            if last is None:
                return at
            self._last[stream, at.created] = last
        if await has_gone_back(self._bus.js, stream, at, last):
            raise TransientError(
                f"{stream} is not what was archived, from {last.sequence} on at the latest: NATS came back "
                "with an older state. Restore the archive as of that time, or name an empty archive.url"
            )
        return at

    async def go_on(self, stream: str, latest: Read) -> None:
        """The same, before what ends with `latest` is archived."""
        created = (await self.check(stream)).created
        self._last[stream, created] = Mark(latest.sequence, latest.time)

    async def _creation(self, stream: str, at: Position) -> int:
        """When a stream without a label was created: as the server says, or, of a stream that was archived
        before, as the archive says."""
        if at.last == 0:
            return at.made
        known = await asyncio.to_thread(lambda: self._events().creations(stream))
        if at.made in known or not known:
            return at.made
        undecided = set[int]()
        for created in known:
            same = await self._is(stream, at, created)
            if same:
                return created
            if same is None:
                undecided.add(created)
        snapshot = await asyncio.to_thread(lambda: self._events().snapshot())
        # What has left it is what was archived of it.
        fitting = [one for one in undecided if snapshot.position(one, stream) == at.first - 1 > 0]
        if len(fitting) == 1:
            return fitting[0]
        if undecided:
            raise TransientError(
                f"nothing of {stream} tells whether it is the stream that was archived or a new one, so "
                "nothing is archived and nothing leaves. Say it in the stream's metadata (nats stream edit): "
                f"{LABEL}:{max(undecided)} if it was restored, {LABEL}:{at.made} if it is new"
            )
        return at.made

    async def _is(self, stream: str, at: Position, created: int) -> bool | None:
        """Whether it is the stream that was archived as created then; None where nothing tells."""
        marks = await asyncio.to_thread(
            lambda: self._events().marks(stream, created, at.first, at.last, COMPARED)
        )
        for mark in marks:
            if (same := await is_same(self._bus.js, stream, mark)) is not None:
                return same
        return None
