"""What an audit takes, in memory and time, when so many responses are kept.

For each of two sizes a server of its own gets so many responses with their outcomes, of which the last 1,000
have none yet. Then a process audits them for the first time, reading everything, and another one goes on from
the state that this left. `bytes_each` is how much more memory a process takes for each response more.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import HEADER_OUTCOME, HEADER_PROTOCOLS, OUTCOMES, subject_of

WAITING = 1_000
AT_ONCE = 500

CHILD = """
import asyncio, json, sys, time
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import NatsSettings

def peak():
    # `ru_maxrss` begins with what the process that started this one had.
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

async def main():
    bus = Bus(NatsSettings(url=sys.argv[1]), name="audit")
    await bus.connect()
    before, began = peak(), time.perf_counter()
    ledger = await audit(bus.js)
    seconds = time.perf_counter() - began
    await bus.close()
    print(json.dumps({
        "recorded": ledger.recorded,
        "in_flight": ledger.in_flight,
        "balanced": ledger.balanced,
        "seconds": round(seconds, 2),
        "peak_bytes": peak(),
        "more_bytes": peak() - before,
    }))

asyncio.run(main())
"""


async def measure(small: int = 100_000, large: int = 400_000) -> dict[str, Any]:
    """Both sizes, one after the other."""
    found: dict[str, Any] = {}
    for size in (small, large):
        found[str(size)] = await _of(size)
    each = {
        which: round(
            (found[str(large)][which]["peak_bytes"] - found[str(small)][which]["peak_bytes"])
            / (large - small),
            1,
        )
        for which in ("first", "next")
    }
    complete = all(one[which]["balanced"] for one in found.values() for which in ("first", "next"))
    return {"responses": found, "bytes_each": each, "ok": complete}


async def _of(size: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as folder:
        server = NatsServer(Path(folder))
        await server.start()
        try:
            bus = Bus(NatsSettings(url=server.url), name="bench")
            await bus.connect()
            await provision(bus.js)
            await _fill(bus, size)
            await bus.close()
            return {which: await asyncio.to_thread(_audited, server.url) for which in ("first", "next")}
        finally:
            await server.stop()


async def _fill(bus: Bus, size: int) -> None:
    """Responses and outcomes by turns, as traffic has them."""
    for start in range(0, size, AT_ONCE):
        keys = [f"{number:032x}" for number in range(start, min(start + AT_ONCE, size))]
        for key in keys:
            await bus.client.publish(
                subject_of("recorded", "live", key), b"{}", headers={HEADER_PROTOCOLS: "faithscore"}
            )
            if int(key, 16) < size - WAITING:
                await bus.client.publish(
                    subject_of("outcome", "live", "faithscore", key),
                    b"{}",
                    headers={HEADER_OUTCOME: "scored"},
                )
        await bus.client.flush(60)
    while (await bus.js.stream_info(OUTCOMES)).state.last_seq < size - WAITING:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


def _audited(url: str) -> Any:
    done = subprocess.run([sys.executable, "-c", CHILD, url], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)
