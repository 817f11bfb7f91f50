"""`python -m bench NAME [--json] [--set NAME=NUMBER]`: run a benchmark and print its figures.

Each parameter is an option too: `--minutes 15` is `--set minutes=15`, and `--cluster` is `--set cluster=1`.
Figures are medians and ratios of one run. Exit status 1 when the benchmark checks something and that does not
hold.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from groundwatch.cli.messages import complain, print_json
from groundwatch.cli.output import render_numbers
from groundwatch.errors import GroundwatchError
from groundwatch.runtime.telemetry import logs
from groundwatch.system.connecting import run
from groundwatch.terminal import Console

FOLDER = Path(__file__).parent


def main(arguments: Sequence[str], folder: Path = FOLDER) -> int:
    """The exit status."""
    # Set before torch loads, as the command line does: its waiting threads else take the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Nor may gRPC's care for forks, which breaks a child that is to run another program at once.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    names = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=(__doc__ or "").partition("\n\n")[2], allow_abbrev=False
    )
    parser.add_argument("name", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=NUMBER", help="a parameter of the benchmark"
    )
    chosen, options = parser.parse_known_args(arguments)
    sys.path.insert(0, str(folder))
    measure = importlib.import_module(chosen.name).measure
    parameters = _parameters(parser, measure, chosen.set) | _options(parser, measure, options)

    logs.configure(level="error")
    try:
        found = run(measure(**parameters))
    except GroundwatchError as error:
        complain(str(error))
        return 2
    print_json(found) if chosen.json else render_numbers(found, Console())
    return 1 if found.get("ok") is False else 0


def _parameters(
    parser: argparse.ArgumentParser, measure: Callable[..., Any], options: Sequence[str]
) -> dict[str, int]:
    known = list(inspect.signature(measure).parameters)
    parameters: dict[str, int] = {}
    for option in options:
        name, _, value = option.partition("=")
        if name not in known:
            parser.error(f"--set {option}: there is no parameter '{name}', only {', '.join(known)}")
        try:
            parameters[name] = int(value)
        except ValueError:
            parser.error(f"--set {option}: write NAME=NUMBER")
    return parameters


def _options(
    parser: argparse.ArgumentParser, measure: Callable[..., Any], options: Sequence[str]
) -> dict[str, int]:
    own = argparse.ArgumentParser(
        prog=parser.prog,
        usage=parser.format_usage().removeprefix("usage: "),
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for name, one in inspect.signature(measure).parameters.items():
        if isinstance(one.default, str):
            own.add_argument(f"--{name}", metavar="NAME")
        else:
            own.add_argument(f"--{name}", type=int, nargs="?", const=1, metavar="NUMBER")
    return vars(own.parse_args(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
