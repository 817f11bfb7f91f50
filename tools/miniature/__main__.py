"""Every stage that made the checkpoints, in order: `python -m tools.miniature OUT`.

Budgets are minutes of processor time of one core (`loop.clock`). `--list` prints the commands instead of
running them; `--scale 0.01` runs them all for a moment, to see that they work.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Stage(NamedTuple):
    """A run of a training module: it writes checkpoint `out` and may go on from checkpoint `start`."""

    module: str
    out: str
    minutes: float
    start: str = ""
    options: tuple[str, ...] = ()


STAGES = (
    Stage("lvlm", "lvlm_0", 6, options=("--scenes", "32", "--seed", "2")),
    Stage(
        "lvlm",
        "lvlm_1",
        12,
        "lvlm_0",
        ("--questions", "0", "--seed", "3", "--interval", "1.5", "--snapshots", "0.5", "0.6"),
    ),
    Stage("lvlm", "lvlm_2", 18, "lvlm_1", ("--seed", "6")),
    Stage("lvlm", "lvlm_3", 7, "lvlm_2", ("--questions", "4", "--seed", "8", "--rate", "7e-4")),
    Stage("lvlm", "lvlm_4", 6, "lvlm_3", ("--questions", "2", "--seed", "10", "--rate", "5e-4")),
    Stage("lvlm", "lvlm_good", 3.5, "lvlm_4", ("--seed", "17", "--rate", "4e-4")),
    Stage(
        "lvlm",
        "lvlm_biased",
        4,
        "lvlm_good",
        ("--biased", "--questions", "2", "--seed", "31", "--rate", "7e-4", "--interval", "1.3"),
    ),
    Stage("verifier", "verifier_1", 10, "lvlm_1", ("--scenes", "24", "--captions", "0.4", "--seed", "5")),
    Stage("verifier", "verifier_2", 12, "verifier_1", ("--rate", "1.1e-3", "--seed", "7")),
    Stage("verifier", "verifier_3", 28, "verifier_2", ("--rate", "1e-3", "--captions", "0.2", "--seed", "9")),
    Stage(
        "verifier",
        "verifier_4",
        5,
        "verifier_3",
        ("--rate", "4e-4", "--captions", "0.1", "--scenes", "16", "--seed", "16"),
    ),
    Stage(
        "verifier",
        "verifier",
        8,
        "verifier_4",
        ("--rate", "6e-4", "--captions", "0.1", "--scenes", "16", "--seed", "41"),
    ),
    Stage("encoder", "image_encoder", 18, options=("--seed", "4")),
    Stage("detector", "detector", 24, options=("--seed", "61")),
    Stage("generator", "generator", 40, options=("--words", "2.5", "--seed", "51")),
)
KEPT = {"lvlm_poor": "lvlm_1-0.5"}
"""A snapshot on the way that is a checkpoint too."""


def command(stage: Stage, folder: Path, scale: float = 1.0) -> list[str]:
    """How a stage is run."""
    start = ["--start", str(folder / stage.start)] if stage.start else []
    return [
        sys.executable,
        "-m",
        f"tools.miniature.{stage.module}",
        str(folder / stage.out),
        "--minutes",
        f"{stage.minutes * scale:g}",
        *start,
        *stage.options,
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0)
    chosen = parser.parse_args()
    for stage in STAGES:
        line = command(stage, chosen.out, chosen.scale)
        print(" ".join(["python", *line[1:]]), flush=True)
        if not chosen.list:
            chosen.out.mkdir(parents=True, exist_ok=True)
            subprocess.run(line, check=True)
    for name, snapshot in KEPT.items():
        if (chosen.out / snapshot).is_dir():
            shutil.copytree(chosen.out / snapshot, chosen.out / name, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
