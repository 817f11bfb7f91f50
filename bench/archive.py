"""Whether writing and merging the archive take more memory for a longer stretch.

For each of two sizes a process of its own writes so many outcomes of eight claims into a folder, as the
service does, `flush_rows` at a time, and then another one merges all of its files into one.
`peak_mb` is the highest resident size of that process, and `growth_mb` how much higher it is for the larger
size.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from typing import Any

CHILD = """
import json, resource, sys, time
from groundwatch.archive import table as module
from groundwatch.archive.outcomes import Archive
from groundwatch.archive.outcomes import Row
from groundwatch.events import Decision, Judge, JudgedClaim, OutcomeKind, ResponseScored

DAY = 1_772_323_200.0
what, folder, outcomes, together = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def row(number):
    claims = tuple(
        JudgedClaim(
            text=f"There is thing {place} of response {number}, near the window.",
            category=("entity", "color", "count")[place % 3],
            unit=0,
            decision=Decision.REFUTED if (number + place) % 9 == 0 else Decision.SUPPORTED,
        )
        for place in range(8)
    )
    event = ResponseScored(
        id=f"response-{number}",
        model=f"model-{number % 4}",
        protocol="faithscore",
        outcome=OutcomeKind.SCORED,
        score=0.9,
        judges={"extraction": Judge(engine="rules"), "verification": Judge(engine="llm", model="judge")},
        claims=claims,
        eligible=8,
        decided=8,
        recorded_at=DAY + number / 100,
        scored_at=DAY + number / 100 + 2,
    )
    return Row(event=event, key=event.key, stream=1, sequence=number, stored_at=event.scored_at)

began = time.perf_counter()
if what == "write":
    archive = Archive(folder)
    for first in range(1, outcomes + 1, together):
        last = min(first + together, outcomes + 1)
        archive.add([row(number) for number in range(first, last)], created=1, position=last - 1)
else:
    module.SETTLED_SECONDS = -1.0
    Archive(folder, file_bytes=2**40).maintain()
files = Archive(folder).snapshot().files()
print(json.dumps({
    "seconds": round(time.perf_counter() - began, 1),
    "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    "files": len(files),
    "mb": round(sum(file.bytes for file in files) / 1e6, 1),
}))
"""


async def measure(small: int = 100_000, large: int = 400_000, flush_rows: int = 10_000) -> dict[str, Any]:
    """Both sizes, one after the other."""
    found: dict[str, Any] = {}
    for size in (small, large):
        with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as folder:
            found[f"{size}"] = {
                what: await asyncio.to_thread(_child, what, folder, size, flush_rows)
                for what in ("write", "merge")
            }
    growth = {
        what: round(found[f"{large}"][what]["peak_mb"] - found[f"{small}"][what]["peak_mb"], 1)
        for what in ("write", "merge")
    }
    return {"outcomes": found, "growth_mb": growth}


def _child(what: str, folder: str, outcomes: int, together: int) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, what, folder, str(outcomes), str(together)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)
