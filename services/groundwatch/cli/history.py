"""What the commands about the history share: opening it, moments in time, and the report by dimensions."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groundwatch.archive.place import placed
from groundwatch.archive.store import Store, require
from groundwatch.cli.common import connected, data_dir
from groundwatch.errors import MissingExtraError, SettingsError, UsageError
from groundwatch.runtime.delivery.streams import Read
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger

if TYPE_CHECKING:
    from groundwatch.archive.query import Session

SinceOption = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only what was recorded from then on: 2026-03-01, 2026-03-01T14:00 (UTC), or 90m, 12h, 7d ago.",
        show_default=False,
    ),
]
UntilOption = Annotated[
    str,
    typer.Option("--until", metavar="TIME", help="Only what was recorded before then.", show_default=False),
]
ArchiveOnlyOption = Annotated[
    bool, typer.Option("--archive-only", help="Leave out what is still only in the stream: needs no NATS.")
]

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def moment(text: str, option: str) -> float | None:
    """Seconds since the epoch; None for no text. Raises `UsageError` naming the option."""
    if not text:
        return None
    if (ago := _AGO.fullmatch(text.strip())) is not None:
        return time.time() - float(ago[1]) * _UNITS[ago[2]]
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(
            f"{option} {text}: write a date, a time such as 2026-03-01T14:00, or an age such as 12h or 7d"
        ) from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def archive_store(settings: Settings) -> Store | None:
    """The archive of these settings, None where there is none. Raises `UsageError`."""
    require()
    url = placed(settings, data_dir(settings)).archive.url
    if not url:
        return None
    return Store(url, settings.archive.options)


@asynccontextmanager
async def history(
    settings: Settings,
    *,
    archive_only: bool = False,
    stream_only: bool = False,
    since: float | None = None,
    until: float | None = None,
    run: str = "",
) -> AsyncIterator[Session]:
    """The archive with what is still only in the stream, open for questions."""
    try:
        import duckdb  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("what queries need (duckdb)", "archive") from error
    from groundwatch.archive.manifest import Manifest, latest
    from groundwatch.archive.query import Session, Tail
    from groundwatch.archive.reading import position_of, rows_after

    store = None if stream_only else archive_store(settings)
    if archive_only and store is None:
        raise SettingsError("setting 'archive.url': there is no archive, so --archive-only leaves nothing")
    try:
        manifest = latest(store) if store is not None else Manifest()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"the archive at {store.url if store else ''} cannot be read: {error}") from error
    with tempfile.TemporaryDirectory(prefix="groundwatch-stream-") as folder:
        tail = Tail(Path(folder), settings.telemetry.version_tags)
        if not archive_only:
            async with connected(settings) as bus:
                at = await position_of(bus)
                await tail.read(
                    rows_after(bus, at, manifest.position(at.stream), run=run, on_unreadable=_tell)
                )
        with Session(store, manifest, tail, since=_day(since), until=_day(until), run=run) as session:
            yield session


def _day(seconds: float | None) -> date | None:
    """The day of a moment; nothing is narrowed by a moment that is no date."""
    if seconds is None:
        return None
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).date()
    except OverflowError:
        return None


def _tell(read: Read, error: Exception) -> None:
    logger.warning("outcome.unreadable", subject=read.subject, error=str(error))
