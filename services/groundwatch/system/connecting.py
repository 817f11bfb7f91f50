"""The system that commands here talk to: its settings, its address, a connection, its history; and that of an
`up` or a demo which does not run, opened on its folder for one command."""

from __future__ import annotations

import asyncio
import errno
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import nats.errors
import nats.js.errors
import psutil  # type: ignore[import-untyped]

from groundwatch import termination
from groundwatch.addresses import shown_address
from groundwatch.archive.cold import cold_events, tables
from groundwatch.archive.images import archived_images
from groundwatch.archive.place import placed, require
from groundwatch.errors import (
    PROVISION,
    UNDECODED,
    OpenedFolderError,
    SettingsError,
    UsageError,
    told_to_user,
    words,
)
from groundwatch.protocols import registry
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import Read, position_of
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import load
from groundwatch.runtime.telemetry import logs
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import COMMAND_LINE, OUTCOMES
from groundwatch.topology.partitions import streams_of_kind

if TYPE_CHECKING:
    from groundwatch.archive.events import Events
    from groundwatch.archive.outcomes import Archive
    from groundwatch.archive.query import Session


T = TypeVar("T")


STREAMS = "nats"
"""The folder in the data folder in which NATS keeps the streams."""

MODELS = "triton"
"""That of a Triton of our own."""

NOTHING_FOUND = "no running groundwatch found on this machine"

ADDRESS_FILE = "running.json"

FAULTS = (nats.errors.Error, nats.js.errors.Error, TimeoutError, ConnectionError)
"""What a command meets when NATS goes away under it."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running `groundwatch up` can be reached; written into its data folder.

    `nats` holds the token: the file is for its owner alone.
    """

    nats: str
    gateway: str
    pid: int


def prepare(config: Path | None, nats_url: str = "") -> Settings:
    """Settings with protocols, prompts and logging set up by them; `nats_url` wins over the file."""
    settings = load(config)
    registry.configure(settings.protocols, settings.prompts.folder)
    logs.configure(level=settings.telemetry.log_level, style=settings.telemetry.log_format)
    if nats_url:
        settings = with_nats(settings, nats_url)
    return settings


def with_nats(settings: Settings, url: str) -> Settings:
    return settings.model_copy(update={"nats": settings.nats.model_copy(update={"url": url})})


def data_dir(settings: Settings) -> Path:
    """Where `groundwatch up` keeps its data."""
    if settings.data_dir:
        return Path(settings.data_dir).expanduser()
    return Path.home() / ".local" / "share" / "groundwatch"


def find_running(settings: Settings) -> Running | None:
    """The `groundwatch up` on this machine, if one wrote down where it is."""
    try:
        found = msgspec.json.decode((data_dir(settings) / ADDRESS_FILE).read_bytes(), type=Running)
    except (OSError, *UNDECODED):
        return None
    return found if psutil.pid_exists(found.pid) else None


def check_streams(folder: Path) -> None:
    """Raises `UsageError` where no system has written."""
    if not (folder / STREAMS / "jetstream").is_dir():
        what = "holds no streams" if folder.is_dir() else "there is no such folder"
        raise UsageError(f"{folder}: {what}; groundwatch demo and groundwatch up make one")


@asynccontextmanager
async def opened(folder: Path, *, max_payload: int) -> AsyncIterator[str]:
    """The address of a NATS server of our own on the streams in `folder`, while the block runs.

    Raises `UsageError` when another command, an `up` or a demo has them open.
    """
    server = NatsServer(folder / STREAMS, max_payload=max_payload)
    with told_to_user(f"{folder}: cannot be opened"):
        await server.start()
    try:
        yield server.url
    finally:
        await server.stop()


def with_archive(settings: Settings) -> Settings:
    """Settings with the archive's place; the folder of an `up` belongs to its own streams alone."""
    running = find_running(settings) if settings.nats.url else None
    here = not settings.nats.url or (running is not None and running.nats == settings.nats.url)
    return placed(settings, data_dir(settings)) if here else settings


@asynccontextmanager
async def connected(
    settings: Settings, name: str = COMMAND_LINE, *, user: str = COMMAND_LINE
) -> AsyncIterator[Bus]:
    """A connection for one command. What NATS refuses inside becomes a `UsageError` on one line."""
    archive = with_archive(settings).archive
    async with AsyncExitStack() as stack:
        folder = None if settings.nats.url else data_dir(settings)
        if folder is not None:
            url = await stack.enter_async_context(opened(folder, max_payload=settings.nats.max_payload))
            settings = with_nats(settings, url)
        bus = Bus(settings.nats, name=name, user=user)
        bus.cold = cold_events(archive)
        bus.cold_images = archived_images(archive)
        stack.push_async_callback(bus.close)
        await bus.connect(timeout=3.0)
        try:
            async with bus.unless_refused():
                yield bus
        except nats.js.errors.NotFoundError as error:
            missing = f"a stream is missing on this server ({error.description}): {PROVISION}"
            raise (OpenedFolderError(missing, folder) if folder else UsageError(missing)) from error
        except FAULTS as error:
            place = shown_address(settings.nats.url)
            raise UsageError(f"NATS at {place}: {words(error)}") from error
        except OSError as error:
            full = error.errno == errno.ENOSPC and not error.filename and archive.url
            raise UsageError(f"{error}{f': make room at {archive.url}' if full else ''}") from error
        except UsageError as error:
            if folder is None:
                raise
            raise OpenedFolderError(str(error), folder) from error


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine on the fast loop where there is one."""
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        import uvloop

        loop_factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(_until_sigterm(coroutine))
    except asyncio.CancelledError:
        if not termination.came():
            raise
        termination.tell()
        raise SystemExit(termination.status()) from None


def on_bus(
    settings: Settings,
    work: Callable[[Bus], Coroutine[Any, Any, T]],
    name: str = COMMAND_LINE,
    user: str = COMMAND_LINE,
) -> T:
    """Run one command's work over a connection of its own."""

    async def connected_work() -> T:
        async with connected(settings, name, user=user) as bus:
            return await work(bus)

    return run(connected_work())


async def _until_sigterm(coroutine: Coroutine[Any, Any, T]) -> T:
    """End as on Ctrl-C, cleaning up, when SIGTERM comes and nothing inside listens for it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    with termination.calling(lambda: loop.call_soon_threadsafe(task.cancel)):
        return await coroutine


def opened_archive(settings: Settings) -> tuple[Archive, Events] | None:
    """The tables of outcomes and of events of these settings' archive, None where there is none. Raises
    `UsageError`."""
    return tables(placed(settings, data_dir(settings)).archive)


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
    from groundwatch.archive.outcomes import rows_after
    from groundwatch.archive.query import Session, Tail

    both = None if stream_only else opened_archive(settings)
    archive = both[0] if both is not None else None
    if archive_only and archive is None:
        raise SettingsError("setting 'archive.url': there is no archive, so the archive alone is nothing")
    try:
        archived = archive.snapshot() if archive is not None else None
        if archive is not None and archived is not None and archived.table is None:
            archive.check_started()
    except UsageError:
        raise
    except Exception as error:
        url = archive.url if archive is not None else ""
        raise UsageError(f"the archive at {url} cannot be read: {error}") from error
    with tempfile.TemporaryDirectory(prefix="groundwatch-stream-") as folder:
        tail = Tail(Path(folder), settings.telemetry.version_tags)
        if not archive_only:
            async with connected(settings) as bus:
                for stream in streams_of_kind(OUTCOMES, bus.partitions):
                    at = await position_of(bus.js, stream)
                    position = archived.position(at.created) if archived is not None else 0
                    rows = rows_after(bus, at, position, stream=stream, run=run, on_unreadable=_tell)
                    await tail.read(rows)
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
