"""The tree of commands as pages describe it, and options that mean the same everywhere."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_type_hints

from tests.support.command_tree import leaves

TREE = {
    *(
        "up",
        "demo",
        "serve",
        "submit",
        "connect",
        "watch",
        "report",
        "compare",
        "query",
        "audit",
        "score",
        "probe",
    ),
    *(f"replay {name}" for name in ("start", "list", "show", "pause", "resume", "cancel", "delete")),
    *(f"replay {name}" for name in ("retry", "faults", "export")),
    *(f"review {name}" for name in ("create", "list", "show", "close", "delete", "export", "import")),
    *(
        f"validate {name}"
        for name in (
            "faithscore",
            "valor",
            "tri-he",
            "annotators",
            "claims",
            "extraction",
            "scores",
            "verdicts",
            "planted",
            "miniature",
        )
    ),
    *(f"dataset {name}" for name in ("pope", "vlm2", "valor", "tri-he")),
    *(f"admin {name}" for name in ("provision", "auth", "erase", "retention", "models", "cost")),
    *(f"admin budget {name}" for name in ("list", "set", "remove")),
    *("admin dead list", "admin dead retry", "admin config check", "admin config show"),
    "admin archive status",
}
MEANINGS = {"run": str, "from": str, "since": str, "until": str, "out": Path, "folder": Path}
"""A run's name, a stage, times, a file, a folder."""


def test_the_tree_is_as_it_is_described():
    assert {name for name, _ in leaves()} == TREE


def test_an_option_has_one_meaning():
    wrong = []
    for name, command in leaves():
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
        for name, command in leaves()
        for parameter in command.params
        if not getattr(parameter, "help", "")
    ]
    assert silent == []
    assert [name for name, command in leaves() if not command.help] == []
