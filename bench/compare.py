"""How long a comparison of two large runs takes, and how much memory.

Both runs are generated into a real stream: `pairs` responses, each with an outcome of eight claims in either
run, about every eighth of which the second run decides otherwise. What is timed is all that `groundwatch
compare` does but for starting Python: reading both runs, intervals, tests, the claims of the responses that
changed most, and the HTML report. `peak_mb` is the highest resident size of the process that compares, and
`grown_mb` how much of that came after its imports.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from groundwatch.events import Decision, Judge, JudgedClaim, OutcomeKind, ResponseRecorded, ResponseScored
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing, recorded
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings

RUNS = ("first", "second")
CATEGORIES = ("entity", "relation", "color", "count", "action", "other")
CLAIMS = 8
AT_ONCE = 1_000

CHILD = """
import json, resource, sys, time
from groundwatch.system.connecting import run
from groundwatch.gateway.comparing import compare
from groundwatch.reporting.compare.render import html_report
from groundwatch.runtime.delivery.bus import Bus
import numpy

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

async def main():
    bus = Bus(NatsSettings(url=sys.argv[1]), name="bench")
    await bus.connect(timeout=10)
    before = peak()
    began, used = time.perf_counter(), time.process_time()
    found = await compare(bus, "first", "second")
    compared = time.perf_counter() - began
    page = html_report(found)
    told = {
        "seconds": round(time.perf_counter() - began, 2),
        "compare_s": round(compared, 2),
        "cpu_s": round(time.process_time() - used, 2),
        "peak_mb": round(peak(), 1),
        "grown_mb": round(peak() - before, 1),
        "paired": found.sections[0].paired,
        "claims": found.sections[0].claims_matched,
        "html_kb": round(len(page) / 1024, 1),
    }
    if len(sys.argv) > 2:
        open(sys.argv[2], "w").write(page)
    await bus.close()
    print(json.dumps(told))

run(main())
"""


async def measure(pairs: int = 50_000, keep: int = 0) -> dict[str, Any]:
    """Fill a server of its own, then compare in a process of its own; `keep` 1 leaves the HTML report."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as folder:
        server = NatsServer(Path(folder) / "nats")
        await server.start()
        try:
            bus = Bus(NatsSettings(url=server.url), name="bench")
            await bus.connect(timeout=10)
            await provision(bus.js, replicas=1)
            began = time.perf_counter()
            await fill(bus, pairs)
            filled = time.perf_counter() - began
            await bus.close()
            page = [str(Path.cwd() / "compare.html")] if keep else []
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", CHILD, server.url, *page],
                check=True,
                capture_output=True,
                text=True,
            )
        finally:
            await server.stop()
    return {"pairs": pairs, "filled_s": round(filled, 1), **json.loads(done.stdout.splitlines()[-1])}


async def fill(bus: Bus, pairs: int) -> None:
    """Responses, three about each image, and what either run says of them."""
    chance, receipts = random.Random(5), []
    for number in range(pairs):
        response = ResponseRecorded(
            id=f"response-{number}",
            model=f"model-{number % 6}",
            tenant=f"tenant-{number % 4}",
            answer="A dog sits beside a ball. " * 4,
            images=(f"{number // 3:064x}",),
            protocols=("faithscore",),
            recorded_at=1_772_323_200.0 + number,
        )
        receipts.append(await bus.start_create(recorded(response)))
        said = [chance.random() < 0.1 for _ in range(CLAIMS)]
        for at, run in enumerate(RUNS):
            turned = [one != (at == 1 and chance.random() < 0.125) for one in said]
            receipts.append(await bus.start_create(outgoing(_outcome(response, run, at, turned))))
        if len(receipts) >= AT_ONCE:
            for receipt in receipts:
                await receipt
            receipts = []
    for receipt in receipts:
        await receipt


def _outcome(response: ResponseRecorded, run: str, at: int, refuted: list[bool]) -> ResponseScored:
    return ResponseScored(
        id=response.id,
        model=response.model,
        tenant=response.tenant,
        run=run,
        protocol="faithscore",
        outcome=OutcomeKind.SCORED,
        score=1 - sum(refuted) / CLAIMS,
        judges={
            "extraction": Judge(engine="rules"),
            "verification": Judge(engine="llm", model=f"judge-{at}"),
        },
        claims=tuple(
            JudgedClaim(
                text=f"There is thing {place} of response {response.id}.",
                category=CATEGORIES[place % len(CATEGORIES)],
                unit=0,
                decision=Decision.REFUTED if wrong else Decision.SUPPORTED,
            )
            for place, wrong in enumerate(refuted)
        ),
        eligible=CLAIMS,
        decided=CLAIMS,
        answer_words=24,
        recorded_at=response.recorded_at,
        scored_at=response.recorded_at + 2,
    )
