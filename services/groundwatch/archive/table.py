"""One Delta Lake table of the archive. Rows go in once, their files are merged, and they go out for good.

Every change is one transaction upon the state that it was made from: when another one came first it is made
anew. delta-rs offers merging and deletion too, but puts them upon whatever state it finds in the end, and
writes what a deletion looked for into its log: so files are replaced here. Whoever deletes files that no
state names commits an empty transaction first: then nobody who has written one of them may yet name it.

No text of a row stands in the log: statistics are of numbers alone, and an erasure names digests.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Generic, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from groundwatch.archive.store import (
    Change,
    ErasedRows,
    File,
    LostFileError,
    Snapshot,
    Store,
    key_digest,
    plain_errors,
    run_digest,
)
from groundwatch.archive.tables import Row, TableSpec
from groundwatch.errors import TransientError, UsageError
from groundwatch.topology import OUTCOMES

R = TypeVar("R", bound=Row)

ATTEMPTS = 20

GRACE_HOURS = 1
"""How long a replaced file stays for queries that have begun."""

VACUUM_SECONDS = 3_600.0

UNFIT = (pa.ArrowException, OverflowError, UnicodeError)
"""What Arrow raises for a value that has no place in its column."""


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What an addition wrote, by kind. `unreadable` are sequences whose values fit no column."""

    counts: dict[str, int] = {}
    unreadable: tuple[int, ...] = ()


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What must go: responses by `keys.response_key`, all of a tenant, or all of a run.

    `until` says up to which sequence, by when a stream was created: what is recorded later is another matter.
    """

    keys: tuple[str, ...] = ()
    tenant: str = ""
    run: str = ""
    until: dict[int, int] = {}


def concerned(erasure: Erasure) -> pc.Expression:
    """Which rows of a table go."""
    rows = ds.field("key").isin(pa.array(erasure.keys, pa.string()))
    if erasure.tenant:
        rows |= ds.field("tenant") == erasure.tenant
    if erasure.run:
        rows |= ds.field("run") == erasure.run
    return rows


class ArchiveTable(Generic[R]):
    """One table, for one thread at a time of any number of processes."""

    spec: TableSpec

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        *,
        merge_files: int = 8,
        file_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        """`url` is the archive's. Raises `SettingsError` for an address that cannot be."""
        self.store = Store(url, options, folder=self.spec.folder)
        self.url = self.store.url
        self._merge_files = merge_files
        self._file_bytes = file_bytes
        self._erased: list[ErasedRows] = []
        self._erased_version = -1
        self._vacuumed = 0.0
        self._lock = threading.Lock()

    def to_table(self, rows: Sequence[R]) -> pa.Table:
        """The rows, in their order. Raises one of `UNFIT`."""
        raise NotImplementedError

    def count(self, table: pa.Table) -> dict[str, int]:
        """What is in a table, by kind."""
        return {self.spec.name: len(table)}

    def snapshot(self) -> Snapshot:
        """The present state."""
        with plain_errors(self.store):
            try:
                table = DeltaTable(self.store.address, storage_options=self.store.options)
            except TableNotFoundError:
                table = None
            self.store.check_log(table.version() if table is not None else -1)
        return Snapshot(self.spec, self.store, table)

    def begin(self) -> Snapshot:
        """The present state, where what will be added is read from now on: no erasure of before our first
        reading concerns it."""
        state = self.snapshot()
        if self._erased_version >= 0:
            self._erased += state.erased_since(self._erased_version)
        self._erased_version = state.version
        return state

    def add(self, rows: Sequence[R], *, created: int, position: int, stream: str = OUTCOMES) -> Added:
        """Write rows of the stream created then, and that it has been read up to `position`.

        What the table has already is left out, so a repeat adds nothing. A row that supersedes another takes
        its place. Raises what the store raises; nothing has changed then.
        """
        added = Added()

        def draft(change: Change) -> bool:
            nonlocal added
            added = Added()
            archived = change.base.position(created, stream)
            if position <= archived:
                return False
            self._erased += change.base.erased_since(self._erased_version)
            self._erased_version = change.base.version
            wanted = [
                row
                for row in rows
                if row.sequence > archived and not any(erased.concern(row) for erased in self._erased)
            ]
            superseded = {row.supersedes for row in wanted if row.supersedes}
            table, unreadable = self._fitting([row for row in wanted if row.sequence not in superseded])
            for part, own in self._parts(table):
                change.write(own, part)
            if older := sorted(sequence for sequence in superseded if sequence <= archived):
                change.remove_rows(
                    [
                        file
                        for file in change.base.files()
                        if file.stream in ("", stream)
                        and file.oldest <= created <= file.newest
                        and any(file.first <= sequence <= file.last for sequence in older)
                    ],
                    (ds.field(self.spec.created) == created) & ds.field("sequence").isin(older),
                )
            change.mark(self.spec.application(created, stream), position)
            added = Added(counts=self.count(table), unreadable=unreadable)
            return True

        if self.change(draft):
            # That one was ours.
            self._erased_version += 1
        self._erased = [
            erased for erased in self._erased if erased.stream != created or erased.until > position
        ]
        return added

    def problem(self) -> str:
        """Why not all of it can be read, in a line; empty where it can. No file is opened."""
        try:
            state = self.snapshot()
            if state.table is None:
                self.check_started()
            for file in state.files():
                self.store.check(file)
        except LostFileError as error:
            # It may have been replaced meanwhile.
            return str(error) if error.file in self.snapshot().files() else ""
        except (OSError, UsageError) as error:
            return str(error)
        return ""

    def check_started(self) -> None:
        """Raises `UsageError` where a folder has files of this table from long ago, and no log."""
        if self.store.folder is None:
            return
        before = time.time() - GRACE_HOURS * 3_600.0
        for folder in filter(self.spec.holds, self.store.folders()):
            if any(info.mtime_ns < before * 1e9 for info in self.store.infos(folder)):
                raise UsageError(
                    f"the log of the archive's table at {self.url} is gone, and its files are there: put the "
                    "folder _delta_log back from the backup"
                )

    def damaged(self) -> Iterator[LostFileError]:
        """Files that are lost or damaged: all of them are read whole."""
        seen = set[str]()
        while files := [file for file in self.snapshot().files() if file.path not in seen]:
            for file in files:
                seen.add(file.path)
                if (lost := self.store.damage(file)) and file in self.snapshot().files():
                    yield lost

    def maintain(self) -> int:
        """Merge small files, and delete those that nothing needs any more. How many files were merged."""
        merged = 0
        while files := due(self.snapshot().files(), self._merge_files, self._file_bytes):
            merged += self._merge(files)
        if time.monotonic() - self._vacuumed > VACUUM_SECONDS or not self._vacuumed:
            self._delete_unnamed(GRACE_HOURS)
            self._vacuumed = time.monotonic()
        return merged

    def count_concerned(self, erasure: Erasure) -> int:
        """How many rows an erasure would remove."""
        data = self.snapshot().dataset()
        return int(data.count_rows(filter=concerned(erasure))) if data is not None else 0

    def erase(self, erasure: Erasure) -> int:
        """Remove all rows that `erasure` concerns; when it returns, no file of the table holds their bytes.

        How many rows that were. Safe to repeat after a crash at any moment. The writer leaves out what it
        still holds in memory.
        """
        removed = 0
        digests = [key_digest(key) for key in erasure.keys]
        if erasure.run:
            digests.append(run_digest(erasure.run))

        def draft(change: Change) -> bool:
            nonlocal removed
            removed = 0
            if change.base.table is None:
                return False
            removed = change.remove_rows(change.base.files(), concerned(erasure))
            if digests and erasure.until:
                change.metadata["erased"] = [
                    {"stream": created, "until": until, "digests": digests}
                    for created, until in erasure.until.items()
                ]
            return bool(removed or change.metadata)

        self.change(draft)
        self._delete_unnamed(0)
        return removed

    def change(self, draft: Callable[[Change], bool]) -> bool:
        """Commit what `draft` makes of the present state, anew for as long as others come first.

        Whether there was anything to commit: `draft` says so.
        """
        with self._lock:
            for _ in range(ATTEMPTS):
                change = Change(self.store, self.snapshot())
                try:
                    if not draft(change):
                        return False
                    change.commit()
                    return True
                except CommitFailedError:
                    self._discard(change)
                except BaseException:
                    # A folder tells whether it has the transaction; a store may yet take it.
                    if self.store.folder is not None:
                        self._discard(change)
                    raise
        raise TransientError(f"{self.url}: others change the archive faster than we can")

    def _discard(self, change: Change) -> None:
        with suppress(OSError, UsageError):
            change.discard(self.snapshot())

    def _fitting(self, rows: Sequence[R]) -> tuple[pa.Table, tuple[int, ...]]:
        """The rows; one that fits no column must not keep the others out."""
        try:
            return self.to_table(rows), ()
        except UNFIT:
            fitting, unreadable = [], []
            for row in rows:
                try:
                    self.to_table([row])
                except UNFIT:
                    unreadable.append(row.sequence)
                else:
                    fitting.append(row)
            return self.to_table(fitting), tuple(unreadable)

    def _parts(self, table: pa.Table) -> Iterator[tuple[dict[str, str], pa.Table]]:
        """The table by the parts that its files lie in."""
        names = list(self.spec.partition)
        for part in table.select(names).group_by(names).aggregate([]).to_pylist():
            wanted = pa.array([True] * len(table))
            for name in names:
                wanted = pc.and_(wanted, pc.equal(table[name], part[name]))
            yield {name: str(part[name]) for name in names}, table.filter(wanted)

    def _merge(self, files: Sequence[File]) -> int:
        """Put files of one part into one, unless somebody else has replaced one of them meanwhile."""

        def draft(change: Change) -> bool:
            if not {file.path for file in files} <= {file.path for file in change.base.files()}:
                return False
            change.merge(files)
            return True

        return len(files) if self.change(draft) else 0

    def _delete_unnamed(self, hours: int) -> None:
        """Delete every file of this table that no state of the last `hours` names."""
        for _ in range(ATTEMPTS):
            state = self.snapshot()
            if state.table is None:
                return
            unnamed = self._unnamed(state, state.table, hours)
            if not unnamed:
                return
            with suppress(CommitFailedError):
                Change(self.store, state).commit()
                self.store.delete(unnamed)
                self.store.sync(unnamed, folders_only=True)
                return
        raise TransientError(f"{self.url}: others change the archive faster than we can")

    def _unnamed(self, state: Snapshot, table: DeltaTable, hours: int) -> list[str]:
        with plain_errors(self.store):
            replaced, long_replaced = (
                set(table.vacuum(age, dry_run=True, enforce_retention_duration=False)) for age in (0, hours)
            )
        needed = {file.path for file in state.files()} | (replaced - long_replaced)
        before = time.time() - hours * 3_600.0
        found = []
        # What else lies below the archive's address is not this table's.
        for folder in filter(self.spec.holds, self.store.folders()):
            for info in self.store.infos(folder):
                path = info.path.lstrip("/")
                # The age of a file that was replaced is that of its transaction.
                if path not in needed and (
                    path in long_replaced or not hours or info.mtime_ns < before * 1e9
                ):
                    found.append(path)
        return found


SETTLED_SECONDS = 3_600.0
"""A day that is over and got nothing for so long has all its files merged."""

TIERS = 8
"""Each tier of file sizes is so many times the one below it; so a row is merged few times."""

SMALL = 1024 * 1024


def due(files: Iterable[File], merge_files: int, file_bytes: int) -> list[File]:
    """Enough files of a size, or all the small ones of a day that is over; none where nothing is due.

    They follow each other, so that the sequences of two files do not overlap afterwards either.
    """
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    in_order = sorted(files, key=lambda file: (file.stream, file.day, file.oldest, file.first))
    for (_, day), part in groupby(in_order, key=lambda file: (file.stream, file.day)):
        for small, several in groupby(part, key=lambda file: file.bytes < file_bytes // 2):
            if not small:
                continue
            alike = list(several)
            if found := _alike(alike, merge_files):
                return found
            settled = time.time() - max(file.written for file in alike) > SETTLED_SECONDS
            if len(alike) > 1 and day < yesterday and settled:
                return alike
    return []


def _alike(files: Sequence[File], merge_files: int) -> list[File]:
    """The first files in a row of which enough are of one size, and the others smaller."""
    sizes = [math.ceil(math.log(max(file.bytes + 1, SMALL) / SMALL, TIERS)) for file in files]
    for tier in sorted(set(sizes)):
        run: list[File] = []
        of_tier = 0
        for file, size in zip(files, sizes, strict=True):
            if size > tier:
                if of_tier >= merge_files:
                    return run
                run, of_tier = [], 0
                continue
            run.append(file)
            of_tier += size == tier
        if of_tier >= merge_files:
            return run
    return []
