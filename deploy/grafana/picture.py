"""Draws a dashboard's layout from its own queries, for people who have no Grafana at hand.

`python -m deploy.grafana.picture --prometheus URL --seconds 600 --out docs/pictures` asks a running
Prometheus what the committed dashboards ask and draws every panel where Grafana puts it. It is a sketch of
Grafana's page with the real numbers, not a screenshot.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from deploy.grafana.asking import Board, Clock, Prometheus
from deploy.grafana.build import FOLDER
from deploy.grafana.drawing import Drawing


def main() -> None:
    """Draw all dashboards, or those named."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("boards", nargs="*", help="models, pipeline, judges, runs; all by default")
    reading.add_argument("--prometheus", required=True, help="its URL")
    reading.add_argument(
        "--seconds", type=float, default=3600.0, help="the range of the dashboard, until now"
    )
    reading.add_argument(
        "--until", type=float, default=0.0, help="another end of it, seconds since the epoch"
    )
    reading.add_argument(
        "--scrape", type=float, default=15.0, help="how often that Prometheus scrapes, seconds"
    )
    reading.add_argument("--window", default="", help="a value for the variable window")
    reading.add_argument("--out", type=Path, default=Path("docs/pictures"))
    asked = reading.parse_args()
    end = asked.until or time.time()
    prometheus, clock = Prometheus(asked.prometheus), Clock(end - asked.seconds, end, asked.scrape)
    asked.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(FOLDER.glob("*.json")):
        if asked.boards and path.stem not in asked.boards:
            continue
        board = Board(path)
        board.open(prometheus, clock)
        if asked.window and "window" in board.values:
            board.values["window"] = asked.window
        drawn = asked.out / f"dashboard-{path.stem}.png"
        drawn.write_bytes(Drawing(board, prometheus, clock).draw())
        sys.stdout.write(f"{drawn} {drawn.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
