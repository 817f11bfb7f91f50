"""The archive's table of outcomes, and making it from an archive of the format before Delta Lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from groundwatch.archive.rows import (
    CLAIM_FIELDS,
    CLAIMS,
    OUTCOMES,
    OUTCOMES_TABLE,
    SCHEMA,
    Row,
    nested,
    to_table,
)
from groundwatch.archive.store import Change, Store
from groundwatch.archive.table import ArchiveTable
from groundwatch.errors import UNDECODED, UsageError

OLD_FORMAT = "manifests"
CONVERTING = "groundwatch-archive-conversion"
"""The application whose transaction says that an archive of the old format is being converted."""


class Archive(ArchiveTable[Row]):
    """The outcomes of an archive, with their claims."""

    spec = OUTCOMES_TABLE

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        *,
        version_tags: Sequence[str] = ("version",),
        merge_files: int = 8,
        file_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        super().__init__(url, options, merge_files=merge_files, file_bytes=file_bytes)
        self.converting = False
        """Whether this one may see the archive while it is being converted."""
        self._version_tags = version_tags

    def to_table(self, rows: Sequence[Row]) -> pa.Table:
        return to_table(rows, self._version_tags)

    def count(self, table: pa.Table) -> dict[str, int]:
        return {OUTCOMES: len(table), CLAIMS: pc.sum(pc.list_value_length(table[CLAIMS])).as_py() or 0}

    def check(self, table: DeltaTable | None) -> None:
        old = table is None or table.transaction_version(CONVERTING) is not None
        if old and not self.converting and self.store.names(OLD_FORMAT):
            raise UsageError(
                f"the archive at {self.url} has the format before Delta Lake: "
                "groundwatch admin archive convert"
            )


_DEFAULTS = {"weight": 1.0, "drawn": 1.0, "drawn_lowest": 1.0, "stratum": "", "budget": ""}
"""Columns of which files of the first version have none."""

_PLACE = [("stream", "ascending"), ("sequence", "ascending")]


class _Part(msgspec.Struct, frozen=True):
    name: str
    table: str
    day: date


class _Manifest(msgspec.Struct, frozen=True):
    parts: tuple[_Part, ...] = ()
    positions: dict[str, int] = {}


def convert(archive: Archive) -> int:
    """Make the Delta Lake table from an archive of that format, in its place. How many outcomes it has.

    Safe to repeat after a crash at any moment; until it has ended, nothing else opens the archive. Raises
    `UsageError` where there is no archive of that format.
    """
    archive.converting = True
    store = archive.store
    names = [name for name in store.names(OLD_FORMAT) if name.endswith(".json")]
    if not names:
        raise UsageError(f"there is no archive of the format before Delta Lake at {archive.url}")
    try:
        with store.files.open_input_file(names[-1]) as file:
            manifest = msgspec.json.decode(file.readall(), type=_Manifest)
    except UNDECODED as error:
        raise UsageError(f"{archive.url}: {names[-1]} is not an archive's manifest: {error}") from error
    positions = {int(stream): last for stream, last in manifest.positions.items()}
    converted = archive.snapshot()
    if not positions or any(converted.position(stream) < last for stream, last in positions.items()):
        for day in sorted({part.day for part in manifest.parts}):
            _convert_day(archive, day, [part for part in manifest.parts if part.day == day])
        archive.change(lambda change: _finish(change, positions))
    for folder in (CLAIMS, OUTCOMES, OLD_FORMAT):
        if store.names(folder):
            store.files.delete_dir(folder)
    archive.converting = False
    return sum(file.rows for file in archive.snapshot().files())


def _finish(change: Change, positions: dict[int, int]) -> bool:
    for stream, last in positions.items():
        change.mark(OUTCOMES_TABLE.application(stream), last)
    change.mark(CONVERTING, 2)
    return True


def _convert_day(archive: Archive, day: date, parts: Sequence[_Part]) -> None:
    def draft(change: Change) -> bool:
        for file in change.base.files():
            if file.day == day:
                change.remove(file)
        outcomes, claims = (
            _read(archive.store, [part for part in parts if part.table == table])
            for table in (OUTCOMES, CLAIMS)
        )
        change.write(_table(outcomes, claims), {"day": day.isoformat()})
        change.mark(CONVERTING, 1)
        return True

    archive.change(draft)


def _read(store: Store, parts: Sequence[_Part]) -> pa.Table:
    tables = []
    for part in parts:
        with store.files.open_input_file(part.name) as file:
            tables.append(pq.read_table(file))
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})


def _table(outcomes: pa.Table, claims: pa.Table) -> pa.Table:
    """Both tables of a day as one, the claims in their outcomes."""
    outcomes = outcomes.sort_by(_PLACE)
    if len(claims):
        claims = claims.sort_by([*_PLACE, ("claim", "ascending")])
        counted = claims.group_by(["stream", "sequence"]).aggregate([([], "count_all")])
        counts = outcomes.select(["stream", "sequence"]).join(counted, ["stream", "sequence"]).sort_by(_PLACE)
        lengths = pc.fill_null(counts["count_all"], 0).to_pylist()
        fields = [claims[name].combine_chunks() for name in CLAIM_FIELDS]
    else:
        kinds = SCHEMA.field(CLAIMS).type.value_type
        lengths, fields = [0] * len(outcomes), [pa.array([], field.type) for field in kinds]
    columns = []
    for field in SCHEMA:
        if field.name == CLAIMS:
            columns.append(nested(lengths, fields))
        elif field.name in outcomes.column_names:
            values = outcomes[field.name]
            default = _DEFAULTS.get(field.name)
            columns.append((values if default is None else pc.fill_null(values, default)).cast(field.type))
        else:
            columns.append(pa.repeat(pa.scalar(_DEFAULTS.get(field.name), field.type), len(outcomes)))
    return pa.Table.from_arrays(columns, schema=SCHEMA)
