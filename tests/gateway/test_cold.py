"""Answers that were asked about while they were hot, asked about again when only the archive has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.replay.conftest import Replays, settings_of
from tests.runtime.conftest import eventually

from groundwatch.archive.cold import cold_events
from groundwatch.archive.images import archived_images
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.gateway.comparing import compare
from groundwatch.gateway.intake import known_ids
from groundwatch.gateway.live import live
from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.replay.runs import changed
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.runtime.services.run import running
from groundwatch.runtime.settings import ArchiveSettings, Settings
from groundwatch.runtime.stores import repeats
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system.services import make_service
from groundwatch.topology import ARCHIVED, RESPONSES

pytestmark = pytest.mark.slow

PATIENCE = 120.0
STAGES = ("extraction", "verification", "scoring")
NUMBER = 12
REFERENCE = {
    "objects": ["dog", "ball"],
    "triplets": [["ball", "is", "red"], ["dog", "beside", "ball"]],
    "complete": True,
}
ANSWERS = ("A dog sits beside a blue ball.", "A dog sits beside a red ball.")


@asynccontextmanager
async def serving(bus_factory: Any, settings: Settings, *names: str) -> AsyncIterator[None]:
    """Services on a connection of their own."""
    bus = await bus_factory("services")
    bus.cold, bus.cold_images = cold_events(settings.archive), archived_images(settings.archive)
    async with running([make_service(name, settings, bus, Metrics()) for name in names], bus):
        yield


async def judgements(bus: Bus, run: str) -> dict[str, tuple[Any, ...]]:
    """What a run says of each response; two for one are an error."""
    found: dict[str, tuple[Any, ...]] = {}
    async for one in read_outcomes(bus, run, follow=False):
        assert one.id not in found
        found[one.id] = (one.outcome, one.score, [(claim.text, claim.decision) for claim in one.claims])
    return found


async def test_what_is_cold_is_found_as_what_is_hot(
    gateway_factory: Any, bus_factory: Any, response: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_ids, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(repeats, "HOLD_SECONDS", 0.0)
    monkeypatch.setattr(live, "SKEW_SECONDS", 0.0)
    monkeypatch.setattr("groundwatch.archive.cooling.COOL_SECONDS", 0.1)
    place = ArchiveSettings(url=str(tmp_path / "archive"), flush_seconds=0.1, hot_days=1e-9)
    gateway = await gateway_factory(archive=place)
    bus: Bus = gateway.bus
    rules = settings_of(bus, extraction="reader", verification="reference")
    rules = rules.model_copy(update={"archive": place})
    replays = Replays(bus)
    names = [f"r{number}" for number in range(NUMBER)]

    async def send(number: int, **changes: Any) -> tuple[int, str]:
        body = response(id=names[number], answer=ANSWERS[number % 2], reference=REFERENCE, **changes)
        reply = await gateway.post(body)
        said = reply.json()
        return reply.status_code, said.get("status") or said["reason"]

    async def lookups() -> list[Any]:
        found = [await gateway.http.get(f"/v1/responses/{name}") for name in names]
        assert all(one.status_code == 200 for one in found)
        return [one.json() for one in found]

    async def report(of: Any = gateway, number: int = NUMBER) -> Any:
        """Of a gateway that has read everything, without what tells one process from another."""

        async def complete() -> bool:
            told = (await of.http.get("/v1/report")).json()
            return bool(told["complete"]) and sum(one["responses"] for one in told["models"]) == number

        await eventually(complete, within=PATIENCE)
        return (await of.http.get("/v1/report")).json()["models"]

    async def counted() -> Ledger:
        return await audit(bus.js, cold=bus.cold)

    async with serving(bus_factory, rules, *STAGES):
        assert {await send(number) for number in range(NUMBER)} == {(202, "recorded")}

        async def judged() -> bool:
            return not (await counted()).in_flight

        await eventually(judged, within=PATIENCE)
        hot = await lookups(), await report(), await judgements(bus, "live")
        assert (await counted()).balanced and len(hot[2]) == NUMBER
        assert {one[1] is None for one in hot[2].values()} == {False}
        assert len({one[1] for one in hot[2].values()}) == 2
        for stage in STAGES:
            await replays.done(f"hot-{stage}", rules, stage=stage)

        async with serving(bus_factory, rules, "archive"):

            async def cold() -> bool:
                at = [await position_of(bus.js, stream) for stream in ARCHIVED]
                return all(one.first > one.last or not one.last for one in at)

            await eventually(cold, within=PATIENCE)
            assert (await lookups(), await report(), await judgements(bus, "live")) == hot
            another = await gateway_factory(archive=place)
            assert await report(another) == hot[1]
            ledger = await counted()
            assert (ledger.recorded, ledger.scored, ledger.balanced) == (NUMBER, NUMBER, True)
            for stage in STAGES:
                run = await replays.done(f"cold-{stage}", rules, stage=stage)
                assert run.counts.scored == NUMBER
                assert await judgements(bus, f"cold-{stage}") == hot[2]
                (section,) = (await compare(bus, f"hot-{stage}", f"cold-{stage}")).sections
                assert section.paired == NUMBER and section.changed.value == 0
                found = await changed(bus.history, "live", f"cold-{stage}")
                assert (found.pairs, found.changed) == (NUMBER, 0)

            async def indexed() -> bool:
                return gateway.count("groundwatch_indexed_ids", stream=RESPONSES) == NUMBER

            await eventually(indexed, within=PATIENCE)
            assert await send(0) == (200, "duplicate")
            assert await send(0, model="another") == (409, "conflict")

            gone = subject(names.pop(), "default", None)
            done = await Eraser(bus.js, gone, Stores.of(place), wait=60).erase()
            assert done.counts["archive rows"] > 0
            assert (await gateway.http.get(f"/v1/responses/r{NUMBER - 1}")).status_code in (404, 410)
            assert await lookups() == hot[0][:-1]
            ledger = await counted()
            assert (ledger.scored, ledger.balanced) == (NUMBER - 1, True)
            await report(await gateway_factory(archive=place), NUMBER - 1)
