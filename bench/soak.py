"""Whether anything grows: a long stream through services of their own processes, and their memory.

Responses are published straight into the stream; extraction and verification use engines that do nothing,
so that what is left is the runtime. Somebody looks at the live report all the while. Resident memory is read
at a tenth, half and all of the events.

With `--minutes 30 --profile small` (default, production) answers are sent over HTTP in their place, each with
an image of its own, at the rate and the size that the chart's profile is for. `ok` is true if each was taken
in time, the ledger balances, and no service has grown by more than `MOST_GROWTH`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml
from PIL import Image

import groundwatch
from groundwatch.errors import CheckFailed, UsageError
from groundwatch.ledger.ledger import audit
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
SLOW_SECONDS = 5.0
"""In which a sender has its acknowledgement."""

MOST_GROWTH = 50.0
"""MiB from a tenth of the time to its end."""

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "groundwatch"
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


def load_of(profile: str) -> tuple[float, int]:
    """Responses a second and bytes of an image that a profile of the chart is for. Raises `UsageError`."""
    file = CHART / ("values.yaml" if profile == "default" else f"values-{profile}.yaml")
    load = yaml.safe_load(file.read_text()).get("load") if file.is_file() else None
    if load is None:
        raise UsageError(f"profile '{profile}' says no load: small, default or production")
    return float(load["responsesPerSecond"]), int(load["imageBytes"])


def noise(size: int) -> str:
    """A PNG of about so many bytes, as a data URL: no two are the same."""
    side = max(8, math.isqrt(size // 3))
    out = io.BytesIO()
    Image.frombytes("RGB", (side, side), os.urandom(3 * side * side)).save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


async def at_rate(
    port: int, rate: float, size: int, seconds: float, started: dict[str, asyncio.subprocess.Process]
) -> tuple[list[float], list[dict[str, float]]]:
    """Seconds that each answer waited for its acknowledgement, and what each service held at each mark."""
    waited: list[float] = []
    found: list[dict[str, float]] = []
    number = max(len(MARKS), math.ceil(rate * seconds))
    began = time.monotonic()

    async def send(http: httpx.AsyncClient, name: str, image: str) -> None:
        since = time.monotonic()
        body = {"id": name, "model": "heron-7b", "answer": "A dog sits on a mat.", "images": [image]}
        (await http.post("/v1/responses", json=body)).raise_for_status()
        waited.append(time.monotonic() - since)

    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
        asyncio.TaskGroup() as sending,
    ):
        for at in range(number):
            await asyncio.sleep(began + at * seconds / number - time.monotonic())
            sending.create_task(send(http, f"soak-{at}", await asyncio.to_thread(noise, size)))
            while len(found) < len(MARKS) - 1 and at + 1 >= number * MARKS[len(found)]:
                found.append(resident(started))
    await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
    return waited, [*found, resident(started)]


async def settled(bus: Bus) -> bool:
    """Whether the ledger balances, once nothing is in flight."""
    deadline = time.monotonic() + STALLED_SECONDS
    while True:
        ledger = await audit(bus.js)
        if not ledger.in_flight or time.monotonic() > deadline:
            return bool(ledger.balanced and not ledger.in_flight)
        await asyncio.sleep(0.5)


async def measure(*, events: int = 200_000, minutes: int = 0, profile: str = "small") -> dict[str, Any]:
    """Resident memory, MiB, by service; `growth` is from a tenth of the events or time to the end."""
    told: dict[str, Any] = {"events": events}
    rate, size = load_of(profile)
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
            if minutes:
                await until_open(port)
                waited, found = await at_rate(port, rate, size, minutes * 60.0, started)
                told = {
                    "profile": profile,
                    "events": len(waited),
                    "image_bytes": size,
                    "slowest_seconds": round(max(waited), 3),
                    "balanced": await settled(bus),
                }
            else:
                found = await run_through(bus, events, started)
            seconds = time.monotonic() - began
        finally:
            looking.cancel()
            await stop(started)
            await bus.close()
            await server.stop()
    growth = {name: round(found[-1][name] - found[0][name], 1) for name in SERVICES}
    if minutes:
        in_time = told["slowest_seconds"] < SLOW_SECONDS
        told["ok"] = in_time and told["balanced"] and max(growth.values()) < MOST_GROWTH
    return {
        **told,
        "per_second": round(told["events"] / seconds, 2),
        "rss_mib": {
            name: {f"{mark:.0%}": at[name] for mark, at in zip(MARKS, found, strict=True)}
            for name in SERVICES
        },
        "growth_mib": growth,
        "largest_mib": max(max(at.values()) for at in found),
    }


async def until_open(port: int) -> None:
    """Wait until the gateway is ready."""
    deadline = time.monotonic() + STALLED_SECONDS
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.TransportError):
                if (await http.get("/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.2)
    raise CheckFailed("the gateway did not become ready")
