"""The command line. Exit status: 0 done, 1 the thing checked does not hold, 2 wrong use."""

from __future__ import annotations

import os
import sys

import typer

import groundwatch.cli.bench as bench
import groundwatch.cli.demo as demo
import groundwatch.cli.ledger as ledger
import groundwatch.cli.offline as offline
import groundwatch.cli.system as system
import groundwatch.cli.traffic as traffic
from groundwatch import __version__
from groundwatch.errors import CheckFailed, GroundwatchError

app = typer.Typer(
    name="groundwatch",
    help="Says how much of what vision-language models say about an image is not in the image.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"groundwatch {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Options that stand before every command."""


for module in (system, demo, traffic, ledger, offline, bench):
    module.register(app)


def main() -> None:
    """Run the command line; errors on purpose become one line on standard error."""
    try:
        app()
    except CheckFailed as error:
        _say(error)
        sys.exit(1)
    except GroundwatchError as error:
        _say(error)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not our error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _say(error: Exception) -> None:
    text = " ".join(str(error).split())
    sys.stderr.write(f"groundwatch: {text}\n")
