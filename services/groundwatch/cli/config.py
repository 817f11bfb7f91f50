"""Settings looked at before anything starts: every problem at once, or what is effective."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from groundwatch.addresses import concealed, without_secrets
from groundwatch.cli.options import JsonOption
from groundwatch.cli.output import complain, print_json, say
from groundwatch.errors import SettingsError, UsageError
from groundwatch.runtime.settings import read
from groundwatch.runtime.telemetry import logs
from groundwatch.system.connecting import run
from groundwatch.system.settings_check import ENGINES, check_settings, named_engine

config = typer.Typer(help="The settings of the services.", no_args_is_help=True)

FileArgument = Annotated[
    Path | None,
    typer.Argument(help="Settings file (TOML); the one that GROUNDWATCH_CONFIG names when absent."),
]


@config.command("check")
def check(
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
    run(check_settings(reading.settings, os.environ, stages, problems))
    engines = {name: named_engine(reading.settings, name) for name in stages}
    if as_json:
        print_json(
            {
                "ok": not problems.found,
                "file": str(reading.source) if reading.source else None,
                "problems": [concealed(problem) for problem in problems.found],
                "notes": [concealed(note) for note in problems.notes],
                "engines": engines,
            }
        )
    elif not problems.found:
        say(f"settings are right: {reading.source or 'no file'}, {len(reading.variables)} variables")
        say("engines: " + ", ".join(f"{name} {engine}" for name, engine in engines.items()))
        for note in problems.notes:
            say(f"note: {concealed(note)}")
    else:
        for problem in problems.found:
            complain(problem)
    if problems.found:
        raise typer.Exit(2)


@config.command("show")
def show(file: FileArgument = None, as_json: JsonOption = False) -> None:
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


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(config, name="config")
