"""The floors of the house, and what keeps its rooms readable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.application.use_cases import create_report, read_user_options
from importlinter.cli import lint_imports

import groundwatch

ROOT = Path(__file__).parents[1]
SOURCE = Path(groundwatch.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py") if "generated" not in path.parts)
MAX_LINES = 500

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(node: ast.Module | ast.ClassDef, above: str = "") -> Iterator[tuple[str, Definition]]:
    """Public classes, functions and methods, each with its dotted name; what functions hold is their own."""
    for child in node.body:
        if isinstance(child, Definition) and not child.name.startswith("_"):
            yield f"{above}{child.name}", child
            if isinstance(child, ast.ClassDef):
                yield from definitions(child, f"{above}{child.name}.")


def interface_methods() -> set[str]:
    """Names of methods that a `typing.Protocol` documents: who implements one need not say it again."""
    found = set()
    for path in FILES:
        for _, node in definitions(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases):
                found |= {name for name, method in definitions(node) if ast.get_docstring(method)}
    return found


INHERITED = interface_methods()


def test_imports_keep_the_contracts(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename="pyproject.toml", no_cache=True) == 0, capsys.readouterr().out


def test_every_contract_is_checked(monkeypatch):
    monkeypatch.chdir(ROOT)
    report = create_report(read_user_options(config_filename="pyproject.toml"), cache_dir=None)
    assert not report.could_not_run
    assert report.kept_count == 3
    assert report.module_count >= len([path for path in FILES if path.name != "__init__.py"])


@each_file
def test_no_file_is_a_house_of_its_own(path):
    lines = len(path.read_text("utf-8").splitlines())
    assert lines <= MAX_LINES, f"{lines} lines: this is usually two rooms"


@each_file
def test_public_members_say_what_they_are(path):
    tree = ast.parse(path.read_text("utf-8"))
    if tree.body:
        assert ast.get_docstring(tree) or path.name == "__init__.py", "the module has no docstring"
    silent = [
        f"{name} (line {node.lineno})"
        for name, node in definitions(tree)
        if not ast.get_docstring(node)
        and not ("." in name and node.name in INHERITED)
        and not _is_overload(node)
    ]
    assert silent == []


def _is_overload(node: Definition) -> bool:
    return any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)
