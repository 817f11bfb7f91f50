"""Writes the index of ids: gateways know by it what was recorded and has left the streams since.

The ids are those of the streams themselves, read by their headers; of what has left them already, of the
archive. Before a message leaves its stream, `settled` says that its id has been in the bucket for longer than
a gateway goes on without looking.

An index that is ahead of its stream, since the server lost what it had stored last, names ids that nobody
has: what is ahead is made again from the stream.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from heapq import merge

import msgspec

from groundwatch.archive.cold import cold_events
from groundwatch.errors import GroundwatchError
from groundwatch.events import LIVE
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.streams import (
    FAULTS,
    Mark,
    Position,
    Read,
    has_gone_back,
    mark_at,
    position_of,
)
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores import repeats
from groundwatch.runtime.stores.repeats import INDEXED, PartName
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import parse_subject
from groundwatch.topology.partitions import kind_of, streams_of_kind

ROUND_SECONDS = 30.0
AGAIN_SECONDS = 2.0
"""After a round that failed."""

MOST_ENTRIES = 2_000_000
"""Of one part: merging takes two or three times its bytes in memory."""

TOGETHER = 100_000
"""Entries that are gathered in memory before they are written."""

MERGE = 8
"""So many parts of one day and size become one, and all of a day that is over."""

SMALL = 1_024
"""Entries up to which parts are of one size; from there on each size is `MERGE` times the one below."""

ORPHAN_SECONDS = 3_600.0
"""After so long nobody is still writing a part whose pieces are there."""


class _Covered(msgspec.Struct, frozen=True):
    """All ids up to `last` of the stream that was created then were in the bucket at this monotonic time."""

    created: int
    last: Mark
    at: float


class _Gathered(msgspec.Struct):
    """Ids of one day, to become a part; `keys` has the entry of each. All of them lie between `first` and
    `last`, where so many messages as `removed` were missing before they were read."""

    first: int
    removed: int
    day: str = ""
    last: Mark = Mark(0)
    keys: dict[str, tuple[int, int]] = {}

    def take(self, key: str, read: Read) -> None:
        self.last = Mark(read.sequence, read.time)
        # A key that is none has no gateway asking for it.
        with suppress(ValueError):
            self.keys[key] = repeats.entry_of(key, repeats.digest_in(read.headers))


class IdIndex:
    """Writes, merges and tidies the index."""

    def __init__(
        self,
        settings: Settings,
        bus: Bus,
        metrics: Metrics,
        known: Callable[[str], Awaitable[Position]] | None = None,
    ) -> None:
        """`known` says where a stream stands, once it is known which one it is."""
        self._days = settings.archive.repeat_days
        self._bus = bus
        self._history = History(bus.js, cold_events(settings.archive))
        self._known = known or partial(position_of, bus.js)
        self._metrics = metrics
        self._bucket = 0
        """When the bucket was made: all that is known is of that one."""
        self._covered: dict[str, list[_Covered]] = {}
        self._orphans: dict[str, float] = {}
        self.problem = ""

    async def settled(self, stream: str, at: Position) -> int:
        """The last sequence of this stream up to which every gateway that takes anything knows the ids.

        Counted anew after each start: no clock but our own is trusted. Raises what NATS raises.
        """
        until = time.monotonic() - repeats.HOLD_SECONDS
        known = (one for one in self._covered.get(stream, ()) if one.created == at.created)
        last = max((one.last for one in known if one.at <= until), default=Mark(0))
        return 0 if await has_gone_back(self._bus.js, stream, at, last) else last.sequence

    async def run(self) -> None:
        """One round after the other. A round that fails has lost nothing: the next one does the same."""
        while True:
            try:
                await self.round()
                self.problem = ""
            except (*FAULTS, GroundwatchError) as error:
                if not self.problem:
                    logger.warning("archive.ids_not_indexed", error=str(error) or repr(error))
                self.problem = f"the index of ids is not written: {error or repr(error)}"
            await asyncio.sleep(min(AGAIN_SECONDS, ROUND_SECONDS) if self.problem else ROUND_SECONDS)

    async def round(self) -> None:
        """Bring the index up to what the streams hold now. Raises what NATS raises."""
        js = self._bus.js
        if self._bucket != (made := (await position_of(js, repeats.STREAM)).created):
            self._bucket, self._covered = made, {}
        for stream in [name for kind in INDEXED for name in streams_of_kind(kind, self._bus.partitions)]:
            parts = await repeats.parts(js)
            # Asked for behind them: what they name is in the stream by now.
            at = await self._known(stream)
            covered = [one for one in self._covered.get(stream, ()) if one.created == at.created]
            if covered and await has_gone_back(js, stream, at, covered[-1].last):
                covered = []
            self._covered[stream] = covered
            names = _mine(parts, stream, at)
            if ahead := await repeats.not_of(js, stream, at, names):
                await self._repair(stream, at, ahead)
            else:
                known = [*(one.last.sequence for one in covered), *(name.last for name in names)]
                await self._index(stream, at, max(known, default=0) + 1)
            await self._mark(stream, at)
            await self._tidy(stream, at)
        names = await repeats.parts(js)
        for kind in INDEXED:
            entries = sum(name.entries for name in names if kind_of(name.stream) == kind)
            self._metrics.indexed_ids.labels(kind).set(entries)
        await self._remove_orphans()

    async def _repair(self, stream: str, at: Position, ahead: Sequence[PartName]) -> None:
        """Index anew whatever may be in parts that name messages which the stream has not; without them."""
        # What they have of this stream is nowhere else until then.
        self._covered[stream] = []
        first = min(name.first for name in ahead)
        logger.warning(
            "archive.ids_ahead",
            stream=stream,
            ids_to=max(name.last for name in ahead),
            stream_to=at.last,
            indexed_anew_from=first,
            meaning="NATS lost what it had stored last, or came back with an older state: whoever sent that "
            "may send it again",
        )
        await self._index(stream, at, first)
        for name in ahead:
            await repeats.remove(self._bus.js, name)

    async def _mark(self, stream: str, at: Position) -> None:
        """Note that everything up to where the stream had come is in the index."""
        last = await mark_at(self._bus.js, stream, at.last)
        now = time.monotonic()
        held = self._covered[stream]
        # Of those that have been there for long enough the last one says it all.
        old = [one for one in held if one.at <= now - repeats.HOLD_SECONDS][-1:]
        young = [one for one in held if one.at > now - repeats.HOLD_SECONDS]
        self._covered[stream] = [*old, *young, _Covered(at.created, last, now)]

    async def _index(self, stream: str, at: Position, start: int) -> None:
        """Write the ids from a sequence on, as far as the stream had come, also of what has left it."""
        removed = await self._removed(stream)
        gathered = _Gathered(first=start, removed=removed)
        async for key, read in self._ids(stream, start, at.last):
            day = repeats.day_of(read.time)
            if gathered.keys and (day != gathered.day or len(gathered.keys) >= TOGETHER):
                await self._write(stream, at, gathered)
                gathered = _Gathered(first=read.sequence, removed=removed)
            gathered.day = day
            gathered.take(key, read)
        await self._write(stream, at, gathered)

    async def _ids(self, stream: str, first: int, last: int) -> AsyncGenerator[tuple[str, Read]]:
        """Keys of live traffic with their messages, without data. Chosen here: nearly all are wanted, and for
        a filter the server would have to count."""
        reading = self._history.read(stream, headers_only=True, start_sequence=first, last_sequence=last)
        async with aclosing(reading):
            async for read in reading:
                address = parse_subject(read.subject)
                if address is not None and (address.kind, address.run) == (INDEXED[kind_of(stream)], LIVE):
                    yield address.key, read

    async def _write(self, stream: str, at: Position, gathered: _Gathered) -> None:
        """Write a part, and take out of it again what was removed from the stream meanwhile: an erasure that
        did not find it in the index may have looked already."""
        if not gathered.keys:
            return
        js = self._bus.js
        data = await asyncio.to_thread(repeats.packed, sorted(gathered.keys.values()))
        name = repeats.part_name(stream, at.created, gathered.day, gathered.first, gathered.last, data)
        await repeats.write(js, name, data)
        first = (await position_of(js, stream)).first
        if first > gathered.first or await self._removed(stream) != gathered.removed:
            left = set(gathered.keys)
            async for key, _ in self._ids(stream, gathered.first, gathered.last.sequence):
                left.discard(key)
            await repeats.forget(js, left)

    async def _removed(self, stream: str) -> int:
        """How many messages are missing between the first and the last."""
        return (await self._bus.js.stream_info(stream)).state.num_deleted or 0

    async def _tidy(self, stream: str, at: Position) -> None:
        """Remove what is too old, also of another stream that had this name; merge what is small."""
        js = self._bus.js
        names = [name for name in await repeats.parts(js) if name.stream == stream]
        oldest = _oldest(names, self._days)
        for name in names:
            if name.day < oldest:
                await repeats.remove(js, name)
        while names := due(_mine(await repeats.parts(js), stream, at)):
            try:
                parts = [await repeats.load(js, name) for name in names]
            except LookupError:
                continue
            await repeats.replace(js, names, await asyncio.to_thread(repeats.packed, merge(*parts)))

    async def _remove_orphans(self) -> None:
        """Remove pieces of parts that somebody began to write long ago."""
        now = time.monotonic()
        found = await repeats.orphans(self._bus.js)
        self._orphans = {subject: self._orphans.get(subject, now) for subject in found}
        for subject, since in self._orphans.items():
            if now - since > ORPHAN_SECONDS:
                await self._bus.js.purge_stream(repeats.STREAM, subject=subject)


def _mine(names: Sequence[PartName], stream: str, at: Position) -> list[PartName]:
    return [name for name in names if (name.stream, name.created) == (stream, at.created)]


def _oldest(names: Sequence[PartName], days: int) -> str:
    """The first day that is kept: counted from the last one that has anything, by whose clock soever."""
    newest = min(max((name.day for name in names), default=""), datetime.now(UTC).date().isoformat())
    return (date.fromisoformat(newest) - timedelta(days=days)).isoformat() if newest else ""


def due(names: Sequence[PartName]) -> list[PartName]:
    """Parts of one stream that are to become one; none where nothing is due."""
    newest = max((name.day for name in names), default="")
    for day in sorted({name.day for name in names}):
        small = sorted(
            (name for name in names if name.day == day and name.entries <= MOST_ENTRIES // 2),
            key=lambda name: name.entries,
        )
        sizes = [math.ceil(math.log(max(name.entries, SMALL) / SMALL, MERGE)) for name in small]
        alike = [name for name, size in zip(small, sizes, strict=True) if sizes.count(size) >= MERGE]
        wanted = small if day < newest and len(small) > 1 else alike[:MERGE]
        fitting: list[PartName] = []
        for name in wanted:
            if sum(one.entries for one in fitting) + name.entries <= MOST_ENTRIES:
                fitting.append(name)
        if len(fitting) > 1:
            return fitting
    return []
