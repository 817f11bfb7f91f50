"""The settings that options lead to which every command has. What options are for says `options.toml`."""

from pathlib import Path
from typing import Annotated
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from groundwatch.errors import UsageError
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry import logs
from groundwatch.system.connecting import NOTHING_FOUND, check_streams, find_running, prepare, with_nats

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
    *, config: Path | None = None, nats: str = "", folder: Path | None = None, archive_only: bool = False
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


def _configured(*, config: Path | None = None) -> Settings:
    return prepare(config)


def _on_server(*, config: Path | None = None, nats: str = "") -> Settings:
    return client_settings(config=config, nats=nats)


def _on_system(*, config: Path | None = None, nats: str = "", folder: Path | None = None) -> Settings:
    return client_settings(config=config, nats=nats, folder=folder)


Configured = Annotated[Settings, _configured]
"""Of a command that needs no running system."""

OnServer = Annotated[Settings, _on_server]
OnSystem = Annotated[Settings, _on_system]
"""Also of one that does not run, with its data here."""

WithHistory = Annotated[Settings, client_settings]
