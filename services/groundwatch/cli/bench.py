"""Commands that run the benchmarks of a checkout."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import groundwatch
from groundwatch.cli.common import JsonOption, run
from groundwatch.cli.output import print_json
from groundwatch.errors import UsageError
from groundwatch.runtime.telemetry import logs
from groundwatch.terminal import Console, Table

FOLDER = Path(groundwatch.__file__).parents[2] / "bench"


def bench(
    name: Annotated[str, typer.Argument(help="Which benchmark; one of the files in bench/.")],
    as_json: JsonOption = False,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the benchmark, as NAME=NUMBER.")
    ] = None,
) -> None:
    """Run a benchmark of a source checkout and print its figures: medians and ratios of one run.

    Exit status 1 when it checks something and that does not hold.
    """
    logs.configure(level="error")
    measure, parameters = _measure_of(name), _parameters(options or [])
    if unknown := parameters.keys() - (known := inspect.signature(measure).parameters.keys()):
        raise UsageError(f"bench {name} has no parameter '{min(unknown)}'; there are {', '.join(known)}")
    found = run(measure(**parameters))
    if as_json:
        print_json(found)
    else:
        table = Table("figure", "value", box=None, title=f"bench {name}", title_justify="left")
        for key, value in _flat(found):
            table.add_row(key, str(value))
        Console().print(table)
    if found.get("ok") is False:
        raise typer.Exit(1)


def _measure_of(name: str) -> Callable[..., Any]:
    known = sorted(path.stem for path in FOLDER.glob("*.py")) if FOLDER.is_dir() else []
    if not known:
        raise UsageError("benchmarks come with a source checkout, and this is an installed package")
    if name not in known:
        raise UsageError(f"no benchmark '{name}'; there are {', '.join(known)}")
    sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    measure: Callable[..., Any] = module.measure
    return measure


def _parameters(options: list[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for option in options:
        name, _, value = option.partition("=")
        try:
            parameters[name] = int(value)
        except ValueError as error:
            raise UsageError(f"--set {option}: write NAME=NUMBER") from error
    return parameters


def _flat(found: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in found.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return rows


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("bench")(bench)
