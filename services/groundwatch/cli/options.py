"""Options that mean the same in every command, and the settings they lead to."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args
from wsgiref.simple_server import WSGIServer

import typer
from prometheus_client import CollectorRegistry, start_http_server
from typer.core import TyperCommand, TyperGroup

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

LAST = ("config", "nats", "folder", "as_json")

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


def add_command(app: typer.Typer, name: str, function: Callable[..., None], panel: str | None = None) -> None:
    """Add a command. A parameter that is annotated with a function is what that function makes of options of
    its own, which stand in its place; those that every command has come last."""
    known = inspect.signature(function, eval_str=True).parameters
    makers = {one: get_args(known[one].annotation)[1] for one in known if _has_maker(known[one])}
    wanted = {one: inspect.signature(maker, eval_str=True).parameters for one, maker in makers.items()}
    parameters: dict[str, inspect.Parameter] = {}
    for one, parameter in known.items():
        parameters |= {key: known.get(key, own) for key, own in wanted.get(one, {one: parameter}).items()}
    in_order = sorted(parameters, key=lambda one: LAST.index(one) if one in LAST else -1)
    shown_parameters = [parameters[one].replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in in_order]

    def command(**given: Any) -> None:
        made = {one: maker(**{key: given[key] for key in wanted[one]}) for one, maker in makers.items()}
        function(**{one: made[one] if one in made else given[one] for one in known})

    shown: Any = command
    shown.__doc__ = function.__doc__
    shown.__signature__ = inspect.Signature(shown_parameters)
    shown.__annotations__ = {one.name: one.annotation for one in shown_parameters}
    app.command(name, cls=Command, rich_help_panel=panel)(command)


def _has_maker(parameter: inspect.Parameter) -> bool:
    return inspect.isfunction(next(iter(get_args(parameter.annotation)[1:]), None))


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
            add_command(made, name, command)
    return made


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
