"""The contract: its generated code is current, and it keeps the rules of such files."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROTO = ROOT / "proto"


def generator() -> object:
    spec = importlib.util.spec_from_file_location("generate", PROTO / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_code_is_what_the_contract_gives_now() -> None:
    module = generator()
    fresh = module.generated()  # type: ignore[attr-defined]
    assert set(fresh) == {"monitor_pb2.py", "monitor_pb2.pyi", "monitor_pb2_grpc.py"}
    for name, text in fresh.items():
        there = (module.TARGET / name).read_text("utf-8")  # type: ignore[attr-defined]
        assert there == text, f"{name} is not current: run python proto/generate.py"


def buf(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    found = shutil.which("buf", path=str(Path(sys.executable).parent)) or shutil.which("buf")
    if found is None:
        pytest.skip("buf is not installed: pip install buf-bin")
    return subprocess.run([found, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120)


def test_the_contract_keeps_the_rules_of_buf() -> None:
    done = buf("lint", cwd=PROTO)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_buf_finds_what_breaks_the_rules(tmp_path: Path) -> None:
    shutil.copytree(PROTO, tmp_path / "proto")
    path = tmp_path / "proto" / "groundwatch" / "v1" / "monitor.proto"
    path.write_text(path.read_text("utf-8").replace("string reason = 3;", "string theReason = 3;"), "utf-8")
    done = buf("lint", cwd=tmp_path / "proto")
    assert done.returncode != 0
    assert "theReason" in done.stdout
