"""What a search reads of one file of the table: rows by their places, or of one response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from groundwatch.archive.store import File, Store

NAMES = ("run", "tenant", "model", "version", "protocol", "outcome", "reason")
"""Columns of which each combination is kept once."""


def present(parquet: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    """Those that the file has: files of before a column was there lack it."""
    names = set(parquet.schema_arrow.names)
    return [name for name in columns if name.partition(".")[0] in names]


def complete(rows: pa.Table) -> pa.Table:
    """With every column, and a name where one is missing."""
    for name in NAMES:
        if name in rows.column_names and rows[name].null_count:
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, pc.fill_null(rows[name], ""))
    if "images" not in rows.column_names:
        rows = rows.append_column("images", pa.nulls(len(rows), pa.list_(pa.string())))
    return rows


def rows_at(store: Store, file: File, places: Sequence[int]) -> Iterator[pa.Table]:
    """These rows of a file, row group by row group."""
    with store.open(file) as opened:
        parquet = pq.ParquetFile(opened)
        first = 0
        for group in range(parquet.num_row_groups):
            end = first + parquet.metadata.row_group(group).num_rows
            if inside := [place - first for place in places if first <= place < end]:
                yield parquet.read_row_group(group, use_threads=False).take(pa.array(inside))
            first = end


def rows_of_key(store: Store, file: File, key: str) -> Iterator[dict[str, Any]]:
    with store.open(file) as opened:
        parquet = pq.ParquetFile(opened)
        for group in range(parquet.num_row_groups):
            keys = parquet.read_row_group(group, ["key"], use_threads=False)["key"]
            at = pc.indices_nonzero(pc.equal(keys, key))
            if len(at):
                yield from (
                    parquet.read_row_group(group, ["subject", "time", "data"], use_threads=False)
                    .take(at)
                    .to_pylist()
                )
