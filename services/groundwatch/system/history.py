"""The history: the archive with what is still only in the stream."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from groundwatch.archive.place import placed, require
from groundwatch.errors import SettingsError, UsageError
from groundwatch.runtime.delivery.streams import Read
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.system.connecting import connected, data_dir

if TYPE_CHECKING:
    from groundwatch.archive.archive import Archive
    from groundwatch.archive.query import Session


def opened_archive(settings: Settings) -> Archive | None:
    """The archive of these settings, None where there is none. Raises `UsageError`."""
    url = placed(settings, data_dir(settings)).archive.url
    if not url:
        return None
    from groundwatch.archive.archive import Archive

    return Archive(url, settings.archive.options)


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
    require()
    from groundwatch.archive.query import Session, Tail
    from groundwatch.archive.rows import position_of, rows_after

    archive = None if stream_only else opened_archive(settings)
    if archive_only and archive is None:
        raise SettingsError("setting 'archive.url': there is no archive, so the archive alone is nothing")
    try:
        archived = archive.snapshot() if archive is not None else None
    except UsageError:
        raise
    except Exception as error:
        url = archive.url if archive is not None else ""
        raise UsageError(f"the archive at {url} cannot be read: {error}") from error
    with tempfile.TemporaryDirectory(prefix="groundwatch-stream-") as folder:
        tail = Tail(Path(folder), settings.telemetry.version_tags)
        if not archive_only:
            async with connected(settings) as bus:
                at = await position_of(bus)
                position = archived.position(at.stream) if archived is not None else 0
                await tail.read(rows_after(bus, at, position, run=run, on_unreadable=_tell))
        with Session(archived, tail, since=_day(since), until=_day(until), run=run) as session:
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
