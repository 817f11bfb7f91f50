"""The command that runs benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groundwatch.cli import app, bench


@pytest.mark.parametrize(("holds", "status"), ((True, 0), (False, 1)))
def test_what_does_not_hold_is_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holds: bool, status: int
) -> None:
    (tmp_path / "checks.py").write_text(f"async def measure(*, seed=0):\n    return {{'ok': {holds}}}\n")
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    done = CliRunner().invoke(app, ["bench", "checks", "--json"])
    assert json.loads(done.stdout) == {"ok": holds}
    assert done.exit_code == status
