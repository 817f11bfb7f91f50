"""Every command of the command line, those that protocols carry among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from groundwatch.cli import app


def leaves(command: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each command with its name, such as "replay start"."""
    command = command or get_command(app)
    command = command.load() if hasattr(command, "load") else command
    if not isinstance(command, TyperGroup):
        yield name.strip(), command
        return
    context = Context(command)
    for key in command.list_commands(context):
        yield from leaves(command.get_command(context, key), f"{name} {key}")
