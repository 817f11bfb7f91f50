"""`groundwatch admin`: NATS prepared, its users and their rights, settings looked at, models for Triton."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from groundwatch.addresses import concealed, without_secrets
from groundwatch.cli.options import JsonOption, ModelsOption, OnServer
from groundwatch.cli.output import complain, print_json, say
from groundwatch.errors import SettingsError, UsageError
from groundwatch.models.repository import write_repository
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.security.users import SECRETS_FILE, SERVER_FILE, VALUES_FILE, write_auth
from groundwatch.runtime.settings.reading import read
from groundwatch.runtime.telemetry import logs
from groundwatch.system.connecting import on_bus, run
from groundwatch.system.models import named_models
from groundwatch.system.settings_check import ENGINES, named_engine
from groundwatch.system.settings_check import check_settings as checked
from groundwatch.topology import PROVISIONER

FileArgument = Annotated[
    Path | None,
    typer.Argument(help="Settings file (TOML); the one that GROUNDWATCH_CONFIG names when absent."),
]


def provision_command(settings: OnServer, as_json: JsonOption = False) -> None:
    """Create streams and consumers, or change them without dropping anything; safe to repeat."""
    replicas, cache = settings.nats.replicas, settings.cache
    done = on_bus(
        settings, lambda bus: provision(bus.js, replicas=replicas, cache=cache), PROVISIONER, PROVISIONER
    )
    if as_json:
        print_json({one.name: one.change for one in done})
        return
    for one in done:
        say(f"{one.change:<10} {one.kind:<9} {one.name}")


def auth(
    folder: Annotated[Path, typer.Argument(help="The folder of users, rights and seeds.")],
    tls: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Also an authority and a certificate for servers of this name or address; repeatable.",
        ),
    ] = None,
    rotate: Annotated[
        list[str] | None,
        typer.Option(metavar="USER", help="A new seed for this user; the server takes the former one too."),
    ] = None,
    retire: Annotated[
        list[str] | None,
        typer.Option(metavar="USER", help="The server takes this user's former seeds no more."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write users, rights and seeds for the NATS server into a folder; talks to no server."""
    wrote = write_auth(folder, rotate=rotate or [], retire=retire or [], hosts=tls or [])
    if as_json:
        print_json({one.path: one.change for one in wrote})
        return
    for one in wrote:
        say(f"{one.change:<10} {one.path}")
    say(f"  server     include {folder / SERVER_FILE} in its configuration, then reload it")
    say("  services   GROUNDWATCH_NATS__NKEY_SEED_FILE and GROUNDWATCH_NATS__TLS_CA for each")
    say(f"  cluster    sh {folder / SECRETS_FILE}; helm upgrade … -f {folder / VALUES_FILE}")


def models(
    folder: Annotated[Path, typer.Argument(help="Where the model repository is written.")],
    models: ModelsOption,
    as_json: JsonOption = False,
) -> None:
    """Write a model repository for a Triton that runs elsewhere."""
    found = named_models(models)
    write_repository(folder, found)
    if as_json:
        print_json(found)
        return
    for name, model in found.items():
        say(f"{name:<16} {model.kind:<14} {model.checkpoint}")


def check_settings(
    file: FileArgument = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(help="Only the engine of this stage, as in its container; all stages when absent."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read the file and the environment as services do, and tell every problem."""
    logs.configure(level="error")
    stages = tuple(stage or ENGINES)
    if unknown := [name for name in stages if name not in ENGINES]:
        raise UsageError(f"no stage '{unknown[0]}' with engines; there are {', '.join(ENGINES)}")
    reading = read(file, os.environ)
    problems = reading.problems
    run(checked(reading.settings, os.environ, stages, problems))
    engines = {name: named_engine(reading.settings, name) for name in stages}
    judges = reading.settings.verification.by_protocol() if "verification" in stages else {}
    if as_json:
        print_json(
            {
                "ok": not problems.found,
                "file": str(reading.source) if reading.source else None,
                "problems": [concealed(problem) for problem in problems.found],
                "notes": [concealed(note) for note in problems.notes],
                "engines": engines,
                "judges": judges,
            }
        )
    elif not problems.found:
        say(f"settings are right: {reading.source or 'no file'}, {len(reading.variables)} variables")
        say("engines: " + ", ".join(f"{name} {engine}" for name, engine in engines.items()))
        if judges:
            say("judges: " + ", ".join(f"{name} {engine}" for name, engine in judges.items()))
        for note in problems.notes:
            say(f"note: {concealed(note)}")
    else:
        for problem in problems.found:
            complain(problem)
    if problems.found:
        raise typer.Exit(2)


def show_settings(file: FileArgument = None, as_json: JsonOption = False) -> None:
    """What is set, and by which file or variable; as JSON also all that is effective. No secrets."""
    reading = read(file, os.environ)
    if reading.problems.found:
        raise SettingsError(*reading.problems.found)
    given = {key: (without_secrets(value, key), origin) for key, (value, origin) in reading.given.items()}
    if as_json:
        print_json(
            {
                "file": str(reading.source) if reading.source else None,
                "set": {key: {"value": value, "from": origin} for key, (value, origin) in given.items()},
                "effective": without_secrets(reading.settings.model_dump(mode="json")),
            }
        )
        return
    for key, (value, origin) in given.items():
        say(f"{key} = {msgspec.json.encode(value).decode()}   ({origin})")
    say("all else is default")
