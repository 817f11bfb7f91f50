"""The floors of the house, and files that one can read."""

from __future__ import annotations

from pathlib import Path

from importlinter.application.use_cases import create_report, read_user_options
from importlinter.cli import lint_imports

import groundwatch

ROOT = Path(__file__).parents[1]
SOURCE = Path(groundwatch.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py") if "generated" not in path.parts)
MAX_LINES = 500


def test_imports_keep_the_contracts(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename="pyproject.toml", no_cache=True) == 0, capsys.readouterr().out


def test_every_contract_is_checked(monkeypatch):
    monkeypatch.chdir(ROOT)
    report = create_report(read_user_options(config_filename="pyproject.toml"), cache_dir=None)
    assert not report.could_not_run
    assert report.kept_count == 3
    assert report.module_count >= len([path for path in FILES if path.name != "__init__.py"])


def test_no_file_is_a_house_of_its_own():
    lines = {str(path.relative_to(SOURCE)): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {path: number for path, number in lines.items() if number > MAX_LINES} == {}
