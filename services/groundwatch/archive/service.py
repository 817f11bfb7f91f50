"""The archive as a service: it reads the outcome stream in order and writes what it has read.

How far it has come stands in the archive itself, changed in the same moment as its rows: there is nothing to
acknowledge that could be acknowledged too early or too late. While the archive cannot be written, the service
reads no further, and the stream keeps what waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from typing import TYPE_CHECKING

import msgspec

from groundwatch.archive.place import SWITCHED_OFF, place
from groundwatch.errors import UNDECODED, SettingsError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS, Read, follow_stream
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ARCHIVE, OUTCOMES

if TYPE_CHECKING:
    from groundwatch.archive.archive import Archive
    from groundwatch.archive.rows import Position, Row

AHEAD = 1_000
"""Messages that are read ahead of what is being written."""

MAX_BYTES = 32 * 1024 * 1024
"""Events held in memory before they are written, however few."""

LONGEST_PAUSE = 30.0
"""Seconds between two attempts to write: the disk may have room again at any time."""

MAINTAIN_SECONDS = 60.0
MONITOR_SECONDS = 5.0
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Held(msgspec.Struct):
    """What was read and is not written yet. `position` is that of the last message, readable or not."""

    rows: list[Row] = []
    bytes: int = 0
    position: int = 0
    since: float = 0.0
    unreadable: int = 0


class ArchiveService:
    """Writes every outcome with its claims to the archive, once."""

    name = ARCHIVE

    def __init__(self, settings: Settings, bus: Bus, metrics: Metrics) -> None:
        if settings.archive.url in ("", SWITCHED_OFF):
            raise SettingsError("setting 'archive.url' is needed here: a folder, or such as s3://bucket/path")
        self._settings = settings
        self._bus = bus
        self._metrics = metrics
        self._url = place(settings.archive.url, settings.archive.options).shown
        self._archive: Archive | None = None
        self._working = SupervisedTask("archive-writer", self._work)
        self._monitor = SupervisedTask("archive-monitor", self._watch)
        self._draining = asyncio.Event()
        self._position = 0
        self._stream = 0
        self.held = 0
        self._problem = ""
        self._maintained = 0.0

    async def start(self) -> None:
        self._working.start()
        self._monitor.start()

    async def drain(self, timeout: float) -> None:
        """Write what was read, if `timeout` seconds are enough; else the next start reads it again."""
        self._draining.set()
        # First, so that it is known at once that the writer ends because it was told to.
        await self._working.finish(timeout)
        await self._monitor.stop()

    def problems(self) -> list[str]:
        found = self._bus.problems()
        found += [task.problem for task in (self._working, self._monitor) if task.problem]
        if self._problem:
            found.append(self._problem)
        return [f"{self.name}: {why}" for why in found]

    async def _work(self) -> None:
        """Read the stream from where the archive ends; begin anew when it turns out to be another one."""
        attempt = 0
        while not self._draining.is_set():
            try:
                await self._follow()
                attempt = 0
            except Exception as error:
                attempt += 1
                await self._failed(error, attempt)

    async def _follow(self) -> None:
        from groundwatch.archive.rows import position_of

        at = await position_of(self._bus)
        if at.last == 0 and self._archive is None:
            # Nothing to write yet: what writing needs takes a second to load, and memory.
            await self._pause(1.0)
            return
        archive = await asyncio.to_thread(self._open)
        state = await asyncio.to_thread(archive.begin)
        self._problem, self._position = "", state.position(at.stream)
        if at.first > self._position + 1 and at.last > self._position and self._position:
            logger.warning(
                "archive.gap",
                archived_to=self._position,
                stream_begins_at=at.first,
                meaning="outcomes between were erased, replaced, or cut by retention too early",
            )
        self._stream = at.stream
        arrived: asyncio.Queue[Read] = asyncio.Queue(AHEAD)
        reader = asyncio.create_task(self._read(arrived, self._position + 1))
        try:
            await self._write(archive, at, arrived, reader)
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await reader

    async def _read(self, arrived: asyncio.Queue[Read], start: int) -> None:
        async with contextlib.aclosing(
            follow_stream(self._bus.js, OUTCOMES, start_sequence=start)
        ) as following:
            async for batch in following:
                for read in batch.messages:
                    await arrived.put(read)

    async def _write(
        self, archive: Archive, at: Position, arrived: asyncio.Queue[Read], reader: asyncio.Task[None]
    ) -> None:
        """Gather and write until the service drains, the reading ends or the stream is another one."""
        held = Held(rows=[])
        self.held = 0
        limits = self._settings.archive
        while True:
            if self._stream != at.stream:
                # Made anew: what is held is of a stream that is no more, and can be archived no further.
                return
            if self._draining.is_set():
                reader.cancel()
            ending = self._draining.is_set() or reader.done()
            read = None if ending and arrived.empty() else await self._next(arrived, held)
            if read is not None:
                self._take(held, read, at)
            self.held = len(held.rows)
            full = len(held.rows) >= limits.flush_rows or held.bytes >= MAX_BYTES
            late = held.position and time.monotonic() - held.since >= limits.flush_seconds
            if held.position and (full or late or (ending and read is None)):
                if not await self._flush(archive, held, at):
                    return
                held = Held(rows=[])
            if ending and read is None:
                if reader.done() and not self._draining.is_set():
                    await reader
                return
            if not held.position and time.monotonic() - self._maintained > MAINTAIN_SECONDS:
                await self._maintain(archive)

    async def _next(self, arrived: asyncio.Queue[Read], held: Held) -> Read | None:
        left = held.since + self._settings.archive.flush_seconds - time.monotonic() if held.position else 1.0
        try:
            return arrived.get_nowait()
        except asyncio.QueueEmpty:
            pass
        try:
            return await asyncio.wait_for(arrived.get(), min(max(left, 0.0), 1.0))
        except TimeoutError:
            return None

    def _take(self, held: Held, read: Read, at: Position) -> None:
        from groundwatch.archive.rows import row_of

        held.since = held.since or time.monotonic()
        held.position = read.sequence
        held.bytes += len(read.data)
        try:
            held.rows.append(row_of(read, at.stream))
        except UNDECODED as error:
            self._metrics.archive_unreadable.labels("undecodable").inc()
            logger.error(
                "archive.undecodable", subject=read.subject, sequence=read.sequence, error=str(error)
            )

    async def _flush(self, archive: Archive, held: Held, at: Position) -> bool:
        """Write, trying again for as long as it takes; False when the stream is another one by now."""
        from groundwatch.archive.rows import position_of

        attempt = 0
        while True:
            try:
                if (await position_of(self._bus)).stream != at.stream:
                    return False
                added = await asyncio.to_thread(
                    archive.add, held.rows, stream=at.stream, position=held.position
                )
                break
            except Exception as error:
                attempt += 1
                await self._failed(error, attempt)
                if self._draining.is_set():
                    return False
        if self._problem:
            logger.info("archive.writes_again")
        self._problem, self._position = "", held.position
        for sequence in added.unreadable:
            self._metrics.archive_unreadable.labels("unfit").inc()
            logger.error("archive.unfit", sequence=sequence)
        self._metrics.archive_rows.labels("outcomes").inc(added.outcomes)
        self._metrics.archive_rows.labels("claims").inc(added.claims)
        if time.monotonic() - self._maintained > MAINTAIN_SECONDS:
            await self._maintain(archive)
        return True

    async def _maintain(self, archive: Archive) -> None:
        """Merge and tidy. A failure here loses nothing and is tried again with the next time."""
        self._maintained = time.monotonic()
        try:
            await asyncio.to_thread(archive.maintain)
            files = await asyncio.to_thread(lambda: archive.snapshot().files())
        except Exception as error:
            self._metrics.archive_failures.labels(_reason(error)).inc()
            logger.warning("archive.not_tidied", error=str(error) or repr(error))
            return
        self._metrics.archive_files.set(len(files))
        self._metrics.archive_bytes.set(sum(file.bytes for file in files))

    async def _watch(self) -> None:
        from groundwatch.archive.rows import position_of

        while True:
            with contextlib.suppress(*FAULTS):
                at = await position_of(self._bus)
                if self._stream and at.stream != self._stream:
                    logger.warning("archive.another_stream", meaning="the outcome stream was made anew")
                    self._stream = 0
                self._metrics.archive_lag.labels(OUTCOMES).set(max(0, at.last - self._position))
            await asyncio.sleep(MONITOR_SECONDS)

    def _open(self) -> Archive:
        if self._archive is None:
            from groundwatch.archive.archive import Archive

            self._archive = Archive(
                self._settings.archive.url,
                self._settings.archive.options,
                version_tags=self._settings.telemetry.version_tags,
                merge_files=self._settings.archive.merge_files,
                file_bytes=self._settings.archive.file_bytes,
            )
        return self._archive

    async def _failed(self, error: Exception, attempt: int) -> None:
        """Tell why, and wait until it is time for another attempt."""
        reason = _reason(error)
        self._metrics.archive_failures.labels(reason).inc()
        told = " ".join((str(error) or repr(error)).split())
        self._problem = f"cannot write to {self._url}: {told}"
        logger.error("archive.failed", reason=reason, url=self._url, error=told)
        await self._pause(min(LONGEST_PAUSE, self._settings.retry.delay(attempt)))

    async def _pause(self, seconds: float) -> None:
        await until_set(self._draining, seconds)


def _reason(error: Exception) -> str:
    return "disk_full" if isinstance(error, OSError) and error.errno in FULL else "other"
