"""The architectures that people serve today answer and judge as transformers' own whole prompts do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("architectures")]

ROOT = Path(__file__).parents[3]
NAMES = (
    *("llava", "llava_next", "llava_onevision", "pixtral", "mistral3", "internvl"),
    *("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "glm4v", "glm46v"),
    *("gemma3", "gemma3_wide", "gemma4", "paligemma", "mllama", "deepseek_vl", "lfm2_vl", "aya_vision"),
)


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What `check` says of each, in a process with torchvision, which is not in the project's environment."""
    _, minor, patch = version("torch").partition("+")[0].split(".")
    folder = tmp_path_factory.mktemp("torchvision")
    wanted = f"torchvision==0.{int(minor) + 15}.{patch}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), wanted]
    if (made := subprocess.run(pip, capture_output=True, text=True, timeout=600)).returncode:
        why = f"{wanted} cannot be installed: {made.stderr[-300:]}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    run = subprocess.run(
        [sys.executable, "-m", "tests.models.architectures.check", *NAMES],
        env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(rows) == len(NAMES), run.stderr[-2000:]
    return {row["name"]: row for row in rows}


@pytest.mark.parametrize("name", NAMES)
def test_it_answers_and_judges_as_whole_prompts_do(found, name):
    row = found[name]
    assert "error" not in row, row
    assert row["differ"] == []
    assert row["apart"] and max(row["apart"].values()) <= 1e-5
    if name == "paligemma":
        assert "no prefix can be shared" in row["refused"]
    else:
        assert row["spread"] > 5e-4, "a checkpoint that says the same of all would prove nothing"
