"""Thousands of hostile inputs at every door of a whole system, and what came of them: see docs/faults.md.

Requests over HTTP and gRPC, connections that misbehave, images, and files and names for the command line, all
made from a seed. Each must be answered as promised; afterwards the system must be healthy and its ledger
balance. `ok` is true when nothing forbidden came of any.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.campaign.hostile.run import hostile

KEEP = Path("hostile-logs")


async def measure(*, inputs: int = 5_000, seed: int = 0, keep: int = 0) -> dict[str, Any]:
    """`keep=1` leaves the logs and the files in ./hostile-logs."""
    return await hostile(inputs=inputs, seed=seed, keep=KEEP if keep else None)
