"""One Delta Lake table of the archive. Rows go in once, their files are merged, and they go out for good.

Every change is one transaction upon the state that it was made from: when another one came first it is made
anew. delta-rs offers merging and deletion too, but puts them upon whatever state it finds in the end, and
writes what a deletion looked for into its log; its writer has no checksums of pages (of 60 flipped bits 47
went unnoticed) and leaves files to the operating system: so files are written and replaced here. Its vacuum
says which files no state names, and deletes those too that a state has just come to name: so an empty
transaction is committed first, and then nobody who has written one of them may yet name it.

No text of a row stands in the log: statistics are of numbers alone, and an erasure names digests.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from groundwatch.addresses import shown_address
from groundwatch.archive.store import File, LostFileError, Store, plain_errors
from groundwatch.errors import TransientError, UsageError
from groundwatch.keys import digest
from groundwatch.topology import OUTCOMES


class Row(Protocol):
    """What the archive must know of a row, of whatever table.

    `created` tells when its stream was made, µs since the epoch: one that was made anew counts from 1 again.
    `supersedes` is the sequence of the message whose place it takes, 0 for none.
    """

    @property
    def created(self) -> int: ...

    @property
    def sequence(self) -> int: ...

    @property
    def run(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def supersedes(self) -> int: ...


class TableSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it must be. `name` is its folder below the archive's too; `created` is the column that tells
    when a row's stream was made. Files lie apart by the columns of `partition`, which the files lack.

    So many rows as `batch` are held in memory while files are rewritten or searched.
    """

    name: str
    schema: pa.Schema
    partition: tuple[str, ...]
    created: str
    batch: int

    def application(self, created: int, stream: str = OUTCOMES) -> str:
        """Whose transactions say how far this stream is archived."""
        names = (stream, str(created)) if "stream" in self.partition else (str(created),)
        return "-".join(("groundwatch", self.name, *names))

    @property
    def statistics(self) -> tuple[str, str]:
        """Columns whose lowest and highest values stand in the table's log: numbers alone."""
        return ("sequence", self.created)

    def folder_of(self, partition: Mapping[str, Any]) -> str:
        """Where the files of one part lie."""
        return "/".join(f"{name}={partition[name]}" for name in self.partition)


class ErasedRows(msgspec.Struct, frozen=True):
    """What an erasure wants the writer to leave out, by digests: no key and no run stands in the log."""

    stream: int
    until: int
    digests: frozenset[str]

    def concern(self, row: Row) -> bool:
        if row.created != self.stream or row.sequence > self.until:
            return False
        return key_digest(row.key) in self.digests or run_digest(row.run) in self.digests


class Snapshot:
    """One state of the table, with all its files; an empty one where there is no table yet."""

    def __init__(self, spec: TableSpec, store: Store, table: DeltaTable | None) -> None:
        self.spec = spec
        self.store = store
        self.table = table

    @property
    def version(self) -> int:
        """Counts up with every change, from 0; -1 without a table."""
        return self.table.version() if self.table is not None else -1

    def position(self, created: int, stream: str = OUTCOMES) -> int:
        """The last sequence of the stream created then that the table has, 0 for none."""
        if self.table is None:
            return 0
        return self.table.transaction_version(self.spec.application(created, stream)) or 0

    def files(self) -> list[File]:
        if self.table is None:
            return []
        created = self.spec.created
        return [
            File(
                path=action["path"],
                day=action["partition.day"],
                stream=action.get("partition.stream", ""),
                rows=action["num_records"],
                bytes=action["size_bytes"],
                written=action["modification_time"] / 1e3,
                first=action["min.sequence"],
                last=action["max.sequence"],
                oldest=action[f"min.{created}"],
                newest=action[f"max.{created}"],
            )
            for action in pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
        ]

    def dataset(self) -> ds.Dataset | None:
        """All rows. Raises `LostFileError`."""
        for file in self.files():
            self.store.check(file)
        return self.table.to_pyarrow_dataset(filesystem=self.store.files) if self.table is not None else None

    def scan(self, columns: Sequence[str], wanted: pc.Expression, batch: int) -> Iterator[pa.RecordBatch]:
        """These columns of rows that are wanted, `batch` at a time. Raises `LostFileError`."""
        if (data := self.dataset()) is not None:
            yield from reader(data, batch, wanted, columns)

    def erased_since(self, version: int) -> Iterator[ErasedRows]:
        """What the transactions after this version say must not be written any more."""
        if self.table is not None and self.version > version:
            for commit in self.table.history(self.version - version):
                yield from msgspec.convert(commit.get("erased", []), list[ErasedRows])


def reader(
    data: ds.Dataset, batch: int, wanted: pc.Expression | None = None, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Nothing is read ahead: else memory would grow with the number of files."""
    return data.scanner(
        columns=columns,
        filter=wanted,
        batch_size=batch,
        batch_readahead=0,
        fragment_readahead=0,
        use_threads=False,
    ).to_reader()


def key_digest(key: str) -> str:
    """What the log says in place of a response's key."""
    return digest("archive", key)[:32]


@lru_cache(maxsize=256)
def run_digest(run: str) -> str:
    """What the log says in place of a run's name."""
    return digest("archive", "run", run)[:32]


ROW_GROUP = 16_384
"""Rows of a row group at most: as many as are held in memory while a file is written."""

GROUP_BYTES = 16 * 1024 * 1024
"""A group of large rows ends earlier."""


class Change:
    """What is to become of the state `base`; nothing has changed before `commit` returns."""

    def __init__(self, store: Store, base: Snapshot) -> None:
        self.base = base
        self.metadata: dict[str, Any] = {}
        """What the log is to say of it beside."""
        self._store = store
        self._adds: list[AddAction] = []
        self._removes: list[RemoveAction] = []
        self._transactions: list[Transaction] = []

    def mark(self, name: str, version: int) -> None:
        """An application transaction of Delta Lake, such as how far a stream is archived."""
        self._transactions.append(Transaction(name, version))

    def write(
        self, rows: pa.Table | pa.RecordBatchReader, partition: Mapping[str, str], *, fresh: bool = True
    ) -> None:
        """Write one file of a part of the table, durably. `fresh` rows are new to the table."""
        spec = self.base.spec
        if isinstance(rows, pa.Table):
            rows = rows.drop_columns(list(spec.partition)).to_reader(spec.batch)
        store, folder = self._store, spec.folder_of(partition)
        path = f"{folder}/{secrets.token_hex(16)}.parquet"
        # So that it is known even if it gets no further.
        self._adds.append(AddAction(path, 0, {}, 0, fresh, ""))
        store.prepare(folder)
        with (
            store.files.open_output_stream(path) as file,
            pq.ParquetWriter(file, rows.schema, compression="zstd", write_page_checksum=True) as writer,
        ):
            for group in _groups(rows):
                writer.write_table(group, row_group_size=len(group))
        with store.files.open_input_file(path) as file:
            size, metadata = file.size(), pq.read_metadata(file)
        self._adds[-1] = AddAction(
            path=path,
            size=size,
            partition_values=dict(partition),
            modification_time=round(time.time() * 1e3),
            data_change=fresh,
            stats=msgspec.json.encode(_statistics(metadata, spec.statistics)).decode(),
        )
        store.sync([path])

    def remove(self, file: File, *, data_change: bool = True) -> None:
        self._removes.append(
            RemoveAction(
                file.path,
                data_change,
                round(time.time() * 1e3),
                size=file.bytes,
                partition_values=dict(file.partition),
            )
        )

    def remove_rows(self, files: Iterable[File], unwanted: pc.Expression) -> int:
        """Replace the files that hold unwanted rows by others without them. How many rows that were."""
        count = 0
        for file in files:
            data = self._read([file])
            if unwanted_rows := data.count_rows(filter=unwanted):
                count += unwanted_rows
                self.remove(file)
                if unwanted_rows < file.rows:
                    # Where a value is missing it is not known to be unwanted.
                    wanted = ~pc.coalesce(unwanted, pa.scalar(False))
                    self.write(self._reader(data, wanted), file.partition)
        return count

    def merge(self, files: Sequence[File]) -> None:
        in_order = sorted(files, key=lambda file: (file.oldest, file.first))
        self.write(self._reader(self._read(in_order)), files[0].partition, fresh=False)
        for file in files:
            self.remove(file, data_change=False)

    def commit(self) -> None:
        """Make it so. Raises `CommitFailedError` where the state is `base` no more."""
        table = self.base.table or self._create()
        with plain_errors(self._store):
            before = table.version()
            names = {field.name for field in table.schema().fields}
            wanted = Schema.from_arrow(self.base.spec.schema).fields
            if missing := [field for field in wanted if field.name not in names]:
                table.alter.add_columns(missing, commit_properties=CommitProperties(max_commit_retries=0))
            table.create_write_transaction(
                [*self._adds, *self._removes],
                "append",
                table.schema(),
                list(self.base.spec.partition),
                commit_properties=CommitProperties(
                    custom_metadata=self.metadata or None,
                    max_commit_retries=0,
                    app_transactions=self._transactions or None,
                ),
            )
        versions = range(before + 1, table.version() + 1)
        self._store.sync([f"_delta_log/{version:020d}.json" for version in versions])

    def discard(self, state: Snapshot) -> None:
        """Delete what was written and is not in this state, at once: the disk may be full."""
        named = {file.path for file in state.files()}
        for add in self._adds:
            if add.path not in named:
                with suppress(OSError):
                    self._store.delete([add.path])

    def _create(self) -> DeltaTable:
        self._store.prepare()
        with plain_errors(self._store):
            try:
                return DeltaTable.create(
                    self._store.address,
                    Schema.from_arrow(self.base.spec.schema),
                    partition_by=list(self.base.spec.partition),
                    configuration={
                        "delta.dataSkippingStatsColumns": ",".join(self.base.spec.statistics),
                        "delta.deletedFileRetentionDuration": "interval 1 hours",
                    },
                    storage_options=self._store.options,
                )
            except DeltaError as error:
                if DeltaTable.is_deltatable(self._store.address, self._store.options):
                    raise CommitFailedError("another one has made the table") from error
                raise

    def _read(self, files: Iterable[File]) -> ds.Dataset:
        """Rows of these files in the table's present schema; columns that they lack are null."""
        assert self.base.table is not None
        files = list(files)
        for file in files:
            self._store.check(file)
        columns = pa.schema(self.base.table.schema().to_arrow())
        return ds.dataset(
            [file.path for file in files],
            schema=pa.schema([field for field in columns if field.name not in self.base.spec.partition]),
            filesystem=self._store.files,
            format="parquet",
        )

    def _reader(self, data: ds.Dataset, wanted: pc.Expression | None = None) -> pa.RecordBatchReader:
        return reader(data, self.base.spec.batch, wanted)


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """By row groups, so that many small files do not become many small groups."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= ROW_GROUP or sum(one.nbytes for one in held) >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _statistics(metadata: pq.FileMetaData, columns: Sequence[str]) -> dict[str, Any]:
    """As the log holds them, from a file's own: of numbers alone, so that no text stands in the log."""
    bounds: dict[str, list[int]] = {name: [] for name in columns}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for at in range(group.num_columns):
            column = group.column(at)
            if column.path_in_schema in bounds:
                bounds[column.path_in_schema] += [column.statistics.min, column.statistics.max]
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: min(values) for name, values in bounds.items()},
        "maxValues": {name: max(values) for name, values in bounds.items()},
        "nullCount": dict.fromkeys(columns, 0),
    }


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


def fitting(
    rows: Sequence[R], to_table: Callable[[Sequence[R]], pa.Table]
) -> tuple[pa.Table, tuple[int, ...]]:
    """The rows as a table, and the sequences of those that fit no column: these must not keep others out."""
    try:
        return to_table(rows), ()
    except UNFIT:
        fit, unfit = [], []
        for row in rows:
            try:
                to_table([row])
            except UNFIT:
                unfit.append(row.sequence)
            else:
                fit.append(row)
        return to_table(fit), tuple(unfit)


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
        self.store = Store(url, options, folder=self.spec.name)
        self.url = shown_address(url)
        """The archive's address as it may be shown."""
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
            table, unreadable = fitting(
                [row for row in wanted if row.sequence not in superseded], self.to_table
            )
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
        if any(info.mtime_ns < before * 1e9 for info in self.store.infos()):
            raise UsageError(
                f"the log of the archive's table at {self.store.url} is gone, and its files are there: put "
                "the folder _delta_log back from the backup"
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
            self._vacuum(GRACE_HOURS)
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
        self._vacuum(0)
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

    def _vacuum(self, hours: int) -> None:
        """Delete every file of this table that no state of the last `hours` names."""
        for _ in range(ATTEMPTS):
            state = self.snapshot()
            if state.table is None:
                return
            with plain_errors(self.store):
                unnamed = state.table.vacuum(hours, full=True, enforce_retention_duration=False)
            if not unnamed:
                return
            with suppress(CommitFailedError):
                Change(self.store, state).commit()
                self.store.delete(unnamed)
                self.store.sync(unnamed, folders_only=True)
                return
        raise TransientError(f"{self.url}: others change the archive faster than we can")


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
