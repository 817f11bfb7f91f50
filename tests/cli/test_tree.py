"""The tree of commands as pages describe it, and options that mean the same everywhere."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

from typer.main import get_command

from groundwatch.cli import app

TREE = {
    *("up", "demo", "serve", "submit", "watch", "report", "compare", "query", "audit", "score", "probe"),
    *(f"replay {name}" for name in ("start", "list", "show", "pause", "resume", "cancel", "delete")),
    *(f"replay {name}" for name in ("retry", "faults", "export")),
    *(
        f"validate {name}"
        for name in ("faithscore", "valor", "tri-he", "annotators", "verdicts", "planted", "miniature")
    ),
    *(f"dataset {name}" for name in ("pope", "vlm2", "valor", "tri-he")),
    *(f"admin {name}" for name in ("provision", "auth", "erase", "retention", "models")),
    *(f"admin budget {name}" for name in ("list", "set", "remove")),
    *("admin dead list", "admin dead retry", "admin config check", "admin config show"),
    *("admin archive status", "admin archive convert"),
}
MEANINGS = {"run": str, "from": str, "since": str, "until": str, "out": Path, "folder": Path}
"""A run's name, a stage, times, a file, a folder."""


def leaves(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield name.strip(), command
        return
    for key, child in children.items():
        yield from leaves(child, f"{name} {key}")


def test_the_tree_is_as_it_is_described():
    assert {name for name, _ in leaves(get_command(app))} == TREE


def test_an_option_has_one_meaning():
    wrong = []
    for name, command in leaves(get_command(app)):
        kinds = get_type_hints(inspect.unwrap(command.callback))
        for parameter in command.params:
            option = parameter.opts[0]
            kind = MEANINGS.get(option.removeprefix("--")) if option.startswith("--") else None
            if kind is not None and kinds[parameter.name] not in (kind, kind | None):
                wrong.append(f"{name} {option}: {kinds[parameter.name]}")
            if option == "--from" and parameter.name != "stage":
                wrong.append(f"{name} {option}: {parameter.name}")
    assert wrong == []


def test_every_command_and_option_says_what_it_is_for():
    silent = [
        f"{name} {parameter.opts[0]}"
        for name, command in leaves(get_command(app))
        for parameter in command.params
        if not getattr(parameter, "help", "")
    ]
    assert silent == []
    assert [name for name, command in leaves(get_command(app)) if not command.help] == []
