"""Finding single answers in the archive: a DuckDB in memory has of each outcome what finds and lists it.

Files of the table are immutable. So what has come is read file by file, the newest days first, and what has
gone goes with its file: an erasure, too, which replaces files. Names repeat, so each combination of them is
kept once. Ids are not compressed: to list 50 from all over the table took twice as long as finding them.
Whole answers, and words in them, are read from the files.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import reduce
from itertools import groupby, islice
from operator import or_
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from groundwatch.archive.events import Events
from groundwatch.archive.outcomes import SCHEMA, Archive, event_of
from groundwatch.archive.store import File, LostFileError, Store, plain_errors
from groundwatch.archive.table import Snapshot
from groundwatch.errors import TransientError, UsageError
from groundwatch.events import ResponseScored
from groundwatch.keys import response_key
from groundwatch.reporting.answers import (
    FACT_LENGTH,
    FACTS,
    FIELD,
    NO_DOUBT,
    NO_SCORE,
    RANKS,
    RECORD,
    SENTENCE_LENGTH,
    AnswerQuery,
    Found,
    Hit,
    HitFact,
    Rank,
    TooSlow,
)
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.times import moment_of

NAMES = ("run", "tenant", "model", "version", "protocol", "outcome", "reason")
"""Columns of which each combination is kept once."""

SEARCH_SECONDS = 5.0
"""After which a search is given up."""

EVENTS_FRESH_SECONDS = 3.0

OTHERS = -(2**63)
"""The bit of pairs of category and verdict for which no other bit is left; then their text is searched."""

MOST_BITS = 62

NAME_BITS = 63
"""Rows are told apart by their combination of names modulo this first, in one look: a list of them takes
twice as long."""

_READ = [
    *("sequence", "stream", "response_id", "key", "recorded_at", "scored_at", "tags", "score"),
    *("supported", "refuted", "units", "claims", "images"),
    *NAMES,
]

_TABLES = """
CREATE TABLE {0}.names (name BIGINT, run VARCHAR, tenant VARCHAR, model VARCHAR, version VARCHAR,
    protocol VARCHAR, outcome VARCHAR, reason VARCHAR);
CREATE TABLE {0}.answers (file INTEGER, place INTEGER, moment BIGINT, stream BIGINT, sequence BIGINT,
    name BIGINT, id VARCHAR USING COMPRESSION 'uncompressed', partition INTEGER, tags VARCHAR, bits BIGINT,
    pairs VARCHAR, score DOUBLE, refuted INTEGER, supported INTEGER, undecided INTEGER, badness DOUBLE,
    doubt DOUBLE, sentence VARCHAR, facts STRUCT("text" VARCHAR, category VARCHAR, unit INTEGER)[],
    image VARCHAR);
"""

_INSERT = f"""
INSERT INTO {{0}}.answers
SELECT {{1}}, place, coalesce(epoch_us(recorded_at), epoch_us(scored_at), 0),
    stream, sequence, name, response_id, coalesce(TRY_CAST(split_part(key, '-p', 2) AS INTEGER), 0),
    $record || array_to_string(list_transform(map_entries(tags), lambda e: e.key || $field || e.value
        || $record), ''),
    bits, CASE WHEN bits < 0 THEN $record || array_to_string(pairs, $record) || $record ELSE '' END,
    score, refuted, supported, len(list_filter(claims, lambda c: c.verdict = 'undecided')),
    coalesce(-score, {NO_SCORE}),
    coalesce(-list_min(list_transform(claims, lambda c: abs(c.probability - 0.5))), {NO_DOUBT}),
    left(coalesce(CASE WHEN len(wrong) > 0 THEN units[wrong[1].unit + 1]."text"
        ELSE list_filter(units, lambda u: u.label = 'descriptive')[1]."text" END, ''), {SENTENCE_LENGTH}),
    list_transform(wrong[1:{FACTS}], lambda c: struct_pack("text" := left(c."text", {FACT_LENGTH}),
        category := c.category, unit := c.unit)),
    coalesce(images[1], '')
FROM (
    SELECT *, coalesce(list_bit_or(list_transform(pairs,
        lambda p: coalesce(map_extract(map($pairs, $bits), p)[1], {OTHERS}))), 0) AS bits
    FROM (
        SELECT *, list_filter(claims, lambda c: c.verdict = 'refuted') AS wrong,
            list_distinct(list_transform(claims, lambda c: c.category || $field || c.verdict)) AS pairs
        FROM rows
    ))
    JOIN {{0}}.names USING ({", ".join(NAMES)})
"""


WORDS_SECONDS = 0.06
"""How long a search waits for words to be looked for."""

WORDS_GO_ON_SECONDS = 3.0
"""How long that goes on for who may ask again."""

WORDS_WAITING = 8
"""Searches for different words, one of which is looked for at a time."""

KEPT_PLACES = 2_000_000
"""Places of words that are remembered, of all searches together."""

_TEXTS = ["units.list.element.text", "claims.list.element.text"]


class _Words:
    """Where words stand, file by file; found by a thread that goes on for who asks again."""

    def __init__(self) -> None:
        self.places: dict[int, pa.Array] = {}
        self.news = threading.Condition()
        self.running = False
        self.asked = 0.0
        self.failed: Exception | None = None


class WordSearch:
    """Looks for words in one thread, for all who search."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._words: OrderedDict[tuple[str, ...], _Words] = OrderedDict()
        self._lock = threading.Lock()
        self._looking = ThreadPoolExecutor(1, "answers-words")
        self._waiting = 0
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._looking.shutdown(wait=False, cancel_futures=True)

    def find(self, query: AnswerQuery, among: Mapping[int, File]) -> tuple[pa.Table, float | None]:
        """Where all the words stand in these files, as far as is known in time, and since when it is known.

        Who asks again soon is told more.
        """
        with self._lock:
            words = self._words.pop(query.words, None) or _Words()
            self._words[query.words] = words
            while len(self._words) > 1 and self._remembered() > KEPT_PLACES:
                self._words.popitem(last=False)
        files = [(number, file) for number, file in among.items() if _covers(query, file)]
        files.sort(key=lambda one: (one[1].day, one[0]), reverse=True)
        deadline = time.monotonic() + WORDS_SECONDS
        with words.news:
            words.asked = time.monotonic()
            left = any(number not in words.places for number, _ in files)
            # Where many look for words already, who asks again may have a turn.
            if left and not words.running and self._waiting < WORDS_WAITING:
                self._waiting += 1
                words.running = True
                self._looking.submit(self._look, query.words, words, files)
            while words.running and (seconds := deadline - time.monotonic()) > 0:
                words.news.wait(seconds)
            known = dict(words.places)
            failed, words.failed = words.failed, None
        if failed is not None:
            raise failed
        searched, searched_to = [], None
        for number, file in files:
            if number in known:
                searched.append((number, known[number]))
            elif searched_to is None or query.order == "newest":
                searched_to = _end(file)
                if query.order == "newest":
                    break
        columns = (
            [
                pa.concat_arrays(
                    [pa.repeat(pa.scalar(number, pa.int32()), len(at)) for number, at in searched]
                ),
                pa.concat_arrays([at.cast(pa.int32()) for _, at in searched]),
            ]
            if searched
            else [pa.array([], pa.int32())] * 2
        )
        return pa.table(columns, ["file", "place"]), searched_to

    def _remembered(self) -> int:
        return sum(len(at) for words in self._words.values() for at in list(words.places.values()))

    def _look(self, wanted: tuple[str, ...], words: _Words, files: Sequence[tuple[int, File]]) -> None:
        try:
            for number, file in files:
                if self._closed or time.monotonic() > words.asked + WORDS_GO_ON_SECONDS:
                    return
                if number not in words.places:
                    places = _word_places(self._archive.store, file, wanted)
                    with words.news:
                        words.places[number] = places
                        words.news.notify_all()
        except FileNotFoundError:
            # It was replaced meanwhile, and the next refresh knows the one in its place.
            return
        except Exception as error:
            words.failed = TransientError(f"the archive at {self._archive.url} cannot be read: {error}")
        finally:
            self._waiting -= 1
            with words.news:
                words.running = False
                words.news.notify_all()


def _word_places(store: Store, file: File, words: Sequence[str]) -> pa.Array:
    """The rows of a file in which each of these words stands somewhere."""
    found = []
    with store.open(file) as opened:
        parquet = pq.ParquetFile(opened)
        first = 0
        for group in range(parquet.num_row_groups):
            rows = parquet.read_row_group(group, _TEXTS, use_threads=False)
            masks = [_has(rows, word) for word in words]
            found.append(pc.add(pc.indices_nonzero(reduce(pc.and_, masks)).cast(pa.int64()), first))
            first += len(rows)
    return pa.concat_arrays(found) if found else pa.array([], pa.int64())


def _has(rows: pa.Table, word: str) -> pa.Array:
    """Which rows have a word in one of their texts."""
    mask = None
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        texts = pc.struct_field(pc.list_flatten(column), "text")
        at = pc.list_parent_indices(column).filter(pc.match_substring(pc.utf8_lower(texts), word))
        inside = pc.is_in(pa.array(range(len(rows)), pa.int64()), at.cast(pa.int64()))
        mask = inside if mask is None else pc.or_(mask, inside)
    return mask


def _covers(query: AnswerQuery, file: File) -> bool:
    """Whether a file may have something of the time that is asked for; a file of no moment has any."""
    since = moment_of(query.since).date() - timedelta(days=1) if query.since is not None else file.day
    until = moment_of(query.until).date() if query.until is not None else file.day
    return since <= file.day <= until


def _end(file: File) -> float:
    """When the day of a file ends, in seconds since the epoch."""
    return (file.day - moment_of(0).date() + timedelta(days=1)).total_seconds()


class ArchivedAnswers:
    """`groundwatch.reporting.answers.Archived` over an archive."""

    def __init__(self, settings: ArchiveSettings) -> None:
        """Raises `SettingsError` for an address that cannot be."""
        self._settings = settings
        self._archive = Archive(settings.url, settings.options)
        self._events: Events | None = None
        self._recorded: tuple[float, Snapshot | None, list[File]] = (0.0, None, [])
        self._duck = duckdb.connect(
            ":memory:",
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False, "threads": 1},
        )
        self._duck.execute("SET parquet_metadata_cache = true")
        self._duck.execute("SET TimeZone = 'UTC'")
        self._at = _attach(self._duck)
        for statement in filter(str.strip, _TABLES.format(self._at).split(";")):
            self._duck.execute(statement)
        self._names: dict[tuple[str, ...], int] = {}
        self._pairs: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._files: dict[int, File] = {}
        self._snapshot: Snapshot | None = None
        self._probe: DeltaTable | None = None
        self._complete = False
        self._unpacked = False
        self._words = WordSearch(self._archive)
        self._closed = False

    @property
    def complete(self) -> bool:
        return self._complete

    def close(self) -> None:
        self._closed = True
        self._words.close()

    def problem(self) -> str:
        events = self._events or Events(self._settings.url, self._settings.options)
        return self._archive.problem() or events.problem()

    def look(self) -> None:
        with self._read_errors():
            self._snapshot = self._archive.snapshot()

    def refresh(self) -> None:
        with self._read_errors():
            if self._complete and not self._changed():
                self._pack()
                return
            snapshot = self._archive.snapshot()
            wanted = {file.path: file for file in snapshot.files()}
            new = [file for path, file in wanted.items() if path not in self._numbers]
            gone = [number for path, number in self._numbers.items() if path not in wanted]
            gone_by_day = {
                day: list(several)
                for day, several in groupby(
                    sorted(gone, key=lambda number: self._files[number].day),
                    key=lambda number: self._files[number].day,
                )
            }
            days = {file.day for file in new} | set(gone_by_day)
            for day in sorted(days, reverse=True):
                if self._closed:
                    return
                self._change([file for file in new if file.day == day], gone_by_day.get(day, []))
            self._unpacked = self._unpacked or bool(days)
            self._snapshot, self._complete = snapshot, True
            self._pack()

    def _pack(self) -> None:
        """Compress what has come. Not while somebody searches: then with the next time."""
        if self._unpacked:
            with suppress(duckdb.TransactionException):
                self._duck.cursor().execute(f"CHECKPOINT {self._at}")
                self._unpacked = False

    def _changed(self) -> bool:
        """Whether the table has another version by now: asked of a handle of its own, which costs little."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.table is None:
            return True
        with plain_errors(self._archive.store):
            if self._probe is None:
                store = self._archive.store
                self._probe = DeltaTable(store.address, storage_options=store.options)
            probe, self._probe = self._probe, None
            probe.update_incremental()
            self._probe = probe
        return probe.version() != snapshot.version

    def position(self, created: int) -> int:
        snapshot = self._snapshot
        return snapshot.position(created) if snapshot is not None else 0

    def search(self, query: AnswerQuery, after: Rank | None, most: int) -> Found:
        names = self._named(query)
        if not names:
            return Found([])
        conditions, values = query.conditions(after)
        if query.category or query.verdict:
            condition, more = self._with_pairs(query)
            conditions.append(condition)
            values += more
        if len(names) < len(self._names):
            conditions += _with_names(names, len(self._names))
        searched_to = None
        duck = self._duck.cursor()
        if query.words:
            places, searched_to = self._words.find(query, dict(self._files))
            if not len(places):
                return Found([], searched_to)
            duck.register("places", places)
            conditions.append("(file, place) IN (SELECT (file, place) FROM places)")
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        order = ", ".join(f"{column} DESC" for column in RANKS[query.order])
        # Numbers of rows are right within one transaction.
        duck.execute("BEGIN")
        with _in_time(duck):
            found = duck.execute(
                f"SELECT rowid FROM {self._at}.answers {where} ORDER BY {order} LIMIT {most}", values
            ).fetchall()
            if not found:
                duck.execute("COMMIT")
                return Found([], searched_to)
            # By a subquery it fetches these rows alone; by a list it would look at all.
            listed = duck.execute(
                f"SELECT {', '.join(_LISTED)} FROM {self._at}.answers WHERE rowid IN (SELECT unnest(?))",
                [[row for (row,) in found]],
            ).fetchall()
            duck.execute("COMMIT")
        combinations = list(self._names)
        hits = [_hit(row, combinations) for row in listed]
        return Found(sorted(hits, key=lambda hit: hit.rank(query.order), reverse=True), searched_to)

    def outcomes(self, hits: Sequence[Hit]) -> list[ResponseScored]:
        if not hits:
            return []
        wanted = {(hit.stream, hit.sequence) for hit in hits}
        # By pairs it would take ten times as long.
        listed = ", ".join(str(hit.sequence) for hit in hits)
        sql = f"SELECT stream, sequence, file, place FROM {self._at}.answers WHERE sequence IN ({listed})"
        rows = self._duck.cursor().execute(sql).fetchall()
        places = sorted((file, place) for *where, file, place in rows if tuple(where) in wanted)
        found: list[ResponseScored] = []
        with self._read_errors():
            for number, several in groupby(places, key=lambda row: row[0]):
                found += map(event_of, self._rows_at(self._files[number], [place for _, place in several]))
        return found

    def _rows_at(self, file: File, places: Sequence[int]) -> list[dict[str, Any]]:
        """These rows of a file."""
        store = self._archive.store
        if store.folder is None:
            found: list[dict[str, Any]] = []
            for rows in rows_at(store, file, places):
                found += rows.to_pylist(maps_as_pydicts="strict")
            return found
        store.check(file)
        # It decodes no other rows; Arrow decodes all of a row group.
        listed = ", ".join(map(str, places))
        return self._queried(
            "SELECT * FROM read_parquet(?, file_row_number = true, hive_partitioning = false) "
            f"WHERE file_row_number IN ({listed})",
            [str(store.folder / file.path)],
        )

    def _of_key(self, store: Store, file: File, key: str) -> list[dict[str, Any]]:
        """The messages of a response in a file."""
        if store.folder is None:
            return list(rows_of_key(store, file, key))
        store.check(file)
        return self._queried(
            "SELECT subject, time, data FROM read_parquet(?, hive_partitioning = false) WHERE key = ?",
            [str(store.folder / file.path), key],
        )

    def _queried(self, sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
        """Raises `FileNotFoundError` for a file that is not there any more."""
        duck = self._duck.cursor()
        try:
            rows = duck.execute(sql, parameters).fetchall()
        except duckdb.IOException as error:
            raise FileNotFoundError(str(error)) from error
        names = [one[0] for one in duck.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def messages(self, key: str, moment: float) -> list[tuple[str, str, bytes, float]]:
        """Of the day of that moment and those beside it."""
        day = moment_of(moment).date()
        first, last = day - timedelta(days=1), day + timedelta(days=1)
        found = []
        with self._read_errors():
            store, files = self._recorded_files()
            for file in files:
                if first <= file.day <= last:
                    for row in self._of_key(store, file, key):
                        found.append((file.stream, row["subject"], row["data"], row["time"].timestamp()))
        return sorted(found, key=lambda one: one[3])

    def _recorded_files(self) -> tuple[Store, list[File]]:
        if self._events is None:
            self._events = Events(self._settings.url, self._settings.options)
        at, snapshot, files = self._recorded
        if snapshot is None or time.monotonic() - at > EVENTS_FRESH_SECONDS:
            snapshot = self._events.snapshot()
            files = snapshot.files()
            self._recorded = (time.monotonic(), snapshot, files)
        return self._events.store, files

    def _change(self, new: Sequence[File], gone: Sequence[int]) -> None:
        """Take in and let go of files of one day, in one transaction."""
        duck = self._duck.cursor()
        duck.execute("BEGIN")
        numbers, named = {}, len(self._names)
        try:
            for file in new:
                number = max(self._files, default=0) + 1
                numbers[file.path] = number
                self._files[number] = file
                self._load(duck, number, file)
            if gone:
                listed = ", ".join(map(str, gone))
                duck.execute(f"DELETE FROM {self._at}.answers WHERE file IN ({listed})")
            duck.execute("COMMIT")
        except BaseException:
            duck.execute("ROLLBACK")
            for number in numbers.values():
                del self._files[number]
            self._names = dict(islice(self._names.items(), named))
            raise
        self._numbers.update(numbers)
        for number in gone:
            del self._numbers[self._files.pop(number).path]

    def _load(self, duck: duckdb.DuckDBPyConnection, number: int, file: File) -> None:
        insert = _INSERT.format(self._at, number)
        with self._archive.store.open(file) as opened:
            parquet = pq.ParquetFile(opened)
            place = 0
            for group in range(parquet.num_row_groups):
                rows = parquet.read_row_group(group, _READ, use_threads=False)
                for name in set(_READ) - set(rows.column_names):
                    rows = rows.append_column(name, pa.nulls(len(rows), SCHEMA.field(name).type))
                self._add_names(duck, rows)
                self._add_pairs(rows)
                places = pa.array(range(place, place + len(rows)), pa.int32())
                duck.register("rows", rows.append_column("place", places))
                duck.execute(
                    insert,
                    {
                        "record": RECORD,
                        "field": FIELD,
                        "pairs": list(self._pairs),
                        "bits": list(self._pairs.values()),
                    },
                )
                duck.unregister("rows")
                place += len(rows)

    def _add_names(self, duck: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
        columns = list(NAMES)
        new = []
        for row in rows.select(columns).group_by(columns).aggregate([]).to_pylist():
            combination = tuple(row[name] for name in columns)
            if combination not in self._names:
                self._names[combination] = len(self._names)
                new.append((self._names[combination], *combination))
        if new:
            duck.executemany(f"INSERT INTO {self._at}.names VALUES (?, ?, ?, ?, ?, ?, ?, ?)", new)

    def _add_pairs(self, rows: pa.Table) -> None:
        """Give each new pair of category and verdict a bit of its own, while there are some."""
        claims = pc.list_flatten(rows["claims"].combine_chunks())
        if not len(claims):
            return
        names = pa.table({name: pc.struct_field(claims, name) for name in ("category", "verdict")})
        for row in names.group_by(["category", "verdict"]).aggregate([]).to_pylist():
            pair = f"{row['category']}{FIELD}{row['verdict']}"
            if pair not in self._pairs and len(self._pairs) < MOST_BITS:
                self._pairs[pair] = 1 << len(self._pairs)

    def _with_pairs(self, query: AnswerQuery) -> tuple[str, list[Any]]:
        """The condition for category and verdict."""
        bits = 0
        for pair, bit in list(self._pairs.items()):
            category, _, verdict = pair.partition(FIELD)
            if query.category in ("", category) and query.verdict in ("", verdict):
                bits |= bit
        condition, values = query.pairs_condition()
        return f"((bits & ?) <> 0 OR (bits < 0 AND {condition}))", [bits, *values]

    def _named(self, query: AnswerQuery) -> list[int]:
        same = [(NAMES.index(name), value) for name, value in query.same.items()]
        return [
            number
            for combination, number in list(self._names.items())
            if all(combination[at] == value for at, value in same)
        ]

    @contextmanager
    def _read_errors(self) -> Iterator[None]:
        try:
            yield
        except LostFileError as error:
            self._complete = False
            raise TransientError(str(error)) from error
        except FileNotFoundError as error:
            self._complete = False
            raise TransientError("files of the archive were replaced at this moment: try again") from error
        except (OSError, UsageError) as error:
            raise TransientError(f"the archive at {self._archive.url} cannot be read: {error}") from error


_LISTED = (
    *("moment", "stream", "sequence", "id", "partition", "score", "refuted", "supported", "undecided"),
    *("badness", "doubt", "sentence", "facts", "image", "name"),
)


def _hit(row: Sequence[Any], combinations: Sequence[Sequence[str]]) -> Hit:
    """`combinations` of names, by their numbers."""
    values = dict(zip(_LISTED, row, strict=True))
    values |= zip(NAMES, combinations[values.pop("name")], strict=True)
    facts = tuple(HitFact(**fact) for fact in values.pop("facts") or ())
    key = response_key(values["tenant"], values["id"], values.pop("partition"))
    return Hit(**values, key=key, facts=facts)


def _with_names(names: Sequence[int], number: int) -> list[str]:
    """The conditions for any of these of so many combinations of names."""
    bits = reduce(or_, (1 << name % NAME_BITS for name in names))
    found = [f"(({bits}::BIGINT >> (name % {NAME_BITS})) & 1) = 1"]
    if number > NAME_BITS:
        found.append(f"name IN ({', '.join(map(str, names))})")
    return found


def _attach(duck: duckdb.DuckDBPyConnection) -> str:
    """A database in memory that is compressed, where this version has one."""
    try:
        duck.execute("ATTACH ':memory:' AS small (COMPRESS)")
    except duckdb.Error:
        return "memory"
    return "small"


@contextmanager
def _in_time(duck: duckdb.DuckDBPyConnection) -> Iterator[None]:
    timer = threading.Timer(SEARCH_SECONDS, duck.interrupt)
    timer.start()
    try:
        yield
    except duckdb.InterruptException as error:
        raise TooSlow("this takes too long: narrow it, by time, model or protocol") from error
    finally:
        timer.cancel()


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
