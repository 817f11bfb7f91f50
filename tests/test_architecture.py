"""The floors of the house."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nats.js.errors

import groundwatch
from groundwatch.errors import words
from groundwatch.protocols import registry
from tests.support.command_tree import leaves

ROOT = Path(__file__).parents[1]
SOURCE = Path(groundwatch.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py") if "generated" not in path.parts)


def test_imports_keep_the_contracts():
    # As a process of its own: it turns off every logger of the process that it runs in.
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    for folder in (ROOT / "benchmarks", ROOT):
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=100)
        assert run.returncode == 0, run.stdout + run.stderr
    # Every one of them was looked at, with every module.
    assert "Contracts: 4 kept, 0 broken." in run.stdout
    analyzed = re.search(r"Analyzed (\d+) files", run.stdout)
    assert analyzed and int(analyzed[1]) >= len([path for path in FILES if path.name != "__init__.py"])


def test_the_page_shows_the_floors():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = contracts[0]["layers"]
    rows = []
    for floor, layer in zip(range(len(layers), 0, -1), layers, strict=True):
        names = ", ".join(f"`{name.strip()}`" for name in re.split("[|:]", layer))
        rows.append(f"| {floor} | {names}{': none imports another' if '|' in layer else ''} |")
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert "\n".join(["| floor | packages |", "| --- | --- |", *rows, ""]) in page


BY_NAME = {
    "reviews/files.py": "the name of a format: FaithScore's published annotations",
    "runtime/settings/gateway.py": "the protocol that a gateway judges by when nobody says which",
}
"""Who may know a protocol by its name besides the protocol itself, and why; a folder is all that is in it."""


def test_one_file_touches_what_is_faststreams_own():
    touching = [path.name for path in FILES if "faststream._internal" in path.read_text()]
    assert touching == ["pull.py"]


def test_nobody_knows_a_protocol_by_its_name():
    """All else asks the protocols that are found, so one that is added has all that others have."""
    found = {}
    names = {*registry.names(), *registry.methods()}
    folders = (path for path in (SOURCE / "protocols").iterdir() if path.is_dir())
    packages = {f"groundwatch.protocols.{path.name}" for path in folders}
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        own = ".".join(("groundwatch", *name.split("/")[:2]))
        tree = ast.parse(path.read_text("utf-8"))
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        for node in ast.walk(tree):
            imported |= {one.name for one in node.names} if isinstance(node, ast.Import) else set()
        known = {one for one in imported if ".".join(one.split(".")[:3]) in packages - {own}}
        if own not in packages:
            known |= {text for _, text in texts(tree) if text in names}
        if known:
            folder = name.rpartition("/")[0]
            found[folder if folder in BY_NAME else name] = sorted(known)
    assert {name: known for name, known in found.items() if name not in BY_NAME} == {}
    assert BY_NAME.keys() == found.keys(), "these know none any more"


def test_errors_are_told_in_words():
    """What `/readyz`, pages and lines of the command line say of an error; a log has its `repr` beside."""
    shown = re.compile(r"str\(error\) or repr|\{error!r\}")
    # The client depends on nothing of ours and tells a developer.
    named = [path.relative_to(SOURCE).as_posix() for path in FILES if shown.search(path.read_text())]
    assert [name for name in named if not name.startswith("client/")] == []
    raised = nats.js.errors.NotFoundError(code=404, err_code=10014, description="consumer not found")
    assert words(raised) == "consumer not found (NotFoundError)"
    assert words(TimeoutError()) == "timeout"
    # As nats-py raises it where JetStream does not answer.
    assert words(nats.js.errors.ServiceUnavailableError()) == "service unavailable"
    assert words(nats.errors.Error()) == "error"


PRINTING = {"terminal.py", "cli/messages.py", "cli/output.py", "termination.py"}
"""What prints: everything goes through the first two, which write out what a terminal would obey. The last
says one line of its own when it is told to end before anything else is loaded."""


def test_texts_reach_a_terminal_only_by_what_makes_them_safe():
    found = []
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        if name not in PRINTING:
            found += [f"{name}:{line}: {what}" for line, what in prints(ast.parse(path.read_text("utf-8")))]
    assert found == [], "use groundwatch.cli.output and groundwatch.terminal"


def prints(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What prints by itself: an import of rich, and calls that write to a standard stream."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            if isinstance(node, ast.Call) and ast.unparse(node.func) in _PRINTERS:
                yield node.lineno, ast.unparse(node.func)
            continue
        yield from ((node.lineno, name) for name in names if name.partition(".")[0] in ("rich", "curses"))


_PRINTERS = {
    "print",
    "input",
    "typer.echo",
    "typer.secho",
    "typer.confirm",
    "typer.prompt",
    "click.echo",
    *(f"sys.{stream}.{verb}" for stream in ("stdout", "stderr") for verb in ("write", "writelines")),
    *(f"sys.{stream}.buffer.write" for stream in ("stdout", "stderr")),
}


FLAG = re.compile(r"(?<![\w-])--[a-z{]")
OTHERS = ("kubectl",)
"""Programs of others: a text that names one may hold its flags."""

STARTS = ("subprocess", "argparse", "sys.argv", *OTHERS)
"""What a file has in it that starts programs or reads a command line."""


def test_only_the_command_line_spells_its_options():
    """Messages below `cli` name the thing, and a `UsageError` its parameter; `cli` says which option that is.

    Told is a text with a flag among words. A text that is nothing but a flag is an argument, where its file
    starts programs or reads a command line. Docstrings are not shown to anybody. Files of answers are opened
    by commands alone, and what one lacks is told with what to type.
    """
    found = []
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(("cli/", "client/files/")):
            continue
        text = path.read_text("utf-8")
        passes = any(one in text for one in STARTS)
        for line, shown in texts(ast.parse(text)):
            alone = not any(letter.isspace() for letter in shown)
            if FLAG.search(shown) and not (passes and alone) and not any(one in shown for one in OTHERS):
                found.append(f"{name}:{line}: {shown}")
    assert found == []


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every text that is no docstring, with `{}` for what is put into it."""
    stated = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
    } - {id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values),
            )
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in stated | parts
        ):
            yield node.lineno, node.value


def test_what_an_error_names_is_an_option_of_some_command():
    known = {parameter.name for _, command in leaves() for parameter in command.params}
    named = {
        (f"{path.relative_to(SOURCE)}:{node.lineno}", argument.value)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "UsageError"
        for argument in node.args[1:]
        if isinstance(argument, ast.Constant)
    }
    assert {name for _, name in named} >= {"since", "folder", "allow_gap"}
    assert {(where, name) for where, name in named if name not in known} == set()
