"""Whether anything grows: a long stream through services of their own processes, and their memory.

Responses are published straight into the stream; extraction and verification use engines that do nothing,
so that what is left is the runtime. Somebody looks at the live report all the while. Resident memory is read
at a tenth, half and all of the events.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

import groundwatch
from groundwatch.errors import CheckFailed
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import OUTCOMES
from hop import fill

SERVICES = ("gateway", "extraction", "verification", "scoring")
MARKS = (0.1, 0.5, 1.0)
AHEAD = 20_000
"""Events published beyond what has its outcome."""

STEP = 2_000
STALLED_SECONDS = 60.0
MIB = 2**20


async def start(folder: Path, url: str, gateway_port: int) -> dict[str, asyncio.subprocess.Process]:
    """The services, as `groundwatch serve` runs them."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(groundwatch.__file__).parents[1]),
        "GROUNDWATCH_NATS__URL": url,
        "GROUNDWATCH_EXTRACTION__ENGINE": "noop",
        "GROUNDWATCH_VERIFICATION__ENGINE": "noop",
        "GROUNDWATCH_GATEWAY__PORT": str(gateway_port),
        "GROUNDWATCH_TELEMETRY__PORT": "0",
    }
    started = {}
    for name in SERVICES:
        with (folder / f"{name}.log").open("ab") as log:
            started[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "groundwatch", "serve", name, env=environment, stdout=log, stderr=log
            )
    return started


async def stop(started: dict[str, asyncio.subprocess.Process]) -> None:
    """End every process by its id."""
    for process in started.values():
        if process.returncode is None:
            process.terminate()
    for process in started.values():
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()
            await process.wait()


def resident(started: dict[str, asyncio.subprocess.Process]) -> dict[str, float]:
    """MiB of each process."""
    return {
        name: round(psutil.Process(process.pid).memory_info().rss / MIB, 1)
        for name, process in started.items()
    }


async def look(port: int) -> None:
    """Read the live report every second, as a page does."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        while True:
            with contextlib.suppress(httpx.TransportError):
                await http.get("/v1/report")
            await asyncio.sleep(1)


async def run_through(
    bus: Bus, events: int, started: dict[str, asyncio.subprocess.Process]
) -> list[dict[str, float]]:
    """Publish and wait; what each service held at each mark."""
    marks = [int(events * mark) for mark in MARKS]
    found: list[dict[str, float]] = []
    published = finished = 0
    progress = time.monotonic()
    while finished < events:
        while published < min(events, finished + AHEAD):
            count = min(STEP, events - published)
            await fill(bus, published, count)
            published += count
        await asyncio.sleep(0.1)
        state = (await bus.js.stream_info(OUTCOMES)).state
        if state.messages > finished:
            progress = time.monotonic()
        finished = state.messages
        while len(found) < len(marks) and finished >= marks[len(found)]:
            found.append(resident(started))
        dead = [name for name, process in started.items() if process.returncode is not None]
        if dead or time.monotonic() - progress > STALLED_SECONDS:
            raise CheckFailed(f"stopped at {finished} of {events} events; ended: {', '.join(dead) or 'none'}")
    return found


async def measure(*, events: int = 200_000) -> dict[str, Any]:
    """Resident memory, MiB, by service; `growth` is from a tenth of the events to all of them."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-soak-") as folder:
        server = NatsServer(Path(folder) / "nats")
        await server.start()
        bus = Bus(NatsSettings(url=server.url), name="soak")
        started: dict[str, asyncio.subprocess.Process] = {}
        port = free_port()
        looking = asyncio.create_task(look(port))
        try:
            await bus.connect()
            await provision(bus.js)
            started = await start(Path(folder), server.url, port)
            began = time.monotonic()
            found = await run_through(bus, events, started)
            seconds = time.monotonic() - began
        finally:
            looking.cancel()
            await stop(started)
            await bus.close()
            await server.stop()
    return {
        "events": events,
        "per_second": round(events / seconds),
        "rss_mib": {
            name: {f"{mark:.0%}": at[name] for mark, at in zip(MARKS, found, strict=True)}
            for name in SERVICES
        },
        "growth_mib": {name: round(found[-1][name] - found[0][name], 1) for name in SERVICES},
        "largest_mib": max(max(at.values()) for at in found),
    }
