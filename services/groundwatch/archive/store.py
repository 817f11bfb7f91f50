"""Where the archive lies: the files below its table, in a folder or an object store, its state, and a
transaction in the making."""

import errno
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from groundwatch.archive.place import Place, place
from groundwatch.archive.rows import SCHEMA, Row
from groundwatch.errors import UsageError
from groundwatch.events import digest
from groundwatch.runtime.security.private_files import make_folders

BATCH = 4_096
"""Rows that are held in memory while files are rewritten or searched."""


class Store:
    """Where an archive lies. Raises `SettingsError` for an address that cannot be."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        found = place(url, options)
        self.url = found.shown
        """The address as it may be shown."""
        self.address, self.options = found.url, found.options
        """The table for delta-rs."""
        self.folder = found.folder
        """Of a local archive."""
        self.files = _file_system(found)

    def prepare(self, folder: str = "") -> None:
        """Make a folder of a local archive, and the archive's own."""
        if self.folder is not None:
            make_folders(self.folder / folder)

    def names(self, folder: str = "") -> list[str]:
        """Every file below a folder, in order."""
        if self.folder is not None and not self.folder.is_dir():
            return []
        selector = pafs.FileSelector(folder, recursive=True, allow_not_found=True)
        files = self.files.get_file_info(selector)
        return sorted(file.path.lstrip("/") for file in files if file.type == pafs.FileType.File)

    def delete(self, names: Iterable[str]) -> None:
        """Those that are there; what cannot be deleted raises."""
        for name in names:
            with suppress(FileNotFoundError):
                self.files.delete_file(name)

    def search(self, needles: Sequence[bytes]) -> list[str]:
        """The files that hold one of these byte strings, in a name, in any value, or as they lie there.

        Parquet is compressed, so its values are read and looked through; other files are as they are.
        """
        return [
            name
            for name in self.names()
            if any(needle in name.encode() for needle in needles) or self._holds(name, needles)
        ]

    def _holds(self, name: str, needles: Sequence[bytes]) -> bool:
        with self.files.open_input_file(name) as file:
            if not name.endswith(".parquet"):
                data = file.readall()
                return any(needle in data for needle in needles)
            for batch in pq.ParquetFile(file).iter_batches(BATCH):
                values = msgspec.json.encode([list(row.values()) for row in batch.to_pylist()])
                if any(needle in values for needle in needles):
                    return True
        return False

    def sync(self, names: Iterable[str], *, folders_only: bool = False) -> None:
        """Have a local disk write these files, and that they are there or gone, before we go on."""
        if self.folder is None:
            return
        paths = [self.folder / name for name in names]
        folders = {folder for path in paths for folder in (path.parent, path.parent.parent)}
        for path in [*(paths if not folders_only else ()), *folders]:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


@contextmanager
def plain_errors() -> Iterator[None]:
    """What delta-rs says, in one line without colours; a disk that is full by its number."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError) as error:
        message = " ".join(re.sub(r"\x1b\[[0-9;]*m|↳", "", str(error)).split())
        number = re.search(r"os error (\d+)", message)
        if isinstance(error, OSError) or number:
            raise OSError(int(number[1]) if number else errno.EIO, message) from error
        raise UsageError(message) from error


def _file_system(place: Place) -> pafs.FileSystem:
    """The files below the table. That of delta-rs would hold up the whole process while the store answers."""
    if place.folder is not None:
        return pafs.SubTreeFileSystem(str(place.folder), pafs.LocalFileSystem())
    if not place.url.startswith("s3"):
        found, path = pafs.FileSystem.from_uri(place.url)
        return pafs.SubTreeFileSystem(path, found)
    options = {name.lower().removeprefix("aws_"): value for name, value in place.options.items()}
    endpoint = options.get("endpoint_url", options.get("endpoint", ""))
    found = pafs.S3FileSystem(
        access_key=options.get("access_key_id"),
        secret_key=options.get("secret_access_key"),
        session_token=options.get("session_token"),
        region=options.get("region", options.get("default_region")),
        endpoint_override=endpoint or None,
        request_timeout=20.0,
        connect_timeout=5.0,
    )
    return pafs.SubTreeFileSystem(place.url.partition("://")[2], found)


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A data file of the table. `first` to `last` are sequences of the streams `oldest` to `newest`."""

    path: str
    day: date
    rows: int
    bytes: int
    written: float
    first: int
    last: int
    oldest: int
    newest: int


class ErasedKeys(msgspec.Struct, frozen=True):
    """What an erasure wants the writer to leave out, by digests: no key stands in the log."""

    stream: int
    until: int
    digests: frozenset[str]

    def concern(self, row: Row) -> bool:
        return (
            row.stream == self.stream and row.sequence <= self.until and key_digest(row.key) in self.digests
        )


class Snapshot:
    """One state of the archive, with all its files; an empty one where there is no table yet."""

    def __init__(self, store: Store, table: DeltaTable | None) -> None:
        self.store = store
        self.table = table

    @property
    def version(self) -> int:
        """Counts up with every change, from 0; -1 without a table."""
        return self.table.version() if self.table is not None else -1

    def position(self, stream: int) -> int:
        """The last sequence of this stream that the archive has, 0 for none."""
        return (self.table.transaction_version(application(stream)) or 0) if self.table is not None else 0

    def files(self) -> list[File]:
        if self.table is None:
            return []
        return [
            File(
                path=action["path"],
                day=action["partition.day"],
                rows=action["num_records"],
                bytes=action["size_bytes"],
                written=action["modification_time"] / 1e3,
                first=action["min.sequence"],
                last=action["max.sequence"],
                oldest=action["min.stream"],
                newest=action["max.stream"],
            )
            for action in pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
        ]

    def dataset(self) -> ds.Dataset | None:
        return self.table.to_pyarrow_dataset(filesystem=self.store.files) if self.table is not None else None

    def erased_since(self, version: int) -> Iterator[ErasedKeys]:
        """What the transactions after this version say must not be written any more."""
        if self.table is not None and self.version > version:
            for commit in self.table.history(self.version - version):
                if (erased := commit.get("erased")) is not None:
                    yield msgspec.convert(erased, ErasedKeys)


def application(stream: int) -> str:
    """Whose transactions say how far this stream is archived."""
    return f"groundwatch-outcomes-{stream}"


def key_digest(key: str) -> str:
    """What the log says in place of a response's key."""
    return digest("archive", key)[:32]


PARTITION = ["day"]
STATISTICS = ("sequence", "stream")
CONFIGURATION: dict[str, str | None] = {
    "delta.dataSkippingStatsColumns": ",".join(STATISTICS),
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}

ROW_GROUP = 16_384
"""Outcomes of a row group: as many as are held in memory, with their claims, while a file is written."""


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

    def write(self, rows: pa.Table | pa.RecordBatchReader, day: date, *, fresh: bool = True) -> None:
        """Write one file of a day, durably. `fresh` rows are new to the table."""
        if isinstance(rows, pa.Table):
            rows = rows.drop_columns(PARTITION).to_reader(BATCH)
        store, folder = self._store, f"day={day.isoformat()}"
        path = f"{folder}/{secrets.token_hex(16)}.parquet"
        # So that it is known even if it gets no further.
        self._adds.append(AddAction(path, 0, {}, 0, fresh, ""))
        store.prepare(folder)
        with (
            store.files.open_output_stream(path) as file,
            pq.ParquetWriter(file, rows.schema, compression="zstd") as writer,
        ):
            for group in _groups(rows):
                writer.write_table(group, row_group_size=len(group))
        with store.files.open_input_file(path) as file:
            size, metadata = file.size(), pq.read_metadata(file)
        self._adds[-1] = AddAction(
            path=path,
            size=size,
            partition_values={"day": day.isoformat()},
            modification_time=round(time.time() * 1e3),
            data_change=fresh,
            stats=msgspec.json.encode(_statistics(metadata)).decode(),
        )
        store.sync([path])

    def remove(self, file: File, *, data_change: bool = True) -> None:
        self._removes.append(
            RemoveAction(
                file.path,
                data_change,
                round(time.time() * 1e3),
                size=file.bytes,
                partition_values={"day": file.day.isoformat()},
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
                    self.write(_reader(data, ~unwanted), file.day)
        return count

    def merge(self, files: Sequence[File]) -> None:
        in_order = sorted(files, key=lambda file: (file.oldest, file.first))
        self.write(_reader(self._read(in_order)), files[0].day, fresh=False)
        for file in files:
            self.remove(file, data_change=False)

    def commit(self) -> None:
        """Make it so. Raises `CommitFailedError` where the state is `base` no more."""
        table = self.base.table or self._create()
        with plain_errors():
            names = {field.name for field in table.schema().fields}
            if missing := [field for field in Schema.from_arrow(SCHEMA).fields if field.name not in names]:
                table.alter.add_columns(missing, commit_properties=CommitProperties(max_commit_retries=0))
            version = table.version() + 1
            table.create_write_transaction(
                [*self._adds, *self._removes],
                "append",
                table.schema(),
                PARTITION,
                commit_properties=CommitProperties(
                    custom_metadata=self.metadata or None,
                    max_commit_retries=0,
                    app_transactions=self._transactions or None,
                ),
            )
        self._store.sync([f"_delta_log/{version:020d}.json"])

    def discard(self, state: Snapshot) -> None:
        """Delete what was written and is not in this state, at once: the disk may be full."""
        named = {file.path for file in state.files()}
        for add in self._adds:
            if add.path not in named:
                with suppress(OSError):
                    self._store.delete([add.path])

    def _create(self) -> DeltaTable:
        self._store.prepare()
        with plain_errors():
            try:
                return DeltaTable.create(
                    self._store.address,
                    Schema.from_arrow(SCHEMA),
                    partition_by=PARTITION,
                    configuration=CONFIGURATION,
                    storage_options=self._store.options,
                )
            except DeltaError as error:
                if DeltaTable.is_deltatable(self._store.address, self._store.options):
                    raise CommitFailedError("another one has made the table") from error
                raise

    def _read(self, files: Iterable[File]) -> ds.Dataset:
        """Rows of these files in the table's present schema; columns that they lack are null."""
        assert self.base.table is not None
        columns = pa.schema(self.base.table.schema().to_arrow())
        return ds.dataset(
            [file.path for file in files],
            schema=pa.schema([field for field in columns if field.name not in PARTITION]),
            filesystem=self._store.files,
            format="parquet",
        )


def _reader(data: ds.Dataset, wanted: pc.Expression | None = None) -> pa.RecordBatchReader:
    """Nothing is read ahead: else memory would grow with the number of files."""
    return data.scanner(
        filter=wanted, batch_size=BATCH, batch_readahead=0, fragment_readahead=0, use_threads=False
    ).to_reader()


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """By row groups, so that many small files do not become many small groups."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= ROW_GROUP:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """As the log holds them, from a file's own: of numbers alone, so that no text stands in the log."""
    bounds: dict[str, list[int]] = {name: [] for name in STATISTICS}
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
        "nullCount": dict.fromkeys(STATISTICS, 0),
    }
