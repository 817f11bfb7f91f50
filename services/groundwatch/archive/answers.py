"""Finding answers: a DuckDB in memory has of each outcome what finds and lists it, archived or not.

Files of the table are immutable. So what has come is read file by file, the newest days first, and what has
gone goes with its file: an erasure, too, which replaces files. What no file has yet comes from the stream, as
the same rows, with its text; it goes when a file has it. Words in what is archived, and whole outcomes, are
read from the files. (Over a million outcomes, views of the files took 0.2 to 1.3 s for what takes 5 to 50 ms
here.) Ids are not compressed: to list 50 from all over the table took twice as long as finding them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial, reduce
from importlib import resources
from itertools import groupby
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from groundwatch.addresses import shown_address
from groundwatch.archive.events import Events
from groundwatch.archive.outcomes import SCHEMA, Archive, event_of, row_of, to_table
from groundwatch.archive.place import SWITCHED_OFF
from groundwatch.archive.store import File, LostFileError, Store, plain_errors
from groundwatch.archive.table import Snapshot, fitting
from groundwatch.errors import UNDECODED, TransientError, UsageError
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
    Facets,
    Found,
    Hit,
    HitFact,
    Rank,
    TooSlow,
)
from groundwatch.runtime.delivery.streams import Read
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.times import moment_of

KEPT = 100_000
"""Outcomes at most that no file has, the latest."""

SEARCH_SECONDS = 5.0
"""After which a search is given up."""

EVENTS_FRESH_SECONDS = 3.0

OTHERS = -(2**63)
"""The bit of pairs of category and verdict for which no other bit is left; then their text is searched."""

MOST_BITS = 62

_READ = [
    *("sequence", "stream", "run", "tenant", "model", "version", "protocol", "outcome", "response_id", "key"),
    *("recorded_at", "scored_at", "tags", "reason", "score", "supported", "refuted", "units", "images"),
    "claims",
]

COUNTED = ("model", "version", "protocol")
"""Columns whose values are counted."""

_LISTED = (
    *("id", "tenant", "run", "model", "version", "protocol", "partition", "outcome", "reason", "moment"),
    *("stream", "sequence", "score", "refuted", "supported", "undecided", "badness", "doubt", "sentence"),
    *("facts", "image"),
)

_TABLE, _INSERT = resources.files(__package__).joinpath("answers.sql").read_text("utf-8").split(";")
_SHOWN = {
    "no_score": NO_SCORE,
    "no_doubt": NO_DOUBT,
    "facts": FACTS,
    "fact_length": FACT_LENGTH,
    "sentence_length": SENTENCE_LENGTH,
    "others": OTHERS,
    "record": RECORD,
    "field": FIELD,
}

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
    """Looks for words in files, in one thread for all who search.

    `read` gives the rows of a file in which each of some words stands.
    """

    def __init__(self, read: Callable[[File, Sequence[str]], pa.Array]) -> None:
        self._read = read
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
        files = sorted(among.items(), key=lambda one: (one[1].day, one[0]), reverse=True)
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
        numbers = [pa.repeat(pa.scalar(number, pa.int32()), len(at)) for number, at in searched]
        columns = [
            pa.concat_arrays([pa.array([], pa.int32()), *numbers]),
            pa.concat_arrays([pa.array([], pa.int64()), *(at for _, at in searched)]),
        ]
        return pa.table(columns, ["file", "place"]), searched_to

    def _remembered(self) -> int:
        return sum(len(at) for words in self._words.values() for at in list(words.places.values()))

    def _look(self, wanted: tuple[str, ...], words: _Words, files: Sequence[tuple[int, File]]) -> None:
        try:
            for number, file in files:
                if self._closed or time.monotonic() > words.asked + WORDS_GO_ON_SECONDS:
                    return
                if number not in words.places:
                    places = self._read(file, wanted)
                    with words.news:
                        words.places[number] = places
                        words.news.notify_all()
        except FileNotFoundError:
            # It was replaced meanwhile, and the next refresh knows the one in its place.
            return
        except Exception as error:
            words.failed = TransientError(f"the archive cannot be searched for words: {error}")
        finally:
            self._waiting -= 1
            with words.news:
                words.running = False
                words.news.notify_all()


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


def _end(file: File) -> float:
    """When the day of a file ends, in seconds since the epoch."""
    return (file.day - moment_of(0).date() + timedelta(days=1)).total_seconds()


class AnswerIndex:
    """`groundwatch.gateway.answers.Index`, over the archive of these settings where they have one."""

    def __init__(self, settings: ArchiveSettings, version_tags: Sequence[str], kept: int = KEPT) -> None:
        """Raises `SettingsError` for an address that cannot be."""
        self._settings = settings
        self._url = shown_address(settings.url)
        self._version_tags = version_tags
        self._kept = kept
        there = settings.url not in ("", SWITCHED_OFF)
        self._archive = Archive(settings.url, settings.options) if there else None
        self._events: Events | None = None
        self._recorded: tuple[float, Snapshot | None, list[File]] = (0.0, None, [])
        self._duck = duckdb.connect(
            ":memory:",
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False, "threads": 1},
        )
        self._duck.execute("SET parquet_metadata_cache = true")
        self._duck.execute("SET TimeZone = 'UTC'")
        # In memory too a database may be compressed.
        self._duck.execute("ATTACH ':memory:' AS small (COMPRESS)")
        self._duck.execute(_TABLE)
        self._writing = threading.Lock()
        self._pairs: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._files: dict[int, File] = {}
        self._last_number = 0
        self._added = 0
        self._followed: dict[int, int] = {}
        self._cuts: dict[int, tuple[int, float]] = {}
        self._superseded: dict[tuple[int, int], int] = {}
        self._snapshot: Snapshot | None = None
        self._probe: DeltaTable | None = None
        self._complete = not there
        self._unpacked = False
        self._words = WordSearch(self._word_places)
        self._closed = False

    @property
    def complete(self) -> bool:
        return self._complete

    def close(self) -> None:
        self._closed = True
        self._words.close()

    def problem(self) -> str:
        if self._archive is None:
            return ""
        events = self._events or Events(self._settings.url, self._settings.options)
        return self._archive.problem() or events.problem()

    def look(self) -> None:
        if self._archive is not None:
            with self._read_errors():
                self._snapshot = self._archive.snapshot()

    def refresh(self) -> None:
        if self._archive is not None:
            with self._read_errors():
                self._take_in(self._archive)
        self._trim()
        self._pack()

    def _take_in(self, archive: Archive) -> None:
        if self._complete and not self._changed(archive):
            return
        snapshot = archive.snapshot()
        wanted = {file.path: file for file in snapshot.files()}
        new = [file for path, file in wanted.items() if path not in self._numbers]
        gone = [number for path, number in self._numbers.items() if path not in wanted]
        with self._writing:
            # What files have is taken from them, also what is on its way from the stream.
            for created, sequence in self._followed.items():
                self._followed[created] = max(sequence, snapshot.position(created))
        days = {file.day for file in new} | {self._files[number].day for number in gone}
        for day in sorted(days, reverse=True):
            if self._closed:
                return
            self._change(
                archive,
                [file for file in new if file.day == day],
                [number for number in gone if self._files[number].day == day],
            )
        self._snapshot, self._complete = snapshot, True

    def _changed(self, archive: Archive) -> bool:
        """Whether the table has another version by now: asked of a handle of its own, which costs little."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.table is None:
            return True
        store = archive.store
        with plain_errors(store):
            if self._probe is None:
                self._probe = DeltaTable(store.address, storage_options=store.options)
            probe, self._probe = self._probe, None
            probe.update_incremental()
            self._probe = probe
        return probe.version() != snapshot.version

    def _trim(self) -> None:
        """Let go of what the archive has, and of what is too much."""
        with self._changing() as duck:
            here = duck.execute(
                "SELECT stream, count(*) FROM small.answers WHERE file = 0 GROUP BY stream"
            ).fetchall()
            for stream, _ in here:
                duck.execute(
                    "DELETE FROM small.answers WHERE file = 0 AND stream = ? AND sequence <= ?",
                    [stream, self._archived(stream)],
                )
            if sum(number for _, number in here) > self._kept:
                beyond = duck.execute(
                    f"SELECT moment FROM small.answers WHERE file = 0 ORDER BY moment DESC "
                    f"LIMIT 1 OFFSET {self._kept}"
                ).fetchall()
                for (moment,) in beyond:
                    gone = duck.execute(
                        "DELETE FROM small.answers WHERE file = 0 AND moment <= ? RETURNING stream, sequence",
                        [moment],
                    ).fetchall()
                    for stream, sequence in gone:
                        self.skip(stream, sequence, moment / 1e6)
            self._superseded = {
                place: by for place, by in self._superseded.items() if by > self._archived(place[0])
            }

    def _pack(self) -> None:
        """Compress what has come. Not while somebody searches: then with the next time."""
        if self._unpacked:
            with suppress(duckdb.TransactionException), self._writing:
                self._duck.cursor().execute("CHECKPOINT small")
                self._unpacked = False

    def _archived(self, created: int) -> int:
        snapshot = self._snapshot
        return snapshot.position(created) if snapshot is not None else 0

    def position(self, created: int) -> int:
        return max(self._archived(created), self._followed.get(created, 0))

    def add(self, created: int, messages: Sequence[Read]) -> None:
        with self._changing() as duck:
            rows, followed = [], self.position(created)
            for read in messages:
                if read.sequence > followed:
                    try:
                        rows.append(row_of(read, created))
                    except UNDECODED as error:
                        logger.warning("gateway.answer_unread", subject=read.subject, error=str(error))
            table, unfit = fitting(rows, partial(to_table, version_tags=self._version_tags))
            if unfit:
                logger.warning("gateway.answer_unread", stream=created, sequences=unfit)
            superseded = {(created, row.supersedes): row.sequence for row in rows if row.supersedes}
            self._insert(duck, table.select(_READ), 0, self._added)
            self._added += len(table)
            self._remove(duck, superseded)
            self._superseded |= superseded
            self._followed[created] = max(followed, messages[-1].sequence)

    def skip(self, created: int, sequence: int, moment: float) -> None:
        before, until = self._cuts.get(created, (0, 0.0))
        self._cuts[created] = (max(before, sequence), max(until, moment))

    def forget(self, gone: Callable[[str, str], bool]) -> None:
        with self._changing() as duck:
            rows = duck.execute(
                "SELECT DISTINCT tenant, id, partition FROM small.answers WHERE file = 0"
            ).fetchall()
            for tenant, name, partition in rows:
                if gone(response_key(tenant, name, partition), tenant):
                    duck.execute(
                        "DELETE FROM small.answers WHERE file = 0 AND tenant = ? AND id = ?",
                        [tenant, name],
                    )

    def search(self, query: AnswerQuery, after: Rank | None, most: int, back: bool = False) -> Found:
        with self._matching(query, after, back) as (duck, where, values, cuts):
            order = ", ".join(f"{column} {'ASC' if back else 'DESC'}" for column in RANKS[query.order])
            # Columns that are only listed are read of these rows alone.
            wanted = f"SELECT rowid FROM small.answers {where} ORDER BY {order} LIMIT {most}"
            rows = duck.execute(
                f"SELECT {', '.join(_LISTED)} FROM small.answers WHERE rowid IN ({wanted}) ORDER BY {order}",
                values,
            ).fetchall()
        hits, searched_to = [_hit(row) for row in rows], max(cuts, default=None)
        if query.order == "newest" and searched_to is not None:
            hits = [hit for hit in hits if hit.recorded_at >= searched_to]
        return Found(hits, searched_to)

    def count(self, query: AnswerQuery) -> Facets:
        counts: dict[str, dict[str, int]] = {name: {} for name in COUNTED}
        reasons: list[tuple[str, str, int]] = []
        with self._matching(query) as (duck, where, values, _):
            rows = duck.execute(
                f"SELECT {', '.join(COUNTED)}, outcome, reason, bit_or(bits), count(*) AS number "
                f"FROM small.answers {where} "
                f"GROUP BY GROUPING SETS ({', '.join(f'({name})' for name in COUNTED)}, (outcome, reason)) "
                "ORDER BY number DESC",
                values,
            ).fetchall()
        bits = 0
        for *names, outcome, reason, some, number in rows:
            bits |= some or 0
            if outcome is not None:
                reasons.append((outcome, reason or "", number))
            for name, value in zip(COUNTED, names, strict=True):
                if value:
                    counts[name][value] = number
        pairs = [pair for pair, bit in self._pairs.copy().items() if bits & bit]
        counts["category"] = dict.fromkeys(sorted({pair.partition(FIELD)[0] for pair in pairs}), 0)
        return Facets(sum(number for *_, number in reasons), reasons, counts)

    @contextmanager
    def _matching(
        self, query: AnswerQuery, after: Rank | None = None, back: bool = False
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, str, list[Any], list[float]]]:
        """A transaction, the condition for what is asked with its parameters, and before when there may be
        more."""
        conditions, values = query.conditions(after, back)
        if query.category or query.verdict:
            condition, more = self._with_pairs(query)
            conditions.append(condition)
            values += more
        # Before when there may be others, neither here nor in the archive.
        cuts = [
            moment
            for created, (until, moment) in self._cuts.copy().items()
            if self._archived(created) < until
        ]
        files = dict(self._files)
        with self._duck.cursor() as duck, _in_time(duck):
            duck.execute("BEGIN")
            duck.execute("FROM small.answers LIMIT 0")
            if query.words:
                # What is in a file now was in one of these when the transaction began.
                files |= self._files
                within, times = AnswerQuery(since=query.since, until=query.until).conditions()
                if within:
                    # A file's day need not be that of what is in it.
                    sql = f"SELECT DISTINCT file FROM small.answers WHERE {' AND '.join(within)}"
                    there = {number for (number,) in duck.execute(sql, times).fetchall()}
                    files = {number: file for number, file in files.items() if number in there}
                places, words_to = self._words.find(query, files)
                if words_to is not None:
                    cuts.append(words_to)
                duck.register("places", places)
                here = " AND ".join(["file = 0", *['instr("text", ?) > 0' for _ in query.words]])
                conditions.append(
                    "(file, place) IN (SELECT (file, place) FROM places UNION ALL "
                    f"SELECT (file, place) FROM small.answers WHERE {here})"
                )
                values += query.words
            yield duck, f"WHERE {' AND '.join(conditions)}" if conditions else "", values, cuts

    def outcomes(self, hits: Sequence[Hit]) -> list[ResponseScored]:
        if not hits:
            return []
        wanted = {(hit.stream, hit.sequence) for hit in hits}
        # By pairs it would take ten times as long.
        listed = ", ".join(str(hit.sequence) for hit in hits)
        sql = (
            f"SELECT stream, sequence, file, place FROM small.answers "
            f"WHERE file > 0 AND sequence IN ({listed})"
        )
        rows = self._duck.cursor().execute(sql).fetchall()
        places = sorted((file, place) for *where, file, place in rows if tuple(where) in wanted)
        found: list[ResponseScored] = []
        with self._read_errors():
            for number, several in groupby(places, key=lambda row: row[0]):
                found += map(event_of, self._rows_at(self._files[number], [place for _, place in several]))
        return found

    def _word_places(self, file: File, words: Sequence[str]) -> pa.Array:
        """The rows of a file in which each of these words stands somewhere."""
        assert self._archive is not None
        found, first = [pa.array([], pa.int64())], 0
        with self._archive.store.open(file) as opened:
            parquet = pq.ParquetFile(opened)
            for group in range(parquet.num_row_groups):
                rows = parquet.read_row_group(group, _TEXTS, use_threads=False)
                masks = [_has(rows, word) for word in words]
                found.append(pc.add(pc.indices_nonzero(reduce(pc.and_, masks)).cast(pa.int64()), first))
                first += len(rows)
        return pa.concat_arrays(found)

    def _rows_at(self, file: File, places: Sequence[int]) -> list[dict[str, Any]]:
        """These rows of a file. Raises `FileNotFoundError` for one that is not there any more."""
        assert self._archive is not None
        store = self._archive.store
        if store.folder is None:
            return [
                row
                for rows in rows_at(store, file, places)
                for row in rows.to_pylist(maps_as_pydicts="strict")
            ]
        store.check(file)
        # It decodes no other rows; Arrow decodes all of a row group.
        listed = ", ".join(map(str, places))
        duck = self._duck.cursor()
        try:
            rows = duck.execute(
                "SELECT * FROM read_parquet(?, file_row_number = true, hive_partitioning = false) "
                f"WHERE file_row_number IN ({listed})",
                [str(store.folder / file.path)],
            ).fetchall()
        except duckdb.IOException as error:
            raise FileNotFoundError(str(error)) from error
        names = [one[0] for one in duck.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def messages(self, key: str, moment: float) -> list[tuple[str, str, bytes, float]]:
        """Of the day of that moment and those beside it."""
        if self._archive is None:
            return []
        day = moment_of(moment).date()
        first, last = day - timedelta(days=1), day + timedelta(days=1)
        found = []
        with self._read_errors():
            store, files = self._recorded_files()
            for file in files:
                if first <= file.day <= last:
                    for row in rows_of_key(store, file, key):
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

    def _change(self, archive: Archive, new: Sequence[File], gone: Sequence[int]) -> None:
        """Take in and let go of files of one day, in one transaction."""
        numbers = dict(enumerate(new, self._last_number + 1))
        self._files |= numbers
        try:
            with self._changing() as duck:
                for number, file in numbers.items():
                    with archive.store.open(file) as opened:
                        parquet, place = pq.ParquetFile(opened), 0
                        for group in range(parquet.num_row_groups):
                            rows = parquet.read_row_group(group, _READ, use_threads=False)
                            for name in set(_READ) - set(rows.column_names):
                                rows = rows.append_column(name, pa.nulls(len(rows), SCHEMA.field(name).type))
                            self._insert(duck, rows, number, place)
                            place += len(rows)
                if gone:
                    listed = ", ".join(map(str, gone))
                    duck.execute(f"DELETE FROM small.answers WHERE file IN ({listed})")
                # What came from the stream until now.
                duck.execute(
                    f"DELETE FROM small.answers WHERE file = 0 AND (stream, sequence) IN "
                    f"(SELECT (stream, sequence) FROM small.answers WHERE file > {self._last_number})"
                )
                self._remove(duck, self._superseded)
        except BaseException:
            for number in numbers:
                del self._files[number]
            raise
        self._last_number += len(numbers)
        self._numbers |= {file.path: number for number, file in numbers.items()}
        for number in gone:
            del self._numbers[self._files.pop(number).path]

    @contextmanager
    def _changing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A transaction, one at a time."""
        with self._writing, self._duck.cursor() as duck:
            duck.execute("BEGIN")
            yield duck
            # Without this nothing has changed when the cursor is closed.
            duck.execute("COMMIT")

    def _insert(self, duck: duckdb.DuckDBPyConnection, rows: pa.Table, file: int, place: int) -> None:
        """The first of these rows has this place in the file."""
        self._add_pairs(rows)
        places = pa.array(range(place, place + len(rows)), pa.int64())
        duck.register("rows", rows.append_column("place", places))
        pairs = {"pairs": list(self._pairs), "bits": list(self._pairs.values())}
        duck.execute(_INSERT, {"file": file, **_SHOWN, **pairs})
        duck.unregister("rows")
        self._unpacked = True

    def _remove(self, duck: duckdb.DuckDBPyConnection, places: Mapping[tuple[int, int], int]) -> None:
        """Outcomes, which the archive may have for a while, that others took the place of."""
        if places:
            listed = ", ".join(map(str, places))
            duck.execute(f"DELETE FROM small.answers WHERE (stream, sequence) IN ({listed})")

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
            if query.category.lower() in ("", category.lower()) and query.verdict in ("", verdict):
                bits |= bit
        before = f"{RECORD}{query.category}" if query.category else ""
        behind = f"{query.verdict}{RECORD}" if query.verdict else ""
        condition = "((bits & ?) <> 0 OR (bits < 0 AND instr(lower(pairs), lower(?)) > 0))"
        return condition, [bits, f"{before}{FIELD}{behind}"]

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
            raise TransientError(f"the archive at {self._url} cannot be read: {error}") from error


def _hit(row: Sequence[Any]) -> Hit:
    values = dict(zip(_LISTED, row, strict=True))
    facts = tuple(HitFact(**fact) for fact in values.pop("facts") or ())
    key = response_key(values["tenant"], values["id"], values.pop("partition"))
    return Hit(**values, key=key, facts=facts)


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
