"""What the whole line costs: gateway, extraction, verification and scoring over one NATS server.

Two parts in one run. With no-op engines: throughput, client CPU for a response and for a stage against a
raw hop (see `hop`), and latency under a steady load. With the embedded engines: answers a second, each
answer seen once, so that no cache helps. The sender is a process of its own.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from nats.js.api import AckPolicy, ConsumerConfig

import hop
from groundwatch.events import LIVE, ResponseRecorded
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.settings import ExtractionSettings, Settings, StageSettings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.system.up import System, whole_system
from groundwatch.topology import OUTCOMES, RESPONSES
from groundwatch_benchmarks.methods.faithscore.suite import annotated_response, read_annotations

STAGES = 4
ANNOTATED = Path(__file__).parents[2] / "shared" / "data" / "faithscore" / "annotation.jsonl"

SENDER = """
import asyncio, sys, time, httpx
async def main(url, path, batch, rate):
    lines = open(path, "rb").read().splitlines()
    began = time.monotonic()
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        for start in range(0, len(lines), batch):
            if rate:
                await asyncio.sleep(max(0, began + start / rate - time.monotonic()))
            body = b"\\n".join(lines[start:start + batch]) + b"\\n"
            reply = await http.post(
                "/v1/responses", content=body, headers={"content-type": "application/x-ndjson"}
            )
            told = reply.json()
            assert reply.status_code == 200 and not told["refused"], reply.text
asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
"""


class Load:
    """Sends events from another process, and watches their outcomes come."""

    def __init__(self, system: System, folder: Path) -> None:
        self._system = system
        self._folder = folder
        self._seen = 0

    async def run(self, events: list[ResponseRecorded], *, batch: int, rate: float) -> list[float]:
        """Delays in seconds from recording to outcome, one for each event; 0 `rate` sends at full speed."""
        path = self._folder / "events.jsonl"
        path.write_bytes(b"\n".join(ENCODER.encode(event) for event in events))
        sender = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", SENDER, self._system.gateway_url, str(path), str(batch), str(rate)]
        )
        try:
            await self._all_outcomes(self._seen + len(events))
        finally:
            sender.terminate()
            sender.wait()
        delays = [
            outcome.scored_at - outcome.recorded_at
            async for outcome in read_outcomes(self._system.bus, LIVE, follow=False)
        ]
        found, self._seen = delays[self._seen :], len(delays)
        return found

    async def _all_outcomes(self, count: int) -> None:
        async with asyncio.timeout(300):
            while (await self._system.bus.js.stream_info(OUTCOMES)).state.messages < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def measure(*, responses: int = 20_000, steady: int = 2_000, rate: int = 200) -> dict[str, Any]:
    """Both parts. Times of CPU are this process's: the services, without sender and server."""
    found = await _noop(responses, steady, rate)
    found["embedded"] = await _embedded()
    return found


async def _noop(responses: int, steady: int, rate: int) -> dict[str, Any]:
    noop = StageSettings(engine="noop")
    settings = Settings(
        gateway=GatewaySettings(port=0), extraction=ExtractionSettings(engine="noop"), verification=noop
    )
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as name:
        folder = Path(name)
        async with whole_system(settings, folder) as system:
            load = Load(system, folder)
            await load.run([hop.recorded(number) for number in range(1_000)], batch=500, rate=0)
            events = [hop.recorded(number) for number in range(10_000, 10_000 + responses)]
            began, cpu = time.perf_counter(), time.process_time()
            await load.run(events, batch=500, rate=0)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            events = [hop.recorded(number) for number in range(1_000_000, 1_000_000 + steady)]
            delays = await load.run(events, batch=1, rate=rate)
            raw = await _raw_hop(system, min(responses, 10_000))
            ledger = await audit(system.bus.js)
    cpu_us = cpu / responses * 1e6
    quantiles = statistics.quantiles(delays, n=100)
    return {
        "responses": responses,
        "per_second": round(responses / seconds, 1),
        "cpu_us_per_response": round(cpu_us, 1),
        "cpu_us_per_stage": round(cpu_us / STAGES, 1),
        "raw_hop_us": round(raw, 1),
        "stage_ratio": round(cpu_us / STAGES / raw, 3),
        "latency": {
            "rate": rate,
            "p50_ms": round(quantiles[49] * 1e3, 1),
            "p99_ms": round(quantiles[98] * 1e3, 1),
        },
        "balanced": ledger.balanced and ledger.in_flight == 0,
    }


async def _raw_hop(system: System, count: int) -> float:
    """The raw loop over the same events on the same server, CPU microseconds for a message."""
    bus = Bus(system.settings.nats, name="bench-raw")
    await bus.connect()
    await bus.js.add_consumer(
        RESPONSES, ConsumerConfig(durable_name="raw", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=5_000)
    )
    rounds = [await hop.raw_round(bus, count // 2) for _ in range(2)]
    await bus.close()
    return min(rounds) / (count // 2) * 1e6


async def _embedded() -> dict[str, Any]:
    sample = resources.files("groundwatch.demo").joinpath("answers.jsonl").read_bytes().splitlines()
    warm = [msgspec.json.decode(line, type=ResponseRecorded) for line in sample]
    source = "bundled sample"
    events, warm = warm[60:], warm[:60]
    if ANNOTATED.is_file():
        source = "annotated answers"
        events = [annotated_response(number, one) for number, one in enumerate(read_annotations(ANNOTATED))]
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as name:
        folder = Path(name)
        async with whole_system(Settings(gateway=GatewaySettings(port=0)), folder) as system:
            load = Load(system, folder)
            await load.run(warm, batch=60, rate=0)
            began = time.perf_counter()
            await load.run(events, batch=120, rate=0)
            seconds = time.perf_counter() - began
            ledger = await audit(system.bus.js)
    return {
        "source": source,
        "answers": len(events),
        "per_second": round(len(events) / seconds, 1),
        "balanced": ledger.balanced and ledger.in_flight == 0,
    }
