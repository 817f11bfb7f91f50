"""The archive: one Delta Lake table. Rows go in once, their files are merged, and they go out for good.

Every change is one transaction upon the state that it was made from: when another one came first it is made
anew. delta-rs offers merging and deletion too, but puts them upon whatever state it finds in the end, and
writes what a deletion looked for into its log: so files are replaced here. Whoever deletes files that no
state names commits an empty transaction first: then nobody who has written one of them may yet name it.

No text of an outcome stands in the log: statistics are of numbers alone, and an erasure names digests.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from groundwatch.archive.rows import CLAIM_FIELDS, CLAIMS, OUTCOMES, SCHEMA, Row, nested, to_table
from groundwatch.archive.store import (
    Change,
    ErasedKeys,
    File,
    Snapshot,
    Store,
    application,
    key_digest,
    plain_errors,
)
from groundwatch.errors import UNDECODED, TransientError, UsageError

ATTEMPTS = 20

GRACE_HOURS = 1
"""How long a replaced file stays for queries that have begun."""

VACUUM_SECONDS = 3_600.0

OLD_FORMAT = "manifests"
CONVERTING = "groundwatch-archive-conversion"
"""The application whose transaction says that an archive of the old format is being converted."""


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What an addition wrote. `unreadable` are sequences whose values fit no column."""

    outcomes: int = 0
    claims: int = 0
    unreadable: tuple[int, ...] = ()


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What must go: responses by `events.response_key`, or all of a tenant.

    `stream` and `until` say up to which sequence of which stream: what is recorded later is another matter.
    """

    keys: tuple[str, ...] = ()
    tenant: str = ""
    stream: int = 0
    until: int = 0


class Archive:
    """One archive, for one thread at a time of any number of processes."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        *,
        version_tags: Sequence[str] = ("version",),
        merge_files: int = 8,
        file_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        """Raises `SettingsError` for an address that cannot be."""
        self.store = Store(url, options)
        self.url = self.store.url
        self.converting = False
        """Whether this one may see the archive while it is being converted."""
        self._version_tags = version_tags
        self._merge_files = merge_files
        self._file_bytes = file_bytes
        self._erased: list[ErasedKeys] = []
        self._erased_version = -1
        self._vacuumed = 0.0
        self._lock = threading.Lock()

    def snapshot(self) -> Snapshot:
        """The present state. Raises `UsageError` for an archive of the format before Delta Lake."""
        with plain_errors():
            try:
                table = DeltaTable(self.store.address, storage_options=self.store.options)
            except TableNotFoundError:
                table = None
            old = table is None or table.transaction_version(CONVERTING) is not None
            if old and not self.converting and self.store.names(OLD_FORMAT):
                raise UsageError(
                    f"the archive at {self.url} has the format before Delta Lake: "
                    "groundwatch admin archive convert"
                )
        return Snapshot(self.store, table)

    def begin(self) -> Snapshot:
        """The present state, where what will be added is read from now on: no earlier erasure concerns it."""
        state = self.snapshot()
        self._erased, self._erased_version = [], state.version
        return state

    def add(self, rows: Sequence[Row], *, stream: int, position: int) -> Added:
        """Write outcomes of the stream created at `stream`, and that it has been read up to `position`.

        What the archive has already is left out, so a repeat adds nothing. An outcome that supersedes
        another takes its place. Raises what the store raises; nothing has changed then.
        """
        added = Added()

        def draft(change: Change) -> bool:
            nonlocal added
            added = Added()
            archived = change.base.position(stream)
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
            table, unreadable = self._table([row for row in wanted if row.sequence not in superseded])
            for day in table["day"].unique():
                change.write(table.filter(pc.equal(table["day"], day)), day.as_py())
            if older := sorted(sequence for sequence in superseded if sequence <= archived):
                change.remove_rows(
                    [
                        file
                        for file in change.base.files()
                        if file.oldest <= stream <= file.newest
                        and any(file.first <= sequence <= file.last for sequence in older)
                    ],
                    (ds.field("stream") == stream) & ds.field("sequence").isin(older),
                )
            change.mark(application(stream), position)
            added = Added(
                outcomes=len(table),
                claims=pc.sum(pc.list_value_length(table[CLAIMS])).as_py() or 0,
                unreadable=unreadable,
            )
            return True

        if self.change(draft):
            # That one was ours.
            self._erased_version += 1
        self._erased = [
            erased for erased in self._erased if erased.stream != stream or erased.until > position
        ]
        return added

    def maintain(self) -> int:
        """Merge small files, and delete those that nothing needs any more. How many files were merged."""
        merged = 0
        while files := due(self.snapshot().files(), self._merge_files, self._file_bytes):
            merged += self._merge(files)
        if time.monotonic() - self._vacuumed > VACUUM_SECONDS or not self._vacuumed:
            if (table := self.snapshot().table) is not None:
                with plain_errors():
                    table.vacuum(GRACE_HOURS, dry_run=False, full=True)
            self._vacuumed = time.monotonic()
        return merged

    def erase(self, erasure: Erasure) -> int:
        """Remove all rows that `erasure` concerns; when it returns, no file of the store holds their bytes.

        How many rows that were. Safe to repeat after a crash at any moment. The writer leaves out what it
        still holds in memory.
        """
        removed = 0

        def draft(change: Change) -> bool:
            nonlocal removed
            removed = 0
            if change.base.table is None:
                return False
            concerned = ds.field("key").isin(pa.array(erasure.keys, pa.string()))
            if erasure.tenant:
                concerned |= ds.field("tenant") == erasure.tenant
            removed = change.remove_rows(change.base.files(), concerned)
            if erasure.keys and erasure.until > change.base.position(erasure.stream):
                change.metadata["erased"] = {
                    "stream": erasure.stream,
                    "until": erasure.until,
                    "digests": [key_digest(key) for key in erasure.keys],
                }
            return bool(removed or change.metadata)

        self.change(draft)
        self._delete_unnamed()
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

    def _table(self, rows: Sequence[Row]) -> tuple[pa.Table, tuple[int, ...]]:
        """The rows; an outcome that fits no column must not keep the others out."""
        try:
            return to_table(rows, self._version_tags), ()
        except (pa.ArrowException, OverflowError, UnicodeError):
            fitting, unreadable = [], []
            for row in rows:
                try:
                    to_table([row], self._version_tags)
                except (pa.ArrowException, OverflowError, UnicodeError):
                    unreadable.append(row.sequence)
                else:
                    fitting.append(row)
            return to_table(fitting, self._version_tags), tuple(unreadable)

    def _merge(self, files: Sequence[File]) -> int:
        """Put files of one day into one, unless somebody else has replaced one of them meanwhile."""

        def draft(change: Change) -> bool:
            if not {file.path for file in files} <= {file.path for file in change.base.files()}:
                return False
            change.merge(files)
            return True

        return len(files) if self.change(draft) else 0

    def _delete_unnamed(self) -> None:
        """Delete every file that the table does not name."""
        for _ in range(ATTEMPTS):
            state = self.snapshot()
            if state.table is None:
                return
            with plain_errors():
                unnamed = state.table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
            if not unnamed:
                return
            with suppress(CommitFailedError):
                Change(self.store, state).commit()
                self.store.delete(filter(None, unnamed))
                self.store.sync(unnamed, folders_only=True)
                return
        raise TransientError(f"{self.url}: others change the archive faster than we can")


SETTLED_SECONDS = 3_600.0
"""A day that is over and got nothing for so long has all its files merged."""

TIERS = 8
"""Each tier of file sizes is so many times the one below it; so a row is merged few times."""

SMALL = 1024 * 1024


def due(files: Iterable[File], merge_files: int, file_bytes: int) -> list[File]:
    """Enough files of a size, or all the small ones of a day that is over; none where nothing is due."""
    days: dict[date, list[File]] = {}
    for file in files:
        if file.bytes < file_bytes // 2:
            days.setdefault(file.day, []).append(file)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    for day, alike in days.items():
        tiers: dict[int, list[File]] = {}
        for file in alike:
            tier = math.ceil(math.log(max(file.bytes + 1, SMALL) / SMALL, TIERS))
            tiers.setdefault(tier, []).append(file)
        for several in tiers.values():
            if len(several) >= merge_files:
                return several
        settled = time.time() - max(file.written for file in alike) > SETTLED_SECONDS
        if len(alike) > 1 and day < yesterday and settled:
            return alike
    return []


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
        change.mark(application(stream), last)
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
        change.write(_table(outcomes, claims), day)
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
