"""Interrupted erasures and damaged files, and what the audit says of them: see docs/faults.md.

`ok` is true when every erasure counted once, however often it died, and every damaged file was told by its
name. Each round has its own seed, from `seed` on; the same seed does the same.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.campaign.damage import damage


async def measure(*, rounds: int = 20, seed: int = 0) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="groundwatch-damage-") as folder:
        return await damage(Path(folder), rounds=rounds, seed=seed)
