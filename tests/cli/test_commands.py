"""A command is loaded when it is called."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.command_tree import leaves
from typer.main import get_command
from typer.testing import CliRunner

from groundwatch.cli import app
from groundwatch.cli.commands import Command, _said
from groundwatch.errors import UsageError
from groundwatch.protocols import registry

HEAVY = ("torch", "transformers", "numpy", "nats", "starlette", "pydantic", "pyarrow", "grpc", "httpx")


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_neither_version_nor_help_load_a_service(option: str) -> None:
    code = (
        "import sys\nfrom groundwatch.cli import main\n"
        "try:\n    main()\nfinally:\n    print('loaded', *sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.partition("loaded ")[2].split())
    assert "groundwatch.cli.messages" in loaded
    assert not loaded & {*HEAVY, "groundwatch.cli.options", "groundwatch.runtime"}


def test_each_place_is_of_a_command_with_its_help() -> None:
    commands = dict(leaves())
    assert {"up", "replay start", "review import", "validate planted", "admin dead list"} <= commands.keys()
    for name, command in commands.items():
        assert isinstance(command, Command), name
        assert command.help, name


def test_all_that_is_said_of_options_is_shown() -> None:
    shown = {getattr(one, "help", "") for _, command in leaves() for one in command.params}
    places = [place for name, place in _said().items() if name == "all"]
    places += [place for name, module in _said().items() if name != "all" for place in module.values()]
    said = {one if isinstance(one, str) else one["help"] for place in places for one in place.values()}
    assert {one for one in said - shown if "{" not in one} == set()


def test_what_stands_for_a_command_says_its_help() -> None:
    group = get_command(app)
    placed = {name: stub for name, stub in group.commands.items() if hasattr(stub, "load")}
    assert {"up", "audit", "validate", "dataset"} <= placed.keys()
    for name, stub in placed.items():
        assert stub.help.split() == stub.load().help.split(), name


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate", "planted", "--answers", "3"),
        ("validate", "miniature"),
        ("validate", "faithscore", "a"),
        ("validate", "extraction", "a"),
        ("dataset", "pope", "a", "--out", "b"),
    ],
)
def test_without_the_benchmarks_a_line_says_what_to_install(arguments, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "groundwatch_benchmarks", None)
    monkeypatch.setattr(registry, "benchmarks", dict)
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, UsageError)
    wanted = "needs the package groundwatch-benchmarks: pip install groundwatch-benchmarks"
    assert str(done.exception).endswith(f"{' '.join(arguments[:2])} {wanted}")
    listed = CliRunner().invoke(app, [arguments[0], "--help"])
    assert listed.exit_code == 0
    assert "groundwatch-benchmarks" in listed.stdout
