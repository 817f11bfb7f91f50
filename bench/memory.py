"""What a NATS server needs for each response that its streams hold: memory, and time and memory to come back.

Streams are those of `admin provision`. A response is its four events, each on a subject of its own, of
`payload` bytes each. At `first`, 2 × `first`, … up to `last` responses the server is looked at once it is
idle, killed (−9) and started again: `peak_mb` is the most that it had until it answered, `start_s` how long
that took, of `store_gb` in this machine's page cache. `fit` are lines by least squares: bytes for each
response, and what a server has without any. `GOMEMLIMIT` is not set.
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local import servers
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings
from wire.client import PlainClient

ADDRESSES = (
    "gw.recorded.live.{}",
    "gw.extracted.live.verification.faithscore.{}",
    "gw.judged.live.scoring.faithscore.{}",
    "gw.outcome.live.faithscore.{}",
)
IDLE_SECONDS = 3.0
"""In which a server that has just stored everything gives some memory back."""


def subjects(first: int, count: int) -> Iterator[str]:
    """The four of each response."""
    for number in range(first, first + count):
        key = hashlib.blake2b(number.to_bytes(8, "big"), digest_size=16).hexdigest()
        for address in ADDRESSES:
            yield address.format(key)


async def fill(server: NatsServer, first: int, count: int, payload: int) -> None:
    body = b"x" * payload
    with PlainClient(server.url) as client:
        await asyncio.to_thread(client.fill, subjects(first, count), lambda number: body)


def resident(server: NatsServer) -> int:
    return int(psutil.Process(server.pid).memory_info().rss)


def highest(server: NatsServer) -> int:
    """The most that it has had, in bytes."""
    status = Path(f"/proc/{server.pid}/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def stored(server: NatsServer) -> int:
    return sum(path.stat().st_size for path in server.data_dir.rglob("*") if path.is_file())


def line(points: Sequence[dict[str, float]], key: str) -> dict[str, float]:
    """Bytes for each response and, in MB, without any."""
    slope, base = statistics.linear_regression(
        [point["responses"] for point in points], [point[key] * 1e6 for point in points]
    )
    return {"bytes_each": round(slope), "base_mb": round(base / 1e6)}


async def measure(*, first: int = 100_000, last: int = 500_000, payload: int = 200) -> dict[str, Any]:
    servers.READY_SECONDS = 600.0
    points: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as folder:
        server = NatsServer(Path(folder))
        await server.start()
        try:
            bus = Bus(NatsSettings(url=server.url), name="bench")
            await bus.connect()
            await provision(bus.js)
            await bus.close()
            for count in range(first, last + 1, first):
                await fill(server, count - first, first, payload)
                await asyncio.sleep(IDLE_SECONDS)
                point = {
                    "responses": count,
                    "store_gb": stored(server) / 1e9,
                    "resident_mb": resident(server) / 1e6,
                }
                server.kill()
                await server.wait()
                began = time.monotonic()
                await server.restart()
                point |= {"start_s": time.monotonic() - began, "peak_mb": highest(server) / 1e6}
                points.append({key: round(value, 2) for key, value in point.items()})
        finally:
            await server.stop()
    return {
        "payload": payload,
        "points": points,
        "fit": {key: line(points, f"{key}_mb") for key in ("resident", "peak")},
        "start_s_each_gb": round(statistics.median(one["start_s"] / one["store_gb"] for one in points), 2),
    }
