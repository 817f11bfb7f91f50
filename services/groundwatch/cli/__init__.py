"""The command line. Exit status: 0 done, 1 the thing checked does not hold, 2 wrong use."""

import os
import sys
from typing import Any

import typer

from groundwatch import __version__, termination
from groundwatch.cli.commands import add_commands
from groundwatch.cli.messages import complain, say, told_here
from groundwatch.errors import CheckFailed, ConnectionLost, GroundwatchError, OpenedFolderError, SettingsError

Mistyped: type[Exception] = typer.BadParameter.__bases__[0]
"""What typer raises for a wrong command line; it has no public name of its own there."""

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
        say(f"groundwatch {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Options that stand before every command."""


add_commands(app)


def main() -> None:
    """Run the command line; errors on purpose become one line on standard error."""
    # Set before torch loads: its threads else spin while they wait, and take the cores from the services.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    termination.install()
    termination.begin()
    try:
        status = app(prog_name="groundwatch", standalone_mode=False)
    except (CheckFailed, ConnectionLost) as error:
        complain(str(error))
        status = 1
    except OpenedFolderError as error:
        complain(told_here(error))
        status = 2
    except GroundwatchError as error:
        for problem in error.problems if isinstance(error, SettingsError) else (str(error),):
            complain(problem)
        status = 2
    except OSError as error:
        if error.filename is None:
            raise
        complain(f"{str(error.filename)[:200]}: {error.strerror}")
        status = 2
    except Mistyped as error:
        status = _mistyped(error)
    except typer.Abort:
        status = 130
    except SystemExit as error:
        # The reader of our output went away (`| head`), for which typer and rich exit with 1: not our error.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status if isinstance(status, int) else 0)


def _mistyped(error: Any) -> int:
    if error.ctx is not None and type(error).__name__ == "NoArgsIsHelpError":
        for line in error.ctx.get_help().splitlines():
            say(line, err=True)
        return 2
    where = f" (see {error.ctx.command_path} --help)" if error.ctx is not None else ""
    complain(f"{error.format_message()}{where}")
    return 2
