"""Where a table of the archive lies: the files below it, in a folder or an object store, its state, and a
transaction in the making."""

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from functools import lru_cache
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

from groundwatch.archive.place import IMAGES, Place, place
from groundwatch.archive.tables import Row, TableSpec
from groundwatch.errors import UNDECODED, UsageError
from groundwatch.keys import digest
from groundwatch.runtime.security.private_files import make_folders
from groundwatch.topology import OUTCOMES

LONGEST = 300
"""Characters of what delta-rs says."""

BETWEEN_CHECKPOINTS = 100
"""Files of the log that are read behind a checkpoint."""

SEARCHED = 256
"""Rows that are held in memory while a file is searched."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A data file of the table. `first` to `last` are sequences of the streams `oldest` to `newest`.

    `stream` is the stream's name where files of several lie apart.
    """

    path: str
    day: date
    stream: str = ""
    rows: int
    bytes: int
    written: float
    first: int
    last: int
    oldest: int
    newest: int

    @property
    def partition(self) -> dict[str, str]:
        """In which part of the table it lies."""
        return {"day": self.day.isoformat()} | ({"stream": self.stream} if self.stream else {})


class LostFileError(UsageError, FileNotFoundError):
    """A file of the table at `url` is lost or damaged; the message says what was in it, and what to do."""

    def __init__(self, url: str, file: File, why: str) -> None:
        stream = f" of {file.stream}" if file.stream else ""
        super().__init__(
            f"the archive has lost {url}/{file.path} ({' '.join(why.split())}): {file.rows:,} rows of "
            f"{file.day}, sequences {file.first:,} to {file.last:,}{stream}; put it back from the backup, "
            "under this name"
        )
        self.file, self.why = file, why


class Store:
    """Where a table lies, or all of an archive. Raises `SettingsError` for an address that cannot be."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, *, folder: str = "") -> None:
        found = place(f"{url.rstrip('/')}/{folder}" if folder else url, options)
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
        return sorted(file.path.lstrip("/") for file in self.infos(folder))

    def infos(self, folder: str = "") -> list[pafs.FileInfo]:
        """Every file below a folder, with its size and age."""
        found = self._entries(folder, recursive=True)
        return [file for file in found if file.type == pafs.FileType.File]

    def folders(self) -> list[str]:
        """The folders that lie here; nothing below them is looked at."""
        found = self._entries("", recursive=False)
        return sorted(one.path.strip("/") for one in found if one.type == pafs.FileType.Directory)

    def _entries(self, folder: str, *, recursive: bool) -> list[pafs.FileInfo]:
        if self.folder is not None and not self.folder.is_dir():
            return []
        selector = pafs.FileSelector(folder, recursive=recursive, allow_not_found=True)
        return list(self.files.get_file_info(selector))

    def delete(self, names: Iterable[str]) -> None:
        """Those that are there; what cannot be deleted raises."""
        for name in names:
            with suppress(FileNotFoundError):
                self.files.delete_file(name)

    def search(self, needles: Sequence[bytes]) -> list[str]:
        """The files that hold one of these byte strings, in a name, in any value, or as they lie there.

        Parquet is compressed, so its values are read and looked through; other files are as they are. Images
        are not looked at: each is a file of its own, by its hash.
        """
        return [
            name
            for name in self._searched()
            if any(needle in name.encode() for needle in needles) or self._holds(name, needles)
        ]

    def _searched(self) -> Iterator[str]:
        """Every file that is no image."""
        for entry in self._entries("", recursive=False):
            name = entry.path.strip("/")
            if entry.type == pafs.FileType.File:
                yield name
            elif entry.type == pafs.FileType.Directory and name != IMAGES:
                yield from self.names(name)

    def _holds(self, name: str, needles: Sequence[bytes]) -> bool:
        with self.files.open_input_file(name) as file:
            if not name.endswith(".parquet"):
                data = file.readall()
                return any(needle in data for needle in needles)
            for batch in pq.ParquetFile(file).iter_batches(SEARCHED):
                rows = [list(row.values()) for row in batch.to_pylist()]
                raw = [value for row in rows for value in row if isinstance(value, bytes)]
                texts = [[value for value in row if not isinstance(value, bytes)] for row in rows]
                whole = b"\0".join((msgspec.json.encode(texts), *raw))
                if any(needle in whole for needle in needles):
                    return True
        return False

    @contextmanager
    def open(self, file: File) -> Iterator[pa.NativeFile]:
        """A data file of the table. Raises `LostFileError` for one that is not there, or not all of it."""
        self.check(file)
        try:
            opened = self.files.open_input_file(file.path)
        except FileNotFoundError as error:
            raise LostFileError(self.url, file, "it is not there") from error
        with opened:
            yield opened

    def check(self, file: File) -> None:
        """Raises `LostFileError` for a file of a folder that is not there, is none, or has another length. Of
        a store that is known when it is read."""
        if self.folder is None:
            return
        try:
            found = (self.folder / file.path).stat()
        except OSError as error:
            raise LostFileError(self.url, file, error.strerror or "it is not there") from error
        if not stat.S_ISREG(found.st_mode):
            raise LostFileError(self.url, file, "something else has its name")
        if found.st_size != file.bytes:
            raise LostFileError(self.url, file, f"it has {found.st_size:,} of its {file.bytes:,} bytes")

    def damage(self, file: File) -> LostFileError | None:
        """Read it whole, and say what is wrong with it."""
        try:
            with (
                self.open(file) as opened,
                pq.ParquetFile(opened, page_checksum_verification=True) as parquet,
            ):
                for group in range(parquet.num_row_groups):
                    parquet.read_row_group(group, use_threads=False)
                number = parquet.metadata.num_rows
        except LostFileError as error:
            return error
        except (pa.ArrowException, OSError) as error:
            if self.folder is None and not isinstance(error, pa.ArrowException):
                # The store may be away.
                raise
            return LostFileError(self.url, file, str(error))
        return None if number == file.rows else LostFileError(self.url, file, f"it has {number:,} rows")

    def check_log(self, version: int) -> None:
        """Raises `UsageError` where one of the last files of a local log, or the next one, is empty or no
        file: delta-rs would take an older state for the present one."""
        if self.folder is None:
            return
        for number in range(max(0, version - BETWEEN_CHECKPOINTS), version + 2):
            path = self.folder / "_delta_log" / f"{number:020d}.json"
            with suppress(FileNotFoundError):
                found = path.stat()
                if not stat.S_ISREG(found.st_mode) or not found.st_size:
                    raise UsageError(self._log_damaged(path.name, "there is nothing in it"))

    def _log_damaged(self, name: str, why: str) -> str:
        return (
            f"the log of the archive's table at {self.url} is damaged: _delta_log/{name}: {why}; put this "
            "file back from the backup"
        )

    def damaged_log(self) -> str:
        """Which file of a folder's log is damaged, in a line; empty where none is seen to be."""
        if self.folder is None:
            return ""
        before = -1
        for path in sorted((self.folder / "_delta_log").glob("*.json")):
            try:
                if not path.is_file():
                    return self._log_damaged(path.name, "it is no file")
                for line in path.read_bytes().splitlines():
                    msgspec.json.decode(line)
            except (OSError, *UNDECODED) as error:
                return self._log_damaged(path.name, str(error))
            number = int(path.stem) if path.stem.isdecimal() else before + 1
            if number != before + 1 and before >= 0:
                return self._log_damaged(f"{before + 1:020d}.json", "it is not there")
            before = number
        return ""

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
def plain_errors(store: Store) -> Iterator[None]:
    """What delta-rs says, in one line without colours and stack; a disk that is full by its number. Where the
    log is damaged, which file of it."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError) as error:
        message = " ".join(re.sub(r"\x1b\[[0-9;]*m|↳", "", str(error)).split())
        message = re.sub(r" 0: \S.*", "", message)[:LONGEST]
        number = re.search(r"os error (\d+)", message)
        if isinstance(error, OSError) or number:
            raise OSError(int(number[1]) if number else errno.EIO, message) from error
        raise UsageError(store.damaged_log() or f"{store.url}: {message}") from error


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

    def erased_since(self, version: int) -> Iterator[ErasedRows]:
        """What the transactions after this version say must not be written any more."""
        if self.table is not None and self.version > version:
            for commit in self.table.history(self.version - version):
                erased = commit.get("erased", [])
                # Before there was a second table, one stream stood here.
                yield from msgspec.convert([erased] if isinstance(erased, dict) else erased, list[ErasedRows])


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
            names = {field.name for field in table.schema().fields}
            wanted = Schema.from_arrow(self.base.spec.schema).fields
            if missing := [field for field in wanted if field.name not in names]:
                table.alter.add_columns(missing, commit_properties=CommitProperties(max_commit_retries=0))
            version = table.version() + 1
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
        """Nothing is read ahead: else memory would grow with the number of files."""
        return data.scanner(
            filter=wanted,
            batch_size=self.base.spec.batch,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
        ).to_reader()


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
