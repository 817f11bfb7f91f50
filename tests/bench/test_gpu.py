"""What a GPU is measured with runs small on a CPU, and all ways of judging agree there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_runs_small_without_a_gpu() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "bench", "gpu", "--tiny", "--json"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-1000:]
    found = json.loads(run.stdout)
    assert found["ok"] and found["device"] == "cpu"
    assert [(row["facts"], row["answers"]) for row in found["verifying"]] == [(3, 1), (3, 2)]
    for row in found["verifying"]:
        assert row["apart"] <= 1e-5 and row["one_pass_ms"] > 0 and row["cache_ms"] > 0
    assert found["verifying"][0]["one_by_one_ms"] > 0
    assert found["answering"][0]["served_ms"] > 0 and found["answering"][0]["generate_ms"] > 0
    assert found["detecting"][0]["ms"] > 0
    assert set(found["watching"]) == {"detector", "detector_and_verifier_on_a_tenth", "verifier"}
