"""Which files should become one, and how their rows are grouped in it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from groundwatch.archive.manifest import Part

ROW_GROUP = 122_880
"""Rows of a row group: what DuckDB reads at a time."""

SETTLED_SECONDS = 3_600.0
"""A day that is over and got nothing for so long has all its files merged."""

TIERS = 8
"""Each tier of file sizes is so many times the one below it; so a row is merged few times."""

SMALL = 1024 * 1024


def due(parts: Sequence[Part], merge_files: int, file_bytes: int) -> tuple[Part, ...] | None:
    """Files that should become one: enough of a size, or all the small ones of a day that is over."""
    groups: dict[tuple[object, ...], list[Part]] = {}
    for part in parts:
        if part.bytes < file_bytes // 2:
            groups.setdefault((part.table, part.day, part.run, part.stream), []).append(part)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    for alike in groups.values():
        tiers: dict[int, list[Part]] = {}
        for part in alike:
            tiers.setdefault(_tier(part.bytes), []).append(part)
        for several in tiers.values():
            if len(several) >= merge_files:
                return tuple(several)
        settled = time.time() - max(part.created for part in alike) > SETTLED_SECONDS
        if len(alike) > 1 and alike[0].day < yesterday and settled:
            return tuple(alike)
    return None


def _tier(size: int) -> int:
    tier, limit = 0, SMALL
    while size >= limit:
        tier, limit = tier + 1, limit * TIERS
    return tier


def grouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The batches by whole row groups, so that many small files do not become many small groups."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows += batch.num_rows
        while rows >= ROW_GROUP:
            table = pa.Table.from_batches(held, schema)
            yield table.slice(0, ROW_GROUP)
            held, rows = table.slice(ROW_GROUP).to_batches(), rows - ROW_GROUP
    if rows:
        yield pa.Table.from_batches(held, schema)
