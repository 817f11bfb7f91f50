"""What commands print: lines, one line on what is wrong, questions, JSON, and how far they are."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import typer

from groundwatch.addresses import concealed
from groundwatch.terminal import MofNCompleteColumn, Progress, TimeRemainingColumn, escape_json, visible
from groundwatch.terminal import progress as bar


def say(line: str = "", *, err: bool = False) -> None:
    """One line; what a terminal would obey in it is written out."""
    typer.echo(visible(line), err=err)


def complain(message: str) -> None:
    """What is wrong, on one line of standard error, without the secrets of addresses in it."""
    say(f"groundwatch: {' '.join(concealed(message).split())}", err=True)


def confirmed(question: str) -> bool:
    """Whether the user says yes to it."""
    return typer.confirm(visible(question))


def print_json(value: Any) -> None:
    """One JSON object on standard output, over many lines."""
    say_json(msgspec.json.format(_encoded(value), indent=2))


def print_json_line(value: Any) -> None:
    """One JSON object on a line of standard output."""
    say_json(_encoded(value))


def say_json(encoded: bytes) -> None:
    """JSON as it is, with what a terminal would obey escaped."""
    sys.stdout.write(escape_json(encoded.decode()) + "\n")
    sys.stdout.flush()


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A name of a file that is not UTF-8: JSON can say its bytes only as lone surrogates.
        return json.dumps(msgspec.to_builtins(value)).encode()


def progress_bar(*, quiet: bool = False) -> Progress:
    """How many are done, on standard error."""
    return bar(MofNCompleteColumn(), TimeRemainingColumn(), quiet=quiet)
