"""Settings looked at before anything starts: every problem at once, or what is effective."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from groundwatch.addresses import concealed, without_secrets
from groundwatch.cli.common import JsonOption, run
from groundwatch.cli.config_engines import ENGINES, engine_problems, named_engine
from groundwatch.cli.config_places import place_problems
from groundwatch.cli.config_reading import Problems, Read, read
from groundwatch.cli.output import complain, print_json, say
from groundwatch.errors import SettingsError, UsageError
from groundwatch.protocols import registry
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.runtime.settings.tree import Settings
from groundwatch.runtime.telemetry import logs

config = typer.Typer(help="The settings of the services.", no_args_is_help=True)


@config.command("check")
def check(
    file: Annotated[
        Path | None,
        typer.Argument(help="Settings file (TOML); the one that GROUNDWATCH_CONFIG names when absent."),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(help="Only the engine of this stage, as in its container; all stages when absent."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read the file and the environment as services do: tell every problem, or what is effective."""
    logs.configure(level="error")
    stages = tuple(stage or ENGINES)
    if unknown := [name for name in stages if name not in ENGINES]:
        raise UsageError(f"no stage '{unknown[0]}' with engines; there are {', '.join(ENGINES)}")
    problems = Problems()
    found = read(file, os.environ, problems)
    _check_protocols(found.settings, problems)
    place_problems(found.settings, os.environ, stages, problems)
    run(engine_problems(found.settings, stages, problems))
    if as_json:
        print_json(_as_json(found, stages, problems))
    else:
        _print(found, stages, problems)
    if problems.found:
        raise typer.Exit(2)


def _check_protocols(settings: Settings, problems: Problems) -> None:
    try:
        FaithScore(weights=settings.faithscore.weights)
    except SettingsError as error:
        problems.add_error(error)
    except ValueError as error:
        problems.add("faithscore.weights", str(error))
    known = registry.names()
    named = [("gateway.protocols", name) for name in settings.gateway.protocols]
    named += [
        (f"gateway.sampling[{number}].protocol", rule.protocol)
        for number, rule in enumerate(settings.gateway.sampling)
        if rule.protocol
    ]
    for key, name in named:
        if name not in known:
            problems.add(key, f"no protocol '{name}'; known are {', '.join(known)}")


def _as_json(found: Read, stages: tuple[str, ...], problems: Problems) -> dict[str, Any]:
    return {
        "ok": not problems.found,
        "file": str(found.source) if found.source else None,
        "problems": [concealed(one) for one in problems.found],
        "notes": [concealed(one) for one in problems.notes],
        "set": {
            key: {"value": without_secrets(value, key), "from": origin}
            for key, value, origin in found.given()
        },
        "engines": {name: named_engine(found.settings, name) for name in stages},
        "effective": {} if problems.found else without_secrets(msgspec.to_builtins(found.settings)),
    }


def _print(found: Read, stages: tuple[str, ...], problems: Problems) -> None:
    if problems.found:
        for problem in problems.found:
            complain(problem)
        return
    say(f"settings are right: {found.source or 'no file'}, {len(found.variables)} variables")
    for key, value, origin in found.given():
        say(f"  {key} = {msgspec.json.encode(without_secrets(value, key)).decode()}   ({origin})")
    say("  all else is default")
    say("engines: " + ", ".join(f"{name} {named_engine(found.settings, name)}" for name in stages))
    for note in problems.notes:
        say(f"note: {concealed(note)}")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(config, name="config")
