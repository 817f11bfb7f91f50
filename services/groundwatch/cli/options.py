"""Options that mean the same in every command, and the settings they lead to."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from wsgiref.simple_server import WSGIServer

import typer
from prometheus_client import CollectorRegistry, start_http_server
from typer.core import TyperCommand, TyperGroup

from groundwatch.errors import UsageError
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry import logs
from groundwatch.system.connecting import NOTHING_FOUND, find_running, prepare, with_nats
from groundwatch.system.folders import check_streams

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="Settings file (TOML).", show_default=False)
]
NatsOption = Annotated[
    str,
    typer.Option(
        "--nats", help="NATS address; the running `groundwatch up` when absent.", show_default=False
    ),
]
FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder",
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

ModelsOption = Annotated[
    str,
    typer.Option(
        "--models",
        metavar="miniature|FILE|FOLDER",
        help="Serve these models with a Triton of our own: those of the miniature world, those that a TOML "
        "file names, or the checkpoints in a folder.",
        show_default=False,
    ),
]

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
StreamOnlyOption = Annotated[
    bool, typer.Option("--stream-only", help="Leave out the archive: what the stream still holds.")
]

NOTHING_RUNS = (
    f"{NOTHING_FOUND}: start one with groundwatch up, or say where one is: "
    "--folder FOLDER of an up, --nats URL, or nats.url (GROUNDWATCH_NATS__URL)"
)


class Command(TyperCommand):
    """Says which options are meant where an error names parameters."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            named = {one.name: one.opts[0] for one in self.params if one.opts[0].startswith("--")}
            if options := [named[name] for name in error.parameters if name in named]:
                error.args = (f"{error} ({', '.join(options)})",)
            raise


def group(
    about: str, cls: type[TyperGroup] | None = None, /, **commands: Callable[..., None] | typer.Typer
) -> typer.Typer:
    """Commands under one name, in this order."""
    made = typer.Typer(cls=cls, help=about, no_args_is_help=True)
    for key, command in commands.items():
        name = key.replace("_", "-")
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            made.command(name, cls=Command)(command)
    return made


def serve_metrics(port: int, registry: CollectorRegistry, settings: Settings) -> WSGIServer:
    """Answer /metrics until the process ends."""
    try:
        server, _ = start_http_server(port, addr=settings.telemetry.host, registry=registry)
    except OSError as error:
        raise UsageError(f"--metrics-port {port}: {error.strerror or error}") from error
    return server


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
            raise UsageError("--folder and --nats do not go together: each says where the streams are")
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
