"""Options that mean the same in every command, and the settings they lead to."""

from pathlib import Path
from typing import Annotated
from wsgiref.simple_server import WSGIServer

import typer
from prometheus_client import CollectorRegistry, start_http_server

from groundwatch.errors import UsageError
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry import logs
from groundwatch.system.connecting import NOTHING_FOUND, check_streams, find_running, prepare, with_nats

ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="Settings file (TOML).")]
NatsOption = Annotated[
    str, typer.Option("--nats", help="NATS address; the running `groundwatch up` when absent.")
]
FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder", help="The data of an `up` or a demo on this machine, whether that still runs or not."
    ),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="THEIRS=OURS",
        help="Which column or key of the file is which of our fields, such as question=prompt, "
        "doc.image=images or split=tags.split; repeatable.",
    ),
]
QuestionsOption = Annotated[
    Path | None,
    typer.Option(
        "--questions",
        help="The file that has the questions and images of the answers, where they stand apart: a batch's "
        "input, a benchmark's questions.",
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
    ),
]

BaselineOption = Annotated[
    str,
    typer.Option(metavar="VALUE", help="With --by and a tag: its value that the others are compared with."),
]

ArchiveOnlyOption = Annotated[
    bool, typer.Option("--archive-only", help="Leave out what is still only in the stream: needs no NATS.")
]

NOTHING_RUNS = (
    f"{NOTHING_FOUND}: start one with groundwatch up, or say where one is: "
    "--folder FOLDER of an up, --nats URL, or nats.url (GROUNDWATCH_NATS__URL)"
)


def serve_metrics(port: int, registry: CollectorRegistry, settings: Settings) -> WSGIServer:
    """Answer /metrics until the process ends."""
    try:
        server, _ = start_http_server(port, addr=settings.telemetry.host, registry=registry)
    except OSError as error:
        raise UsageError(f"--metrics-port {port}: {error.strerror or error}") from error
    return server


def client_settings(
    config: ConfigOption = None,
    nats: NatsOption = "",
    folder: FolderOption = None,
    archive_only: ArchiveOnlyOption = False,
) -> Settings:
    """Settings for a command that talks to a running system, found by itself on this machine.

    With `folder` it is the one with its data there. When that does not run, no address is set, and
    `connected` opens the data for the time of the command. Raises `UsageError` when there is none,
    unless the archive alone is asked.
    """
    settings = prepare(config, nats)
    if folder is not None:
        if nats:
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
    if not settings.nats.url and not archive_only:
        raise UsageError(NOTHING_RUNS)
    return settings


def _configured(config: ConfigOption = None) -> Settings:
    return prepare(config)


def _on_server(config: ConfigOption = None, nats: NatsOption = "") -> Settings:
    return client_settings(config, nats)


def _on_system(config: ConfigOption = None, nats: NatsOption = "", folder: FolderOption = None) -> Settings:
    return client_settings(config, nats, folder)


Configured = Annotated[Settings, _configured]
"""Of a command that needs no running system."""

OnServer = Annotated[Settings, _on_server]
OnSystem = Annotated[Settings, _on_system]
"""Also of one that does not run, with its data here."""

WithHistory = Annotated[Settings, client_settings]
