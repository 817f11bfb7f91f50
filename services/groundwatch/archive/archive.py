"""The archive: rows go in once, are merged into larger files, and go out for good."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from groundwatch.archive.manifest import (
    Erasure,
    Manifest,
    Part,
    Retired,
    commit,
    latest,
    number_of,
    part_name,
    tidy,
)
from groundwatch.archive.merging import ROW_GROUP, due, grouped
from groundwatch.archive.rows import CLAIMS, OUTCOMES, SCHEMA, SCHEMAS, TABLES, Row, conform, to_tables
from groundwatch.archive.store import Store
from groundwatch.errors import TransientError

BATCH = 65_536
GRACE_SECONDS = 600.0
"""How long a replaced file stays for queries that have begun."""

ATTEMPTS = 20

Draft = Callable[[Manifest, int], Manifest | None]
"""The state that should follow a state, with its number; None where nothing is to be done."""


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What an addition wrote. `unreadable` are sequences whose values fit no column."""

    outcomes: int = 0
    claims: int = 0
    files: int = 0
    bytes: int = 0
    unreadable: tuple[int, ...] = ()


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure removed: rows, and files that are gone from the store."""

    outcomes: int = 0
    claims: int = 0
    files: int = 0


class Archive:
    """One archive, for one thread at a time of any number of processes."""

    def __init__(
        self,
        store: Store,
        *,
        version_tags: Sequence[str] = ("version",),
        merge_files: int = 8,
        file_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        self.store = store
        self._version_tags = version_tags
        self._merge_files = merge_files
        self._file_bytes = file_bytes
        self._known: Manifest | None = None
        self._fresh: list[str] = []
        self._lock = threading.Lock()

    def state(self) -> Manifest:
        """The present state, read anew."""
        self._known = latest(self.store)
        return self._known

    def add(self, rows: Sequence[Row], *, stream: int, position: int) -> Added:
        """Write outcomes of the stream created at `stream`, and that it has been read up to `position`.

        What the archive has already is left out, so a repeat adds nothing. An outcome that supersedes
        another takes its place. Raises what the store raises; nothing has changed then.
        """
        done = Added()

        def draft(base: Manifest, number: int) -> Manifest | None:
            nonlocal done
            come = base.position(stream)
            if position <= come:
                done = Added()
                return None
            wanted = [row for row in rows if row.sequence > come and not _erased(base.erasures, row)]
            gone = {row.supersedes for row in wanted if row.supersedes}
            wanted = [row for row in wanted if row.sequence not in gone]
            tables, unreadable = self._tables(wanted)
            written = [
                part for table in TABLES for part in self._write_days(table, tables[table], stream, number)
            ]
            kept, retired = base.parts, base.retired
            if archived := {sequence for sequence in gone if sequence <= come}:
                kept, retired, _ = self._without(
                    base,
                    number,
                    lambda part: part.stream == stream and _spans(part, archived),
                    lambda batch: pc.is_in(batch.column("sequence"), pa.array(sorted(archived), pa.int64())),
                    ("sequence",),
                )
            done = Added(
                outcomes=len(tables[OUTCOMES]),
                claims=len(tables[CLAIMS]),
                files=len(written),
                bytes=sum(part.bytes for part in written),
                unreadable=unreadable,
            )
            return msgspec.structs.replace(
                base,
                parts=(*kept, *written),
                retired=retired,
                positions={**base.positions, str(stream): position},
                erasures=tuple(one for one in base.erasures if one.stream != stream or one.until > position),
            )

        self._change(draft)
        return done

    def maintain(self) -> int:
        """Merge small files, and delete those that nothing needs any more. How many files were merged."""
        merged = 0
        while (several := due(self.state().parts, self._merge_files, self._file_bytes)) is not None:
            merged += self._merge(several)
        self._collect(GRACE_SECONDS)
        return merged

    def erase(self, erasure: Erasure) -> Erased:
        """Remove all rows that `erasure` concerns; when it returns, no file of the store holds their bytes.

        Safe to repeat after a crash at any moment. The writer leaves out what it still holds in memory.
        """
        done = Erased()

        def draft(base: Manifest, number: int) -> Manifest:
            nonlocal done
            kept, retired, counts = self._without(
                base,
                number,
                lambda part: True,
                lambda batch: _concerned(batch, erasure),
                ("key", "tenant"),
            )
            done = Erased(outcomes=counts[OUTCOMES], claims=counts[CLAIMS])
            ahead = erasure.until > base.position(erasure.stream)
            erasures = (*base.erasures, erasure) if ahead and erasure not in base.erasures else base.erasures
            return msgspec.structs.replace(base, parts=kept, retired=retired, erasures=erasures)

        self._change(draft)
        return msgspec.structs.replace(done, files=self._collect(0.0))

    def search(self, needles: Sequence[bytes]) -> list[str]:
        """The files that hold one of these byte strings, in a name, in any value, or as they lie there.

        Parquet is compressed, so its values are read and looked through; other files are as they are.
        """
        found = []
        for name in self.store.names():
            if any(needle in name.encode() for needle in needles) or self._holds(name, needles):
                found.append(name)
        return found

    def _holds(self, name: str, needles: Sequence[bytes]) -> bool:
        if not name.endswith(".parquet"):
            data = self.store.read(name)
            return any(needle in data for needle in needles)
        with self.store.open(name) as file:
            for batch in pq.ParquetFile(file).iter_batches(BATCH):
                told = msgspec.json.encode([list(row.values()) for row in batch.to_pylist()])
                if any(needle in told for needle in needles):
                    return True
        return False

    def _change(self, draft: Draft) -> Manifest:
        """Commit what `draft` makes of the present state, anew for as long as others come first."""
        with self._lock:
            base = self._known or latest(self.store)
            for _ in range(ATTEMPTS):
                self._known, self._fresh = None, []
                number = base.number + 1
                try:
                    wanted = draft(base, number)
                except BaseException:
                    self._discard()
                    raise
                if wanted is None:
                    self._known = base
                    return base
                wanted = msgspec.structs.replace(wanted, number=number)
                try:
                    commit(self.store, wanted)
                except FileExistsError:
                    # What was written for this number may not be named by a later one: it is written again.
                    self._discard()
                    base = latest(self.store)
                    continue
                except OSError:
                    # A folder tells whether it has the manifest; a store may yet take it.
                    if self.store.local and latest(self.store).number < number:
                        self._discard()
                    raise
                self._known = wanted
                return wanted
        raise TransientError(f"{self.store.url}: others change the archive faster than we can")

    def _discard(self) -> None:
        """Delete what was written for a state that does not come, at once: the disk may be full."""
        for name in self._fresh:
            with suppress(OSError):
                self.store.delete(name)

    def _tables(self, rows: Sequence[Row]) -> tuple[dict[str, pa.Table], tuple[int, ...]]:
        """Both tables; an outcome that fits no column must not keep the others out."""
        try:
            return to_tables(rows, self._version_tags), ()
        except (pa.ArrowException, OverflowError, UnicodeError):
            fitting, unreadable = [], []
            for row in rows:
                try:
                    to_tables([row], self._version_tags)
                except (pa.ArrowException, OverflowError, UnicodeError):
                    unreadable.append(row.sequence)
                else:
                    fitting.append(row)
            return to_tables(fitting, self._version_tags), tuple(unreadable)

    def _write_days(self, table: str, rows: pa.Table, stream: int, number: int) -> Iterator[Part]:
        """One file for each day and run."""
        for pair in rows.select(["day", "run"]).group_by(["day", "run"]).aggregate([]).to_pylist():
            chosen = pc.and_(pc.equal(rows["day"], pair["day"]), pc.equal(rows["run"], pair["run"]))
            name = part_name(table, pair["day"], pair["run"], number, secrets.token_hex(4))
            part = Part(
                name=name,
                table=table,
                day=pair["day"],
                run=pair["run"],
                stream=stream,
                first=0,
                last=0,
                rows=0,
                bytes=0,
                schema=SCHEMA,
            )
            yield self.write(part, rows.filter(chosen).to_batches())

    def write(self, part: Part, batches: Iterable[pa.RecordBatch]) -> Part:
        """Write a part's file; its counts are found on the way."""
        self._fresh.append(part.name)
        rows, first, last = 0, None, 0
        with (
            self.store.writing(part.name) as file,
            pq.ParquetWriter(file, SCHEMAS[part.table], compression="zstd", write_batch_size=8_192) as writer,
        ):
            for table in grouped(batches, SCHEMAS[part.table]):
                writer.write_table(table, row_group_size=ROW_GROUP)
                rows += len(table)
                bounds = pc.min_max(table["sequence"]).as_py()
                first = bounds["min"] if first is None else min(first, bounds["min"])
                last = max(last, bounds["max"])
        return msgspec.structs.replace(
            part,
            rows=rows,
            first=first or 0,
            last=last,
            bytes=self.store.size(part.name),
            created=time.time(),
        )

    def _batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """A part's rows in the present schema, some at a time."""
        with self.store.open(part.name) as file:
            for batch in pq.ParquetFile(file).iter_batches(BATCH):
                yield from conform(pa.Table.from_batches([batch]), part.table).to_batches()

    def _without(
        self,
        base: Manifest,
        number: int,
        may_hold: Callable[[Part], bool],
        unwanted: Callable[[pa.Table], pa.Array],
        columns: Sequence[str],
    ) -> tuple[tuple[Part, ...], tuple[Retired, ...], dict[str, int]]:
        """The parts less the unwanted rows, those that were replaced, and how many rows went by table."""
        kept, retired, counts = [], list(base.retired), dict.fromkeys(TABLES, 0)
        for part in base.parts:
            found = self._count(part, unwanted, columns) if may_hold(part) else 0
            if not found:
                kept.append(part)
                continue
            counts[part.table] += found
            retired.append(Retired(name=part.name, since=time.time()))
            if found < part.rows:
                name = part_name(part.table, part.day, part.run, number, secrets.token_hex(4))
                left = (
                    batch.filter(pc.invert(unwanted(pa.Table.from_batches([batch])).combine_chunks()))
                    for batch in self._batches(part)
                )
                fresh = msgspec.structs.replace(part, name=name, schema=SCHEMA)
                kept.append(self.write(fresh, left))
        return tuple(kept), tuple(retired), counts

    def _count(self, part: Part, unwanted: Callable[[pa.Table], pa.Array], columns: Sequence[str]) -> int:
        with self.store.open(part.name) as file:
            batches = pq.ParquetFile(file).iter_batches(BATCH, columns=list(columns))
            return sum(pc.sum(unwanted(pa.Table.from_batches([one]))).as_py() or 0 for one in batches)

    def _merge(self, several: Sequence[Part]) -> int:
        """Put files of one table, day and run into one."""
        merged = 0

        def draft(base: Manifest, number: int) -> Manifest | None:
            nonlocal merged
            names = {part.name for part in several}
            if not names <= {part.name for part in base.parts}:
                # Somebody else has replaced one of them meanwhile.
                merged = 0
                return None
            first = several[0]
            name = part_name(first.table, first.day, first.run, number, secrets.token_hex(4))
            batches = (batch for part in several for batch in self._batches(part))
            whole = self.write(msgspec.structs.replace(first, name=name, schema=SCHEMA), batches)
            merged = len(several)
            now = time.time()
            return msgspec.structs.replace(
                base,
                parts=(*(part for part in base.parts if part.name not in names), whole),
                retired=(*base.retired, *(Retired(name=one, since=now) for one in sorted(names))),
            )

        self._change(draft)
        return merged

    def _collect(self, grace: float) -> int:
        """Delete what was replaced more than `grace` seconds ago, and what no manifest can name."""
        listed = self.store.names()
        base = self.state()
        before = time.time() - grace
        named = {part.name for part in base.parts}
        waiting = {one.name for one in base.retired if one.since > before}
        over = [
            name
            for name in listed
            if name.startswith(tuple(f"{table}/" for table in TABLES))
            and name not in named
            and name not in waiting
            and number_of(name) <= base.number
        ]
        for name in over:
            self.store.delete(name)
        tidy(self.store, base.number)
        if any(one.name not in waiting for one in base.retired):
            self._change(
                lambda present, _: msgspec.structs.replace(
                    present, retired=tuple(one for one in present.retired if one.since > before)
                )
            )
        return len(over)


def _erased(erasures: Sequence[Erasure], row: Row) -> bool:
    return any(
        one.stream == row.stream and row.sequence <= one.until and one.concerns(row.key, row.event.tenant)
        for one in erasures
    )


def _concerned(table: pa.Table, erasure: Erasure) -> pa.Array:
    found = pc.is_in(table["key"], pa.array(erasure.keys, pa.string()))
    return pc.or_(found, pc.equal(table["tenant"], erasure.tenant)) if erasure.tenant else found


def _spans(part: Part, sequences: Iterable[int]) -> bool:
    return any(part.first <= one <= part.last for one in sequences)
