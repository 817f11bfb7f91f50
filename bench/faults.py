"""Faults against a whole system for minutes, and what became of every response: see docs/faults.md.

Services, NATS and the judge are processes of their own on this machine, each behind a proxy. They are
killed, stopped, cut off and misled while clients send, operators erase, apply retention, replay and retry,
and people watch; in the end NATS is lost and restored from a backup. `ok` is true
when nothing forbidden happened; `forbidden` counts what did, with `examples`. The same seed makes the same
plan, but not the same run: what a fault meets is a matter of milliseconds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.campaign.run import campaign

KEEP = Path("faults-logs")


async def measure(
    *,
    minutes: int = 15,
    seed: int = 0,
    cluster: int = 0,
    rate: int = 20,
    lanes: int = 4,
    backup: int = 1,
    keep: int = 0,
) -> dict[str, Any]:
    """With `cluster=1` three servers with three replicas; `backup=0` restores nothing; `keep=1` leaves
    the logs in ./faults-logs/SEED."""
    return await campaign(
        minutes=minutes,
        seed=seed,
        cluster=bool(cluster),
        rate=rate,
        lanes=lanes,
        backup=bool(backup),
        keep=KEEP / str(seed) if keep else None,
    )
