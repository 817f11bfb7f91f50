"""What runs benchmarks."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_main", ROOT / "bench" / "__main__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("holds", "status"), ((True, 0), (False, 1)))
def test_what_does_not_hold_is_the_exit_status(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], holds: bool, status: int
) -> None:
    name = f"checks_{status}"
    (tmp_path / f"{name}.py").write_text(
        f"async def measure(*, seed=0):\n    return {{'ok': {holds}, 'seed': seed}}\n"
    )
    assert bench.main([name, "--json", "--set", "seed=3"], tmp_path) == status
    assert json.loads(capsys.readouterr().out) == {"ok": holds, "seed": 3}


def test_a_parameter_is_an_option_too(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "named.py").write_text(
        "async def measure(*, minutes=1, cluster=0, profile='small'):\n    return locals()\n"
    )
    assert bench.main(["named", "--minutes", "15", "--json", "--cluster", "--profile", "x"], tmp_path) == 0
    assert json.loads(capsys.readouterr().out) == {"minutes": 15, "cluster": 1, "profile": "x"}


@pytest.mark.parametrize("options", (["--minute", "15"], ["--minutes", "x"], ["15"]))
def test_a_wrong_option_is_told(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    (tmp_path / "told.py").write_text("async def measure(*, minutes=1):\n    return {}\n")
    with pytest.raises(SystemExit) as ended:
        bench.main(["told", *options], tmp_path)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("usage: python -m bench") and options[-1] in told


@pytest.mark.parametrize("option", ("sead=1", "seed=x"))
def test_a_wrong_parameter_is_told(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (tmp_path / "measures.py").write_text("async def measure(*, seed=0):\n    return {}\n")
    with pytest.raises(SystemExit) as ended:
        bench.main(["measures", "--set", option], tmp_path)
    assert ended.value.code == 2
    assert f"error: --set {option}: " in capsys.readouterr().err


def test_every_benchmark_is_imported_outside_of_pytest() -> None:
    """Here `tests` is already ours; for a plain Python it may be a package that somebody else installed."""
    names = sorted(path.stem for path in (ROOT / "bench").glob("[!_]*.py"))
    code = (
        f"import importlib, sys; sys.path.insert(0, 'bench'); [importlib.import_module(n) for n in {names}]"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert names and ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("profile", ["small", "default", "production"])
def test_a_soak_goes_at_the_rate_that_a_profile_says(bench: ModuleType, profile: str) -> None:
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        soak = importlib.import_module("soak")
    finally:
        sys.path.pop(0)
    rate, size = soak.load_of(profile)
    assert rate > 0 and size >= 100_000
    assert abs(len(soak.noise(size)) * 3 / 4 / size - 1) < 0.1
