"""SQL over the archive and what is still only in the stream: DuckDB, shut in with these two tables.

A breakdown has the same sums as outcome by outcome, by one query that reads only the table of outcomes: each
row has the sums of its claims by category.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from groundwatch.archive.outcomes import (
    CLAIM_FIELDS,
    CLAIMS,
    OUTCOMES,
    SCHEMA,
    SHARED,
    Row,
    to_table,
)
from groundwatch.archive.store import File
from groundwatch.archive.table import Snapshot
from groundwatch.errors import UsageError
from groundwatch.reporting.breakdown import CATEGORY, DIMENSIONS, Breakdown, BreakdownKey
from groundwatch.reporting.figures import Headline, protocol_of
from groundwatch.reporting.sums import Sums
from groundwatch.statistics.intervals import Moments, RatioSums
from groundwatch.statistics.sampling import ROUNDING, Linear, WeightedMoments, WeightedSums
from groundwatch.times import moment_of

TAIL_ROWS = 10_000
"""Outcomes from the stream that are held in memory before they go to a temporary file."""

LOCKED = (
    # Of a list DuckDB would fetch everything that lies behind it in its file.
    "SET disable_parquet_prefetching = true",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


UNREADABLE = (duckdb.Error, pa.ArrowException, OSError)

WRONG_SQL = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
"""What says nothing of files."""


class Tail:
    """What the archive has not yet, on its way from the stream into temporary files."""

    def __init__(self, folder: Path, version_tags: Sequence[str]) -> None:
        self.files: list[str] = []
        self.superseded: set[tuple[int, int]] = set()
        self.outcomes = 0
        self._folder = folder
        self._version_tags = version_tags

    async def read(self, rows: AsyncIterator[Row]) -> None:
        """Take in outcomes; memory does not grow with their number."""
        held: list[Row] = []
        async for row in rows:
            held.append(row)
            if len(held) >= TAIL_ROWS:
                self._write(held)
                held = []
        if held:
            self._write(held)

    def _write(self, rows: Sequence[Row]) -> None:
        self.outcomes += len(rows)
        self.superseded |= {(row.stream, row.supersedes) for row in rows if row.supersedes}
        name = self._folder / f"{secrets.token_hex(4)}.parquet"
        pq.write_table(to_table(rows, self._version_tags), name, compression="zstd")
        self.files.append(str(name))


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: names of columns, and rows of plain values."""

    columns: list[str]
    rows: list[list[Any]]


class Session:
    """A DuckDB of its own with the tables `outcomes` and `claims`; it can read nothing else.

    Days outside `since` to `until` (dates of recording, ends included) are not even opened.
    """

    def __init__(
        self,
        archived: Snapshot | None,
        tail: Tail | None = None,
        *,
        since: date | None = None,
        until: date | None = None,
        run: str = "",
    ) -> None:
        self._stack = ExitStack()
        scratch = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="groundwatch-query-"))
        self._duck = self._stack.enter_context(
            duckdb.connect(
                ":memory:",
                config={
                    "autoinstall_known_extensions": False,
                    "autoload_known_extensions": False,
                    "temp_directory": scratch,
                },
            )
        )
        self._duck.execute("SET TimeZone = 'UTC'")
        self._archived, self._files = archived, list[File]()
        with self._in_one_line():
            self._define(archived, tail, since or date.min, until or date.max, run)
        for statement in LOCKED:
            self._duck.execute(statement)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, sql: str) -> Rows:
        """The answer to one SELECT. Raises `UsageError` in one line for anything else."""
        columns, rows = self.pieces(sql)
        return Rows(columns=columns, rows=list(rows))

    def pieces(self, sql: str, size: int = 100_000) -> tuple[list[str], Iterator[list[Any]]]:
        """Names of columns, and rows that are fetched `size` at a time. Raises as `ask`."""
        with self._in_one_line():
            statements = self._duck.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise UsageError(f"one SELECT is wanted, over the tables {OUTCOMES} and {CLAIMS}")
            cursor = self._duck.execute(statements[0])
        return [one[0] for one in cursor.description or ()], self._fetched(cursor, size)

    def _fetched(self, cursor: duckdb.DuckDBPyConnection, size: int) -> Iterator[list[Any]]:
        with self._in_one_line():
            while several := cursor.fetchmany(size):
                yield from map(list, several)

    @contextmanager
    def _in_one_line(self) -> Iterator[None]:
        """DuckDB's message without the drawing of where it is; where a file is damaged, which."""
        try:
            yield
        except UNREADABLE as error:
            if self._archived is not None and not isinstance(error, WRONG_SQL):
                for file in self._files:
                    if lost := self._archived.store.damage(file):
                        raise lost from error
            told = str(error).partition("\n\nLINE ")[0].replace("\n", " ")
            raise UsageError(f"SQL: {told}") from error

    def _define(
        self, archived: Snapshot | None, tail: Tail | None, since: date, until: date, run: str
    ) -> None:
        """Views over what is there; without any they are empty and have all their columns."""
        self._duck.register("_empty", SCHEMA.empty_table())
        self._duck.execute("CREATE TABLE _none AS SELECT * FROM _empty")
        self._duck.unregister("_empty")
        wanted = f"day BETWEEN DATE '{since}' AND DATE '{until}'" + (
            f" AND run = {_text(run)}" if run else ""
        )
        recent = tail.files if tail is not None else []
        paths: list[str] = []
        # What no file has yet must still have a name.
        pieces = ["SELECT * FROM _none"]
        files = archived.files() if archived is not None else []
        if files := [file for file in files if since <= file.day <= until]:
            assert archived is not None
            self._files = files
            for file in files:
                # One that is no file, such as a pipe, DuckDB would wait for.
                archived.store.check(file)
            if archived.store.folder is not None:
                paths = [str(archived.store.folder / file.path) for file in files]
                # Files of before a column was there lack it.
                options = "union_by_name = true, hive_partitioning = true, hive_types = {'day': DATE}"
                source = f"read_parquet({_list(paths)}, {options})"
            else:
                source = "_archived"
                self._duck.register(source, archived.dataset())
            gone = ""
            if tail is not None and tail.superseded:
                listed = ", ".join(map(str, sorted(tail.superseded)))
                gone = f" AND (stream, sequence) NOT IN ({listed})"
            pieces.append(f"SELECT * FROM {source} WHERE {wanted}{gone}")
        if recent:
            pieces.append(f"SELECT * FROM read_parquet({_list(recent)}) WHERE {wanted}")
        self._duck.execute(f"SET allowed_paths = {_list([*paths, *recent])}")
        columns = ", ".join(map(_column, SCHEMA))
        self._duck.execute(
            f"CREATE VIEW _rows AS SELECT {columns} FROM ({' UNION ALL BY NAME '.join(pieces)})"
        )
        self._duck.execute(f"CREATE VIEW {OUTCOMES} AS SELECT * EXCLUDE ({CLAIMS}) FROM _rows")
        shared = ", ".join(map(_quoted, SHARED))
        fields = ", ".join(f"one.{_quoted(name)} AS {_quoted(name)}" for name in CLAIM_FIELDS)
        self._duck.execute(
            f"CREATE VIEW {CLAIMS} AS SELECT {shared}, claim, {fields} FROM (SELECT {shared}, "
            f"unnest({CLAIMS}) AS one, "
            f"generate_subscripts({CLAIMS}, 1) - 1 AS claim FROM _rows)"
        )


def _column(field: pa.Field) -> str:
    """As queries see it: times without a zone."""
    name = _quoted(field.name)
    return f"{name}::TIMESTAMP AS {name}" if pa.types.is_timestamp(field.type) else name


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


_OUTCOMES = """
    count(*) FILTER (outcome = 'scored') AS scored,
    count(*) FILTER (outcome = 'unscored') AS unscored, count(*) FILTER (outcome = 'declined') AS declined,
    coalesce(sum(eligible) FILTER (outcome <> 'declined'), 0) AS eligible,
    coalesce(sum(decided) FILTER (outcome <> 'declined'), 0) AS decided,
"""
_CATEGORIES = """
    count(*) AS scored, 0 AS unscored, 0 AS declined, 0 AS eligible, 0 AS decided,
"""
_BY_WEIGHT = """
    count(*) FILTER (known > 0) AS facts, sum(wrong) AS wrong, sum(known) AS known,
    sum(wrong * wrong) AS wrong_squares, sum(wrong * known) AS products, sum(known * known) AS known_squares,
    count(score) AS scores, coalesce(sum(score), 0) AS score,
    coalesce(sum(score * score), 0) AS score_squares
"""
_WHOLE = """
    sum(scored), sum(unscored), sum(declined), sum(eligible), sum(decided),
    sum(facts), sum(wrong), sum(known), sum(wrong_squares), sum(products), sum(known_squares),
    min(weight) FILTER (facts > 0), max(weight) FILTER (facts > 0),
    sum(weight * facts), sum(weight * weight * facts), sum(weight * wrong), sum(weight * known),
    sum(weight * weight * wrong_squares), sum(weight * weight * products),
    sum(weight * weight * known_squares),
    sum(scores), sum(score), sum(score_squares),
    min(weight) FILTER (scores > 0), max(weight) FILTER (scores > 0),
    sum(weight * scores), sum(weight * weight * scores), sum(weight * score),
    sum(weight * weight * score_squares), sum(weight * weight * score)
"""
"""Weights are few: each is multiplied with the sums of all rows that have it."""


def break_down(
    session: Session,
    by: Sequence[str],
    *,
    since: float | None = None,
    until: float | None = None,
    run: str = "",
) -> Breakdown:
    """Sums over outcomes recorded from `since` to before `until`, seconds since the epoch."""
    found = Breakdown(by)
    conditions = [f"run = {_text(run)}"] if run else []
    if since is not None:
        conditions += [f"recorded_at >= {_moment(since)}", f"day >= {_moment(since)}::DATE"]
    if until is not None:
        conditions += [f"recorded_at < {_moment(until)}", f"day <= {_moment(until)}::DATE"]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    keys = ["run", "protocol", "fingerprint"]
    columns = [f"{_expression(name)} AS by_{at}" for at, name in enumerate(by) if name != CATEGORY] + keys
    kept = [f"by_{at}" for at, name in enumerate(by) if name != CATEGORY] + keys
    if CATEGORY in by:
        # Only what is asked for may pass the unnesting: each of its columns is repeated for every category.
        counts = _CATEGORIES
        source = f"""
            SELECT {", ".join(kept)}, each.category AS category, each.score AS score, each.refuted AS wrong,
                each.supported + each.refuted AS known, weight
            FROM (SELECT {", ".join(columns)}, weight, unnest(categories) AS each FROM outcomes {where})
        """
    else:
        counts = _OUTCOMES
        source = f"""
            SELECT {", ".join(columns)}, outcome, score, eligible, decided, weight,
                CASE WHEN outcome = 'scored' THEN refuted ELSE 0 END AS wrong,
                CASE WHEN outcome = 'scored' THEN supported + refuted ELSE 0 END AS known
            FROM outcomes {where}
        """
    group_by = ", ".join([f"by_{at}" if name != CATEGORY else name for at, name in enumerate(by)] + keys)
    by_weight = f"SELECT {group_by}, weight, {counts} {_BY_WEIGHT} FROM ({source}) GROUP BY ALL"
    answer = session.ask(f"SELECT {group_by}, {_WHOLE} FROM ({by_weight}) GROUP BY ALL")
    for row in answer.rows:
        values, rest = row[: len(by)], row[len(by) :]
        names, sums = rest[: len(keys)], rest[len(keys) :]
        facts = _facts(sums[5:11], sums[11:13], sums[13:20])
        score = _score(sums[20:23], sums[23:25], sums[25:])
        scored, unscored, declined, eligible, decided = map(int, sums[:5])
        whole = Sums(scored, unscored, declined, eligible, decided, facts=facts, score=score)
        group = BreakdownKey(tuple(str(value or "") for value in values), *names)
        found.merge(group, whole)
    if CATEGORY not in by:
        for protocol in found.protocols:
            _add_figures(session, found, protocol, columns, conditions)
    return found


def _add_figures(
    session: Session, found: Breakdown, name: str, columns: Sequence[str], conditions: Sequence[str]
) -> None:
    """The figures of the protocol's paper, from its outcomes: those that are alike are read once."""
    protocol = protocol_of(name)
    figures = protocol.headline
    wanted = {name for one in figures for name in one.values}
    if not wanted:
        return
    where = " AND ".join((*conditions, f"protocol = {_text(name)}", "outcome <> 'declined'"))
    values = [f'map_extract("values", {_text(value)})[1]' for value in sorted(wanted)]
    unit = ["tags", "images"] if any(one.per_unit for one in figures) else ["NULL", "NULL"]
    # Only groups of answers are told apart by when these were recorded, and whose they are.
    whose = ["epoch(recorded_at)", "tenant", "model"]
    unit += whose if any(one.part for one in figures) else ["0", "''", "''"]
    _, rows = session.pieces(
        f"SELECT {', '.join((*columns, *unit, 'weight', *values))}, count(*) FROM outcomes "
        f"WHERE {where} GROUP BY ALL"
    )
    for row in rows:
        by, rest = row[: len(found.by)], row[len(found.by) :]
        *names, tags, images, at, tenant, model, each = rest[:9]
        there = {value: one for value, one in zip(sorted(wanted), rest[9:-1], strict=True) if one is not None}
        alike, times = Headline(name), int(rest[-1])
        answered = protocol.unit(dict(tags or {}), images or ())
        alike.add_values(there, answered, each, at, f"{tenant}\n{model}")
        sums = found.headline(BreakdownKey(tuple(str(value or "") for value in by), *names))
        while times:
            if times % 2:
                sums.merge(alike)
            times //= 2
            alike.merge(alike)


def _facts(plain: Sequence[Any], weights: Sequence[Any], linear: Sequence[Any]) -> WeightedSums:
    least, most = weights
    if least is None:
        return WeightedSums()
    sums = RatioSums(*(int(count or 0) for count in plain))
    return WeightedSums(sums, least, None if least == most else Linear(*linear))


def _score(plain: Sequence[Any], weights: Sequence[Any], linear: Sequence[Any]) -> WeightedMoments:
    least, most = weights
    if least is None:
        return WeightedMoments()
    number, total, squares = int(plain[0]), plain[1], plain[2]
    deviations = squares - total**2 / number
    # Where only rounding tells them apart they are equal.
    moments = Moments(number, total / number, deviations if deviations > ROUNDING * squares else 0.0)
    if least == most:
        return WeightedMoments(moments, least)
    total, squares, scores, score_squares, products = linear
    # Of a mean the denominator is the number of responses.
    return WeightedMoments(
        moments, least, Linear(total, squares, scores, total, score_squares, products, squares)
    )


def _expression(name: str) -> str:
    if name == "day":
        return "strftime(day, '%Y-%m-%d')"
    return f'"{name}"' if name in DIMENSIONS else f"tags[{_text(name)}]"


def _moment(seconds: float) -> str:
    return f"TIMESTAMP '{moment_of(seconds).replace(tzinfo=None).isoformat(sep=' ')}'"
