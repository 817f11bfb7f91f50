"""Events that have left the streams, read from the archive's table of events.

The columns that tell events apart are read first, row group by row group, and the others only of groups that
have something of what is wanted: so a run, or one response, is found without reading what all others say.
Memory follows the size of a row group.
"""

from __future__ import annotations

import asyncio
import heapq
import re
import sys
import threading
import time
from array import array
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from functools import reduce
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import msgspec

from groundwatch.archive.place import SWITCHED_OFF, installed, require
from groundwatch.errors import TransientError
from groundwatch.events import LIVE
from groundwatch.runtime.delivery.direct import is_wide, pattern_of
from groundwatch.runtime.delivery.history import LostFile
from groundwatch.runtime.delivery.streams import Mark, Position, Read
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores.repeats import KINDS, IdFile
from groundwatch.topology import HEADER_DIGEST, OUTCOMES
from groundwatch.topology.partitions import kind_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from groundwatch.archive.events import Events
    from groundwatch.archive.outcomes import Archive
    from groundwatch.archive.store import File

MOST = 1_000
"""Events that are handed on at once."""

FRESH_SECONDS = 2.0
"""How long what the table's log said is believed, where it had said it late enough."""

ATTEMPTS = 5
"""How often in a row files may be gone by the time that they are opened."""

T = TypeVar("T")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A row group of a file, by its number; `first` to `last` are sequences."""

    number: int
    first: int
    last: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The table's files, as of `at` (monotonic). Of each stream and its creation, `until` is a
    sequence up to which everything was in the table by then that is in the stream no more."""

    at: float
    files: list[File]
    until: dict[tuple[str, int], int]


class ColdEvents:
    """`groundwatch.runtime.delivery.history.Cold` over the table of events.

    Nothing is opened, or imported, before an event is wanted that a stream holds no more.
    """

    def __init__(self, settings: ArchiveSettings, on_lost: Callable[[LostFile], None] | None = None) -> None:
        self._settings = settings
        self._on_lost = on_lost
        self._lost: set[str] = set()
        self._id_file_of: dict[str, File] = {}
        self._opened: Events | None = None
        self._state: State | None = None
        self._lock = threading.Lock()

    async def read(
        self,
        stream: str,
        created: int,
        *,
        subjects: Sequence[str],
        first: int,
        last: int,
        headers_only: bool = False,
    ) -> AsyncGenerator[list[Read]]:
        wanted = Subjects(subjects)
        gone = 0
        while first <= last:
            pieces = self._pieces(stream, created, wanted, first, last, headers_only)
            try:
                while several := await asyncio.to_thread(self._next, pieces):
                    yield several
                    first, gone = several[-1].sequence + 1, 0
                return
            except FileNotFoundError as error:
                gone = self._looking_again(gone, error)
            finally:
                # In a thread of its own it may still be at work when we are cancelled.
                await asyncio.shield(asyncio.to_thread(pieces.close))

    async def last_of_each(
        self, stream: str, created: int, subjects: Sequence[str], last: int
    ) -> dict[str, Read]:
        return await self._tried(lambda: self._last_of_each(stream, created, subjects, last))

    async def count(
        self, stream: str, created: int, *, subjects: Sequence[str], first: int, last: int
    ) -> int:
        wanted = Subjects(subjects)

        def count() -> int:
            number = 0
            for file in self._files(stream, created, first, last):
                with self._parquet(file) as parquet:
                    for group in _groups(parquet, first, last):
                        number += len(_places(parquet, group, created, wanted, first, last))
            return number

        return await self._tried(count)

    async def newest(self, stream: str, created: int) -> Mark | None:
        return await self._tried(lambda: self._table.newest(stream, created))

    async def id_files(self, streams: Mapping[str, Position]) -> dict[str, list[IdFile]] | None:
        return await self._tried(lambda: self._id_files(streams)) if installed() else None

    async def read_ids(self, stream: str, created: int, file: IdFile, until: int) -> bytes:
        return await asyncio.to_thread(self._telling, lambda: self._read_ids(stream, created, file, until))

    async def lost_files(self) -> list[LostFile]:
        if self._is_elsewhere:
            return []
        both = tables(self._settings)
        assert both is not None
        outcomes, events = both

        def read() -> list[LostFile]:
            found = [_lost(one.file, outcomes.spec.name, OUTCOMES) for one in outcomes.damaged()]
            return found + [_lost(one.file, events.spec.name, one.file.stream) for one in events.damaged()]

        return await self._tried(read)

    def without_lost(self, on_lost: Callable[[LostFile], None]) -> ColdEvents:
        return ColdEvents(self._settings, on_lost)

    async def _tried(self, work: Callable[[], T]) -> T:
        gone = 0
        while True:
            try:
                return await asyncio.to_thread(self._telling, work)
            except FileNotFoundError as error:
                gone = self._looking_again(gone, error)

    def _looking_again(self, gone: int, error: FileNotFoundError) -> int:
        """Files were merged, or rewritten by an erasure, and their rows are in others by now."""
        self._state = None
        if gone == ATTEMPTS:
            file: File | None = getattr(error, "file", None)
            if self._on_lost is not None and file is not None:
                self._lost.add(file.path)
                self._on_lost(_lost(file, self._table.spec.name, file.stream))
                return 0
            raise TransientError(str(error)) from error
        return gone + 1

    def _next(self, pieces: Iterator[list[Read]]) -> list[Read]:
        return self._telling(lambda: next(pieces, []))

    def _telling(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise TransientError(f"the archive at {self._table.url} cannot be read: {error}") from error

    def _pieces(
        self, stream: str, created: int, wanted: Subjects, first: int, last: int, headers_only: bool
    ) -> Generator[list[Read]]:
        for together in _overlapping(self._files(stream, created, first, last)):
            events = [
                self._events(file, created, wanted, first, last, headers_only=headers_only)
                for file in together
            ]
            # Small files of a day become one, whatever lies between them.
            merged = _merged(events)
            while several := list(islice(merged, MOST)):
                yield several

    def _last_of_each(self, stream: str, created: int, subjects: Sequence[str], last: int) -> dict[str, Read]:
        wanted = Subjects(subjects)
        found: dict[str, Read] = {}

        def missing(before: int) -> set[str]:
            return {one for one in subjects if one not in found or found[one].sequence < before}

        for file in sorted(self._files(stream, created, 1, last), key=attrgetter("last"), reverse=True):
            if not missing(file.last):
                break
            with self._parquet(file) as parquet:
                for group in sorted(_groups(parquet, 1, last), key=attrgetter("last"), reverse=True):
                    if not missing(group.last):
                        break
                    for read in _events(parquet, group, created, wanted, 1, last):
                        for name in wanted.covering(read.subject):
                            if name not in found or found[name].sequence < read.sequence:
                                found[name] = read
        return found

    def _id_files(self, streams: Mapping[str, Position]) -> dict[str, list[IdFile]] | None:
        if self._is_elsewhere:
            return None
        snapshot = self._table.snapshot()
        if snapshot.table is None:
            self._table.check_started()
        files = snapshot.files()
        self._id_file_of = {file.path: file for file in files}
        found = {}
        for stream, at in streams.items():
            mine = _of_creation(files, stream, at.created)
            if not mine and at.last and not at.labelled:
                self._check_known(files, stream, at.created)
            newest = max((file.day for file in mine), default=date.max)
            oldest = newest - timedelta(days=self._settings.repeat_days)
            found[stream] = [IdFile(file.path, file.last) for file in mine if file.day >= oldest]
        return found

    def _read_ids(self, stream: str, created: int, file: IdFile, until: int) -> bytes:
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = array("Q")
        with self._parquet(self._id_file_of[file.path]) as parquet:
            for group in _groups(parquet, 1, until):
                names = ["sequence", "created", "run", "kind", "key", "headers"]
                rows = parquet.read_row_group(group.number, names, use_threads=False)
                wanted = [
                    pc.equal(rows["created"], created),
                    pc.less_equal(rows["sequence"], until),
                    pc.equal(rows["run"], LIVE),
                    pc.equal(rows["kind"], KINDS[kind_of(stream)]),
                    pc.match_substring_regex(rows["key"], "^[0-9a-f]{24}"),
                ]
                rows = rows.filter(reduce(pc.and_, wanted))
                given = pc.map_lookup(rows["headers"], HEADER_DIGEST, "last")
                ours = pc.fill_null(pc.match_substring_regex(given, "^[0-9a-f]{8}"), False)
                digests = pc.utf8_slice_codeunits(pc.if_else(ours, given, "00000000"), 0, 8)
                keys = pc.utf8_slice_codeunits(rows["key"], 0, 24)
                entries = pc.binary_join_element_wise(keys, digests, "").to_pylist()
                numbers.frombytes(bytes.fromhex("".join(entries)))
        if sys.byteorder == "little":
            numbers.byteswap()
        columns = {
            name: pa.Array.from_buffers(pa.uint64(), len(numbers) // 2, [None, pa.py_buffer(several)])
            for name, several in (("high", numbers[::2]), ("rest", numbers[1::2]))
        }
        ordered = pa.table(columns).sort_by([("high", "ascending"), ("rest", "ascending")])
        return b"".join(array("Q", column.to_pylist()).tobytes() for column in ordered.columns)

    def _events(
        self, file: File, created: int, wanted: Subjects, first: int, last: int, *, headers_only: bool
    ) -> Iterator[Read]:
        with self._parquet(file) as parquet:
            groups = sorted(_groups(parquet, first, last), key=attrgetter("first", "last"))
            # Those of a file that we wrote are in order; another tool may have merged it.
            for together in _overlapping(groups):
                yield from _merged(
                    [
                        _events(parquet, group, created, wanted, first, last, headers_only=headers_only)
                        for group in together
                    ]
                )

    @contextmanager
    def _parquet(self, file: File) -> Iterator[pq.ParquetFile]:
        """Raises `LostFileError` also for a file that is there and is none, or not all of it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from groundwatch.archive.store import LostFileError

        store = self._table.store
        # A store may be away, a folder's file is damaged.
        damaged = (pa.ArrowInvalid, OSError) if store.folder is not None else (pa.ArrowInvalid,)
        try:
            with (
                store.open(file) as opened,
                pq.ParquetFile(opened, page_checksum_verification=True) as parquet,
            ):
                yield parquet
        except LostFileError:
            raise
        except damaged as error:
            raise LostFileError(store.url, file, str(error)) from error

    def _files(self, stream: str, created: int, first: int, last: int) -> list[File]:
        """Those that may have something of these, by their first sequences."""
        where = (stream, created)
        with self._lock:
            state = self._state
            late = state is None or time.monotonic() - state.at > FRESH_SECONDS
            if state is None or late or state.until.get(where, 0) < last:
                at = time.monotonic()
                self._check_place()
                state = self._state = State(at=at, files=self._table.snapshot().files(), until={})
            # What is asked for has left the stream already: all of it was in the table before that.
            state.until[where] = max(state.until.get(where, 0), last)
        mine = _of_creation(state.files, stream, created)
        if not mine:
            self._check_known(state.files, stream, created)
        found = [
            file for file in mine if file.path not in self._lost and file.first <= last and first <= file.last
        ]
        return sorted(found, key=attrgetter("first", "last"))

    def _check_known(self, files: Sequence[File], stream: str, created: int) -> None:
        """Raises `TransientError` where a stream of this name was archived and nothing says which it is."""
        of_name = any(file.stream == stream for file in files)
        if of_name and not self._table.snapshot().position(created, stream):
            raise TransientError(
                f"the archive at {self._table.url} has a {stream}, and nothing says that it is the present "
                "one: the archive service says which it is, and what to do where it cannot"
            )

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the archive lies on a disk that is not here."""
        folder = self._table.store.folder
        return folder is not None and not folder.parent.is_dir()

    def _check_place(self) -> None:
        """Raises `TransientError` where the archive lies on a disk that is not here."""
        if self._is_elsewhere:
            raise TransientError(
                f"what is wanted has left the streams, and there is no archive at {self._table.url} on this "
                "machine: mount it here, or keep it in an object store (archive.url)"
            )

    @property
    def _table(self) -> Events:
        """Raises `MissingExtraError` without what the archive takes, `SettingsError` for a wrong address."""
        if self._opened is None:
            both = tables(self._settings)
            assert both is not None
            self._opened = both[1]
        return self._opened


def tables(settings: ArchiveSettings) -> tuple[Archive, Events] | None:
    """Both tables of these settings' archive, None where there is no archive. Raises `SettingsError` for a
    wrong address, `MissingExtraError` without what reading takes."""
    if settings.url in ("", SWITCHED_OFF):
        return None
    require()
    from groundwatch.archive.events import Events
    from groundwatch.archive.outcomes import Archive

    return Archive(settings.url, settings.options), Events(settings.url, settings.options)


def cold_events(settings: ArchiveSettings) -> ColdEvents | None:
    """What these settings' archive has, None where there is no archive."""
    return ColdEvents(settings) if settings.url not in ("", SWITCHED_OFF) else None


def _of_creation(files: Sequence[File], stream: str, created: int) -> list[File]:
    return [file for file in files if file.stream == stream and file.oldest <= created <= file.newest]


def _lost(file: File, folder: str, stream: str) -> LostFile:
    return LostFile(
        path=f"{folder}/{file.path}", stream=stream, day=file.day, first=file.first, last=file.last
    )


P = TypeVar("P", "File", Group)


def _overlapping(parts: Sequence[P]) -> Iterator[list[P]]:
    """Parts one by one, in order, but those together whose sequences overlap."""
    together: list[P] = []
    end = 0
    for part in parts:
        if together and part.first > end:
            yield together
            together = []
        together.append(part)
        end = max(end, part.last)
    if together:
        yield together


def _merged(events: Sequence[Iterator[Read]]) -> Iterator[Read]:
    return heapq.merge(*events, key=attrgetter("sequence")) if len(events) > 1 else events[0]


def _groups(parquet: pq.ParquetFile, first: int, last: int) -> list[Group]:
    """Those that may have something of these sequences."""
    found = []
    for number in range(parquet.num_row_groups):
        metadata = parquet.metadata.row_group(number)
        columns = (metadata.column(at) for at in range(metadata.num_columns))
        known = next(column.statistics for column in columns if column.path_in_schema == "sequence")
        if known.min <= last and first <= known.max:
            found.append(Group(number=number, first=known.min, last=known.max))
    return found


def _places(
    parquet: pq.ParquetFile, group: Group, created: int, wanted: Subjects, first: int, last: int
) -> pa.Array:
    """Where in the row group something of these is, in the order of sequences."""
    import pyarrow.compute as pc

    names = ["sequence", "created", *wanted.columns]
    rows = parquet.read_row_group(group.number, names, use_threads=False)
    inside = [
        pc.equal(rows["created"], created),
        pc.greater_equal(rows["sequence"], first),
        pc.less_equal(rows["sequence"], last),
    ]
    if (covered := wanted.covered(rows)) is not None:
        inside.append(covered)
    places = pc.indices_nonzero(reduce(pc.and_, inside))
    return places.take(pc.sort_indices(rows["sequence"].take(places)))


def _events(
    parquet: pq.ParquetFile,
    group: Group,
    created: int,
    wanted: Subjects,
    first: int,
    last: int,
    *,
    headers_only: bool = False,
) -> Iterator[Read]:
    """What a row group has of these, in the order of sequences."""
    from groundwatch.archive.events import to_reads

    if len(places := _places(parquet, group, created, wanted, first, last)):
        columns = ["sequence", "time", "subject", "headers"] + ([] if headers_only else ["data"])
        rows = parquet.read_row_group(group.number, columns, use_threads=False).take(places)
        for start in range(0, len(rows), MOST):
            yield from to_reads(rows.slice(start, MOST))


class Subjects:
    """What any of several filters covers, as a stream takes them; everything, where there is none."""

    def __init__(self, subjects: Iterable[str]) -> None:
        wanted = list(subjects)
        self.columns = ["subject"] if wanted and ">" not in wanted else []
        """What `covered` must see of the rows."""
        self._plain = frozenset(subject for subject in wanted if not is_wide(subject))
        self._wild = {subject: re.compile(pattern_of(subject)) for subject in wanted if is_wide(subject)}

    def covering(self, subject: str) -> list[str]:
        """Those of the filters that cover this subject."""
        wild = [name for name, pattern in self._wild.items() if pattern.fullmatch(subject)]
        return [subject, *wild] if subject in self._plain else wild

    def covered(self, rows: pa.Table) -> pa.Array | None:
        """Which of these rows are wanted, None for all of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.columns:
            return None
        covered = pc.is_in(rows["subject"], pa.array(sorted(self._plain), pa.string()))
        if self._wild:
            wild = "|".join(pattern.pattern for pattern in self._wild.values())
            covered = pc.or_(covered, pc.match_substring_regex(rows["subject"], f"^(?:{wild})$"))
        return covered
