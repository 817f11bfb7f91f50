"""How long a gateway's report takes to be complete: from all outcomes, or from a snapshot and what is newer.

One process holds the gateway and publishes the outcomes; a NATS server of its own stands beside it. The state
of a report stops growing with its outcomes, so one of `full` models is made of the state that these left,
with as many responses remembered for each as ever are, to see what a start costs after any number of
outcomes.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.events import Decision, Judge, JudgedClaim, Label, OutcomeKind, ResponseScored, SubSentence
from groundwatch.gateway.live import snapshots
from groundwatch.gateway.live.board import Board
from groundwatch.gateway.live.snapshots import Manifest, State, packed
from groundwatch.gateway.service import GatewayService
from groundwatch.reporting.tally import REMEMBERED
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus, wait_acks
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings, Settings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import REPORT_BUCKET

TOGETHER = 500
CLAIMS = 6
JUDGES = {"extraction": Judge(engine="linguistic"), "verification": Judge(engine="llm", model="judge")}
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


async def publish(bus: Bus, first: int, last: int, models: int) -> None:
    draw = random.Random(first)
    for start in range(first, last, TOGETHER):
        messages = [
            outcomes.outgoing(outcome(number, models, draw))
            for number in range(start, min(start + TOGETHER, last))
        ]
        await wait_acks([await bus.start_create(message) for message in messages])


async def started(url: str, expected: int) -> tuple[float, int]:
    """Seconds from the start of a gateway until its report is complete, and how many it counts."""
    bus = Bus(NatsSettings(url=url), name="gateway")
    await bus.connect()
    service = GatewayService(Settings(gateway=GatewaySettings(port=0)), bus, Metrics())
    began = time.monotonic()
    await service.start()
    assert service.core is not None
    while not service.core.live._caught_up.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    seconds = time.monotonic() - began
    rows = (await service.core.live.report())["models"]
    await service.drain(5.0)
    await bus.close()
    return seconds, sum(row["responses"] for row in rows)


async def state_of(bus: Bus) -> tuple[Manifest, State, float]:
    """The snapshot in the bucket, and the seconds that reading and unpacking it takes."""
    bucket = await bus.js.key_value(REPORT_BUCKET)
    manifest = msgspec.json.decode((await bucket.get("live")).value or b"", type=Manifest)
    began = time.monotonic()
    state = await snapshots.Snapshots(bus, manifest.counting).read()
    assert state is not None
    return manifest, state, time.monotonic() - began


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    found = work()
    return time.monotonic() - began, found


def of_full(state: State, models: int) -> dict[str, Any]:
    """What a snapshot costs whose models remember as many responses as ever."""
    tallies = []
    for number in range(models):
        place, tally = state.board.report.tallies[number % len(state.board.report.tallies)]
        history, most = tally.history, 2 * REMEMBERED * 8
        full = msgspec.structs.replace(
            history,
            recorded_at=(history.recorded_at * (most // max(1, len(history.recorded_at)) + 1))[:most],
            facts=(history.facts * (most // max(1, len(history.facts)) + 1))[:most],
        )
        tallies.append((place._replace(model=f"full-{number}"), msgspec.structs.replace(tally, history=full)))
    report = msgspec.structs.replace(state.board.report, tallies=tallies)
    board = msgspec.structs.replace(state.board, report=report)
    packing, data = timed(lambda: packed(msgspec.structs.replace(state, board=board)))
    unpacking, found = timed(lambda: snapshots._unpacked([data]))
    restoring, _ = timed(lambda: Board(None, tuple).restore(found.board))
    return {
        "models": models,
        "bytes": len(data),
        "packing_seconds": round(packing, 2),
        "unpacking_seconds": round(unpacking, 2),
        "restoring_seconds": round(restoring, 2),
    }


async def measure(
    *, outcomes: int = 300_000, later: int = 1_000, models: int = 5, full: int = 50
) -> dict[str, Any]:
    """Seconds until the report is complete; bytes of snapshots. `later` come after the snapshot."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-start-") as folder:
        server = NatsServer(Path(folder) / "nats")
        await server.start()
        bus = Bus(NatsSettings(url=server.url), name="bench")
        try:
            await bus.connect()
            await provision(bus.js)
            began = time.monotonic()
            await publish(bus, 0, outcomes, models)
            publishing = time.monotonic() - began
            without, counted = await started(server.url, outcomes)
            manifest, state, reading = await state_of(bus)
            await publish(bus, outcomes, outcomes + later, models)
            beside, counted_beside = await started(server.url, outcomes + later)
            return {
                "outcomes": outcomes,
                "published_per_second": round(outcomes / publishing),
                "without_snapshot_seconds": round(without, 2),
                "without_snapshot_us_each": round(without / outcomes * 1e6),
                "with_snapshot_seconds": round(beside, 2),
                "outcomes_after_it": later,
                "snapshot_bytes": manifest.size,
                "snapshot_read_seconds": round(reading, 3),
                "counted": [counted, counted_beside],
                "full": of_full(state, full),
                "ok": [counted, counted_beside] == [outcomes, outcomes + later],
            }
        finally:
            await bus.close()
            await server.stop()
