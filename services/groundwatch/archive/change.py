"""A transaction in the making: the files that it adds and those that it takes away."""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from groundwatch.archive.rows import SCHEMA
from groundwatch.archive.store import BATCH, File, Snapshot, Store, plain_errors

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
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema in bounds:
                bounds[column.path_in_schema] += [column.statistics.min, column.statistics.max]
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: min(values) for name, values in bounds.items()},
        "maxValues": {name: max(values) for name, values in bounds.items()},
        "nullCount": dict.fromkeys(STATISTICS, 0),
    }
