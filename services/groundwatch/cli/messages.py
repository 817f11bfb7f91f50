"""What commands say without a table: lines, one line on what is wrong, questions, JSON.

Loaded at every start: imports nothing that takes long.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import typer

from groundwatch.addresses import concealed
from groundwatch.errors import PROVISION, OpenedFolderError
from groundwatch.terminal import escape_json, visible


def say(line: str = "", *, err: bool = False) -> None:
    """One line; what a terminal would obey in it is written out."""
    typer.echo(visible(line), err=err)


def complain(message: str) -> None:
    """What is wrong, on one line of standard error, without the secrets of addresses in it."""
    say(f"groundwatch: {' '.join(concealed(message).split())}", err=True)


def confirmed(question: str) -> bool:
    return typer.confirm(visible(question))


def print_json(value: Any) -> None:
    """One JSON object on standard output, over many lines."""
    say_json(msgspec.json.format(_encoded(value), indent=2))


def print_json_line(value: Any) -> None:
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


def program() -> str:
    """What starts this program in the user's shell and folder."""
    script = Path(sys.argv[0])
    if script.name != "groundwatch" or not script.is_file():
        return f"{_near(Path(sys.executable))} -m groundwatch"
    on_path = shutil.which("groundwatch")
    return "groundwatch" if on_path and Path(on_path).samefile(script) else _near(script)


def place_of(folder: Path | None) -> str:
    """The option that names the folder; nothing for none."""
    return f" --folder {shlex.quote(str(folder))}" if folder is not None else ""


def told_here(error: OpenedFolderError) -> str:
    """The message with what to type for the folder."""
    message, place = str(error), place_of(error.folder)
    if "groundwatch " not in message:
        return message
    if PROVISION in message:
        return message.replace(PROVISION, f"groundwatch up{place} brings the data up to date")
    return f"{message}; here with{place}"


def _near(path: Path) -> str:
    """The path as it is written from here; with a slash, so that no shell looks for it elsewhere."""
    path = path.absolute()
    if not path.is_relative_to(Path.cwd()):
        return shlex.quote(str(path))
    near = str(path.relative_to(Path.cwd()))
    return shlex.quote(near if os.sep in near else f".{os.sep}{near}")
