"""How long a gateway takes until it is ready, and until its report is complete: from all outcomes, or from a
snapshot and what is newer.

A stream gets `outcomes`; a gateway reads all of them and writes its snapshot. Then `later` more come and a
gateway starts, and ten times as many and another one starts, each from the snapshot of the one before. The
process that holds the gateways publishes too; a NATS server of its own stands beside it. `ready` is when
`/readyz` says so for the first time.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec

from groundwatch.events import Decision, Judge, JudgedClaim, Label, OutcomeKind, ResponseScored, SubSentence
from groundwatch.gateway.live.board import Manifest, Snapshots
from groundwatch.gateway.service import GatewayService
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings, Settings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import REPORT_BUCKET
from wire.client import PlainClient

TOGETHER = 1_000
CLAIMS = 6
JUDGES = {"extraction": Judge(engine="reader"), "verification": Judge(engine="llm", model="judge")}
PROTOCOLS = ("faithscore", "pope")


def outcome(number: int, models: int, draw: random.Random) -> ResponseScored:
    protocol = PROTOCOLS[number // models % len(PROTOCOLS)]
    claims = tuple(
        JudgedClaim(
            text="There is a brown dog on the mat.",
            category=draw.choice(("entity", "relation", "attribute")),
            unit=0,
            decision=Decision.REFUTED if draw.random() < 0.1 else Decision.SUPPORTED,
        )
        for _ in range(CLAIMS)
    )
    refuted = sum(claim.decision is Decision.REFUTED for claim in claims)
    return ResponseScored(
        id=f"r{number}",
        model=f"model-{number % models}",
        protocol=protocol,
        outcome=OutcomeKind.SCORED,
        score=1 - refuted / CLAIMS,
        values={"entities": 2.0, "sentence_level": float(not refuted)},
        judges=JUDGES,
        units=(SubSentence(start=0, end=20, text="A dog sits on a mat.", label=Label.DESCRIPTIVE),),
        claims=claims,
        eligible=CLAIMS,
        decided=CLAIMS,
        answer_words=draw.randrange(10, 200),
        images=(f"{number:064x}",),
        recorded_at=1.7e9 + number / 12 + draw.random(),
        scored_at=1.7e9 + number / 12 + 5,
    )


async def publish(url: str, first: int, last: int, models: int) -> None:
    """Outcomes as a stage publishes them, but for the message id."""
    draw = random.Random(first)

    def send() -> None:
        with PlainClient(url) as client:
            for start in range(first, last, TOGETHER):
                some = (outcome(one, models, draw) for one in range(start, min(start + TOGETHER, last)))
                messages = map(outcomes.outgoing, some)
                client.publish((one.subject, one.headers, ENCODER.encode(one.payload)) for one in messages)

    await asyncio.to_thread(send)


async def started(url: str) -> tuple[dict[str, float], int]:
    """Seconds from the start of a gateway until it is ready, and until its report is complete, and how many
    this counts."""
    bus = Bus(NatsSettings(url=url), name="gateway")
    await bus.connect()
    service = GatewayService(Settings(gateway=GatewaySettings(port=0)), bus, Metrics())
    began = time.monotonic()
    await service.start()
    assert service.core is not None
    async with httpx.AsyncClient() as client:
        while (await client.get(f"{service.url}/readyz")).status_code != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        ready = time.monotonic() - began
    await service.core.live._caught_up.wait()
    complete = time.monotonic() - began
    rows = (await service.core.live.report())["models"]
    await service.drain(5.0)
    await bus.close()
    seconds = {"ready_seconds": round(ready, 2), "complete_seconds": round(complete, 2)}
    return seconds, sum(row["responses"] for row in rows)


async def state_of(bus: Bus) -> tuple[Manifest, float]:
    """The snapshot in the bucket, and the seconds that reading and unpacking it takes."""
    bucket = await bus.js.key_value(REPORT_BUCKET)
    manifest = msgspec.json.decode((await bucket.get("live")).value or b"", type=Manifest)
    began = time.monotonic()
    assert await Snapshots(bus, manifest.counting).read() is not None
    return manifest, time.monotonic() - began


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    found = work()
    return time.monotonic() - began, found


async def measure(*, outcomes: int = 300_000, later: int = 1_000, models: int = 5) -> dict[str, Any]:
    """Seconds until it is ready and complete; bytes of snapshots."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-start-") as folder:
        server = NatsServer(Path(folder) / "nats")
        await server.start()
        bus = Bus(NatsSettings(url=server.url), name="bench")
        try:
            await bus.connect()
            await provision(bus.js)
            await publish(server.url, 0, outcomes, models)
            without, counted = await started(server.url)
            right = counted == outcomes
            manifest, reading = await state_of(bus)
            starts, held = [], outcomes
            for newer in (later, 10 * later):
                await publish(server.url, held, held + newer, models)
                held += newer
                seconds, counted = await started(server.url)
                right = right and counted == held
                starts.append({"outcomes": held, "after_it": newer, **seconds})
            return {
                "outcomes": outcomes,
                "without_snapshot": without,
                "without_snapshot_us_each": round(without["complete_seconds"] / outcomes * 1e6),
                "with_snapshot": starts,
                "snapshot_bytes": manifest.size,
                "snapshot_read_seconds": round(reading, 3),
                "ok": right,
            }
        finally:
            await bus.close()
            await server.stop()
