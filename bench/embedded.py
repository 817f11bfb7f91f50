"""What embedded FaithScore costs: answers a second and memory of `score faithscore`, beside another
commit of this repository.

Both read and judge the same answers, against a reference, each in a process of its own, taking turns; what a
process needs to start is left out by doing a few answers and many. `back` is how many commits ago the other
one is (0: none). It runs with the libraries of this environment, and what it needs beyond them must be here.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from groundwatch.errors import UsageError

ROOT = Path(__file__).parents[1]
ANSWERS = ROOT / "tests" / "data" / "annotated_answers.jsonl"


async def measure(*, answers: int = 128, rounds: int = 3, back: int = 0) -> dict[str, Any]:
    """`ratio` is the time for an answer over that of the other commit: at most 1 is as fast."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = (_file(folder, number) for number in (answers // 4, answers + answers // 4))
        trees = {"now": ROOT}
        if back:
            trees["before"] = folder / "before"
            _git("worktree", "add", "--detach", str(trees["before"]), f"HEAD~{back}")
        try:
            took: dict[str, list[tuple[float, float]]] = {side: [] for side in trees}
            for _ in range(rounds):
                for side, tree in trees.items():
                    start, _ = _score(tree, few)
                    whole, memory = _score(tree, many)
                    took[side].append(((whole - start) / answers, memory))
        finally:
            if back:
                _git("worktree", "remove", "--force", str(trees["before"]))
    seconds = {side: statistics.median(second for second, _ in several) for side, several in took.items()}
    found: dict[str, Any] = {
        side: {
            "answers_per_s": 1 / seconds[side],
            "peak_mib": max(memory for _, memory in took[side]),
        }
        for side in trees
    }
    return found | ({"ratio": seconds["now"] / seconds["before"]} if back else {})


def _file(folder: Path, number: int) -> Path:
    gold = [json.loads(line) for line in ANSWERS.read_text("utf-8").splitlines()]
    english = [one for one in gold if one["expected"] == "facts"]
    path = folder / f"{number}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for at in range(number):
            one = english[at % len(english)]
            record = {"id": f"r{at}", "model": "m", "prompt": one["prompt"], "answer": one["answer"]}
            file.write(json.dumps(record | {"reference": {"objects": ["dog"]}}) + "\n")
    return path


def _score(tree: Path, file: Path) -> tuple[float, float]:
    """Seconds, and MiB of memory at most."""
    environment = os.environ | {"PYTHONPATH": str(tree / "services")}
    command = (sys.executable, "-m", "groundwatch", "score", "faithscore", str(file), "--json")
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        "sys.exit(done.returncode)"
    )
    began = time.perf_counter()
    done = subprocess.run(
        (sys.executable, "-c", code, *command),
        capture_output=True,
        text=True,
        env=environment,
        cwd=file.parent,
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise UsageError(f"score in {tree} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return seconds, int(done.stdout) / 1024


def _git(*arguments: str) -> None:
    done = subprocess.run(("git", "-C", str(ROOT), *arguments), capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"git {' '.join(arguments[:2])}: {done.stderr.strip()}")
