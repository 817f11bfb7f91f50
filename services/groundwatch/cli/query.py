"""Commands over the history: query, and what the archive itself is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from groundwatch.cli.messages import print_json, say
from groundwatch.cli.options import (
    Configured,
    WithHistory,
)
from groundwatch.errors import UsageError
from groundwatch.replay.files import replacing
from groundwatch.system.connecting import history, opened_archive, run
from groundwatch.terminal import Console, Table, box

SHOWN = 1_000
"""Rows that the table on the screen has at most."""

SHOWN_CHARACTERS = 200_000
"""So many it is to have: to lay out ten million takes a minute."""

SHOWN_CELL = 80
"""Characters that every cell may have."""

CHUNK = 10_000


def query(
    settings: WithHistory,
    sql: str,
    *,
    as_json: bool = False,
    out: Path | None = None,
    archive_only: bool = False,
) -> None:
    """Ask the history in SQL (DuckDB): the archive with what is still only in the stream. Reads only."""

    async def work() -> None:
        async with history(settings, archive_only=archive_only) as session:
            if out is not None:
                columns, rows = session.pieces(sql, CHUNK)
                written = 0
                with replacing(out) as file:
                    for row in rows:
                        file.write(msgspec.json.encode(dict(zip(columns, _plain(row), strict=True))) + b"\n")
                        written += 1
                told = {"file": str(out), "rows": written}
                print_json(told) if as_json else say(f"{written:,} rows in {out}")
                return
            answer = session.ask(sql)
            if as_json:
                print_json({"columns": answer.columns, "rows": [_plain(row) for row in answer.rows]})
            else:
                _show(answer.columns, answer.rows, Console())

    run(work())


def archive_status(settings: Configured, *, as_json: bool = False) -> None:
    """What the archive holds and how far it has come."""
    both = opened_archive(settings)
    if both is None:
        raise UsageError("there is no archive: set archive.url")
    archive, events = both
    from groundwatch.archive.query import Session

    try:
        snapshot = archive.snapshot()
        files = snapshot.files()
        recorded = events.snapshot().files()
        with Session(snapshot) as session:
            runs, streams = (
                [row[0] for row in session.ask(f"SELECT DISTINCT {name} FROM outcomes ORDER BY 1").rows]
                for name in ("run", "stream")
            )
    except OSError as error:
        raise UsageError(f"the archive at {archive.url} cannot be read: {error}") from error
    days = sorted({file.day.isoformat() for file in files})
    outcomes, size = sum(file.rows for file in files), sum(file.bytes for file in files)
    by_stream = {
        stream: {
            "events": sum(file.rows for file in recorded if file.stream == stream),
            "files": sum(file.stream == stream for file in recorded),
            "bytes": sum(file.bytes for file in recorded if file.stream == stream),
            "archived_to": max(file.last for file in recorded if file.stream == stream),
        }
        for stream in sorted({file.stream for file in recorded})
    }
    state = {
        "url": archive.url,
        "version": snapshot.version,
        "outcomes": outcomes,
        "files": len(files),
        "bytes": size,
        "first_day": days[0] if days else None,
        "last_day": days[-1] if days else None,
        "runs": runs,
        "positions": {str(stream): snapshot.position(stream) for stream in streams},
        "events": by_stream,
    }
    if as_json:
        print_json(state)
        return
    say(f"archive {archive.url}, version {snapshot.version}")
    say(f"  {outcomes:,} outcomes in {len(files):,} files of {size / 1e6:,.1f} MB")
    if days:
        say(f"  days {days[0]} to {days[-1]}, runs {', '.join(runs)}")
    for stream, found in by_stream.items():
        told = f"{found['events']:,} events in {found['files']:,} files of {found['bytes'] / 1e6:,.1f} MB"
        say(f"  {stream}: {told}, the last one at {found['archived_to']:,}")


def _plain(row: list[Any]) -> list[Any]:
    return [msgspec.to_builtins(value, enc_hook=str) for value in row]


def _show(columns: list[str], rows: list[list[Any]], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for at, name in enumerate(columns):
        number = bool(rows) and isinstance(rows[0][at], (int, float)) and not isinstance(rows[0][at], bool)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    rows_shown = rows[:SHOWN]
    most = max(SHOWN_CELL, SHOWN_CHARACTERS // max(1, len(rows_shown) * len(columns)))
    for row in rows_shown:
        table.add_row(*(_cell(value, most) for value in row))
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"… {len(rows) - SHOWN:,} more rows: use --json, or --out FILE.jsonl for all of them")


def _cell(value: Any, most: int) -> str:
    text = "–" if value is None else str(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters: use --json or --out)"
