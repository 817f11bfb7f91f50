"""What the commands share: settings, connection, output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import nats.errors
import nats.js.errors
import psutil  # type: ignore[import-untyped]
import typer

from groundwatch import termination
from groundwatch.addresses import shown_address
from groundwatch.cli.folders import PROVISION, check_streams, opened, told_here
from groundwatch.cli.output import print_json
from groundwatch.errors import UNDECODED, UsageError
from groundwatch.reporting import Beside, render_beside
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings, load
from groundwatch.runtime.telemetry import logs
from groundwatch.terminal import Console
from groundwatch.topology import COMMAND_LINE

T = TypeVar("T")

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="Settings file (TOML).", show_default=False)
]
NatsOption = Annotated[
    str,
    typer.Option(
        "--nats", help="NATS address; the running `groundwatch up` when absent.", show_default=False
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="The data of an `up` or a demo on this machine, whether that still runs or not.",
        show_default=False,
    ),
]
ByOption = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="TAG",
        help="Tell apart responses with different values of this tag, such as strategy.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

NOTHING_FOUND = "no running groundwatch found on this machine"
NOTHING_RUNS = (
    f"{NOTHING_FOUND}: start one with groundwatch up, or say where one is: "
    "--data-dir FOLDER of an up, --nats URL, or nats.url (GROUNDWATCH_NATS__URL)"
)

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
    """Settings with logging set up by them; `nats_url` wins over the file."""
    settings = load(config)
    logs.configure(level=settings.telemetry.log_level, style=settings.telemetry.log_format)
    if nats_url:
        settings = with_nats(settings, nats_url)
    return settings


def with_nats(settings: Settings, url: str) -> Settings:
    """The same settings for another NATS server."""
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


def client_settings(
    config: Path | None, nats_url: str, folder: Path | None = None, *, reads_streams: bool = True
) -> Settings:
    """Settings for a command that talks to a running system, found by itself on this machine.

    With `folder` it is the one with its data there. When that does not run, no address is set, and
    `connected` opens the data for the time of the command. Raises `UsageError` when there is none,
    unless the command needs no streams.
    """
    settings = prepare(config, nats_url)
    if folder is not None:
        if nats_url:
            raise UsageError("--data-dir and --nats do not go together: each says where the streams are")
        check_streams(folder)
        settings = with_nats(settings, "").model_copy(update={"data_dir": str(folder)})
        if (running := find_running(settings)) is not None:
            return with_nats(settings, running.nats)
        if settings.telemetry.log_level == "info":
            # That a server of our own starts and stops is nothing that the user asked for.
            logs.configure(level="warning", style=settings.telemetry.log_format)
        return settings
    if not settings.nats.url and (running := find_running(settings)):
        settings = with_nats(settings, running.nats)
    if reads_streams and not settings.nats.url:
        raise UsageError(NOTHING_RUNS)
    return settings


@asynccontextmanager
async def connected(
    settings: Settings, name: str = COMMAND_LINE, *, user: str = COMMAND_LINE
) -> AsyncIterator[Bus]:
    """A connection for one command. What NATS refuses inside becomes a `UsageError` on one line."""
    async with AsyncExitStack() as stack:
        folder = None if settings.nats.url else data_dir(settings)
        if folder is not None:
            url = await stack.enter_async_context(opened(folder, max_payload=settings.nats.max_payload))
            settings = with_nats(settings, url)
        bus = Bus(settings.nats, name=name, user=user)
        stack.push_async_callback(bus.close)
        await bus.connect(patience=3.0)
        try:
            async with bus.unless_refused():
                yield bus
        except nats.js.errors.NotFoundError as error:
            raise UsageError(
                told_here(f"a stream is missing on this server ({error.description}): {PROVISION}", folder)
            ) from error
        except FAULTS as error:
            place = shown_address(settings.nats.url)
            raise UsageError(f"NATS at {place}: {str(error) or repr(error)}") from error
        except UsageError as error:
            if folder is None:
                raise
            raise UsageError(told_here(str(error), folder)) from error


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


async def _until_sigterm(coroutine: Coroutine[Any, Any, T]) -> T:
    """End as on Ctrl-C, cleaning up, when SIGTERM comes and nothing inside listens for it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    with termination.calling(lambda: loop.call_soon_threadsafe(task.cancel)):
        return await coroutine


def show_beside(found: Beside, as_json: bool) -> None:
    """The user's models in the published tables."""
    tables = found.tables()
    if as_json:
        print_json({"protocol": found.protocol, "tables": tables})
    else:
        render_beside(tables, Console())
