"""The product's functions that run for a response are counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_calls_of_a_post_and_of_three_stages_are_counted() -> None:
    command = [sys.executable, "-m", "bench", "calls", "--json", "--responses", "10", "--noop", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for part, file in (("post", "gateway/intake/intake.py"), ("stages", "runtime/delivery/stage.py")):
        assert found[part]["calls"] > found[part]["top"][file] > 0
        assert found[part]["files"] > 3
