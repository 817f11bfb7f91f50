"""SQL over the archive and what is still only in the stream: DuckDB, shut in with these two tables."""

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
import pyarrow.parquet as pq

from groundwatch.archive.manifest import Manifest, Part
from groundwatch.archive.rows import ADDED, CLAIMS, OUTCOMES, SCHEMA, SCHEMAS, TABLES, Row, to_tables
from groundwatch.archive.store import Store
from groundwatch.errors import UsageError

TAIL_ROWS = 10_000
"""Outcomes from the stream that are held in memory before they go to a temporary file."""

LOCKED = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class Tail:
    """What the archive has not yet, on its way from the stream into temporary files."""

    def __init__(self, folder: Path, version_tags: Sequence[str]) -> None:
        self.files: dict[str, list[str]] = {table: [] for table in TABLES}
        self.superseded: set[int] = set()
        self.stream = 0
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
        self.stream = rows[-1].stream
        self.outcomes += len(rows)
        self.superseded |= {row.supersedes for row in rows if row.supersedes}
        for table, found in to_tables(rows, self._version_tags).items():
            name = self._folder / f"{table}-{secrets.token_hex(4)}.parquet"
            pq.write_table(found, name, compression="zstd")
            self.files[table].append(str(name))


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: names of columns, and rows of plain values."""

    columns: list[str]
    rows: list[list[Any]]


class Session:
    """A DuckDB of its own with the tables `outcomes` and `claims`; it can read nothing else.

    Days outside `since` to `until` (dates of recording, ends included) and runs other than `run` are not even
    opened.
    """

    def __init__(
        self,
        store: Store | None,
        manifest: Manifest,
        tail: Tail | None = None,
        *,
        since: date | None = None,
        until: date | None = None,
        run: str = "",
        memory: str = "",
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
                    **({"memory_limit": memory} if memory else {}),
                },
            )
        )
        self.parts = tuple(part for part in manifest.parts if _wanted(part, since, until, run))
        if store is not None and not store.local:
            self._duck.register_filesystem(store.fs)
        archived = {
            table: [store.address(part.name) for part in self.parts if part.table == table] if store else []
            for table in TABLES
        }
        recent = tail.files if tail is not None else {table: [] for table in TABLES}
        allowed = [path for table in TABLES for path in (*archived[table], *recent[table])]
        # Some file systems of fsspec put a slash before what they are asked for.
        allowed += [path.replace("://", ":///", 1) for path in allowed if "://" in path]
        self._duck.execute(f"SET allowed_paths = {_list(allowed)}")
        for table in TABLES:
            older = any(part.table == table and part.schema < SCHEMA for part in self.parts)
            self._define(table, archived[table], recent[table], older, tail)
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
        with _in_one_line():
            statements = self._duck.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise UsageError(f"one SELECT is wanted, over the tables {OUTCOMES} and {CLAIMS}")
            cursor = self._duck.execute(statements[0])
        return [one[0] for one in cursor.description or ()], _fetched(cursor, size)

    def _define(
        self, table: str, archived: Sequence[str], recent: Sequence[str], older: bool, tail: Tail | None
    ) -> None:
        """A view over the files. Without any it is empty and has all its columns."""
        columns = [field.name for field in SCHEMAS[table]]
        pieces = []
        if archived:
            gone = ""
            if tail is not None and tail.superseded:
                listed = ", ".join(map(str, sorted(tail.superseded)))
                gone = f" WHERE NOT (stream = {tail.stream} AND sequence IN ({listed}))"
            chosen = ", ".join(_column(table, name, older) for name in columns)
            options = ", union_by_name = true" if older else ""
            source = f"read_parquet({_list(archived)}, hive_partitioning = false{options})"
            if older:
                # What no file has yet must still have a name.
                source = f"(SELECT * FROM _none_{table} UNION ALL BY NAME SELECT * FROM {source})"
            pieces.append(f"SELECT {chosen} FROM {source}{gone}")
        if recent:
            pieces.append(f"SELECT {', '.join(map(_quoted, columns))} FROM read_parquet({_list(recent)})")
        empty = SCHEMAS[table].empty_table()
        self._duck.register(f"_arrow_{table}", empty)
        self._duck.execute(f"CREATE TABLE _none_{table} AS SELECT * FROM _arrow_{table}")
        self._duck.unregister(f"_arrow_{table}")
        if not pieces:
            pieces.append(f"SELECT * FROM _none_{table}")
        self._duck.execute(f"CREATE VIEW {table} AS {' UNION ALL '.join(pieces)}")


def _wanted(part: Part, since: date | None, until: date | None, run: str) -> bool:
    return (
        (since is None or part.day >= since)
        and (until is None or part.day <= until)
        and (not run or part.run == run)
    )


def _column(table: str, name: str, older: bool) -> str:
    added = ADDED[table].get(name) if older else None
    if added is None or added[1] is None:
        return _quoted(name)
    return f"coalesce({_quoted(name)}, {_literal(added[1])}) AS {_quoted(name)}"


def _literal(value: Any) -> str:
    return f"'{value.replace(chr(39), chr(39) * 2)}'" if isinstance(value, str) else str(value)


def _quoted(name: str) -> str:
    return f'"{name}"'


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(_literal(value) for value in values)}]"


def _fetched(cursor: duckdb.DuckDBPyConnection, size: int) -> Iterator[list[Any]]:
    with _in_one_line():
        while several := cursor.fetchmany(size):
            yield from map(list, several)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """DuckDB's message without the drawing of where it is."""
    try:
        yield
    except duckdb.Error as error:
        told = str(error).partition("\n\nLINE ")[0].replace("\n", " ")
        raise UsageError(f"SQL: {told}") from error
