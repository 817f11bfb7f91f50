"""Faults of a replay's judges: told in their words, and judged again alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.replay.conftest import Replays, outcomes, record, response, settings_of

from groundwatch.errors import TransientError, UsageError
from groundwatch.events import OutcomeKind
from groundwatch.extraction.engines.base import NoopExtractionEngine
from groundwatch.ledger.ledger import audit
from groundwatch.replay.running import Retried, faults, retry
from groundwatch.replay.runs import Runs
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.verification.engines.base import NoopVerificationEngine


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Responses that verification cannot judge now; what was asked of extraction is counted in `asked`."""
    sick: set[str] = set()
    verify = NoopVerificationEngine.verify

    async def some(self: Any, extracted: Any, protocol: Any) -> Any:
        found = await verify(self, extracted, protocol)
        return [
            TransientError("the judge is away") if event.response.id in sick else one
            for event, one in zip(extracted, found, strict=True)
        ]

    monkeypatch.setattr(NoopVerificationEngine, "verify", some)
    return sick


async def test_only_what_had_faults_is_judged_again(
    replays: Replays, bus: Bus, broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(bus, *(response(f"r{number}", tenant=f"t{number % 2}") for number in range(30)))
    await record(bus, response("r3", tenant="same-id-in-another-tenant"))
    broken |= {"r3", "r4", "r5"}
    run = await replays.done("a", tenants=("t0", "t1"))
    assert (run.counts.scored, run.counts.unscored) == (27, 3)
    assert run.counts.reasons == {"unscored: dead_letter": 3}
    assert await faults(bus.history, "a") == {"verification: the judge is away": 3}

    asked: list[str] = []
    extract = NoopExtractionEngine.extract

    async def watched(self: Any, responses: Any, protocol: Any) -> Any:
        asked.extend(one.id for one in responses)
        return await extract(self, responses, protocol)

    monkeypatch.setattr(NoopExtractionEngine, "extract", watched)
    broken.remove("r3")
    broken.remove("r4")
    done = await retry(bus, settings_of(bus), "a")
    assert done == Retried(run="a", found=3, scored=2, faulty=1)
    assert set(asked) == {"r3", "r4", "r5"}
    now = await (await Runs.open(bus.js)).get("a")
    assert (now.status, now.counts.scored, now.counts.unscored) == ("done", 29, 1)
    assert now.counts.reasons == {"unscored: dead_letter": 1}
    found = await outcomes(bus, "a")
    assert found["r4 faithscore"].outcome is OutcomeKind.SCORED
    broken.clear()
    assert (await retry(bus, settings_of(bus), "a")).scored == 1
    ledger = await audit(bus.js, "a")
    assert (ledger.balanced, ledger.scored, ledger.unscored) == (True, 30, 0)
    assert await faults(bus.history, "a") == {}
    assert (await retry(bus, settings_of(bus), "a")).found == 0


@pytest.mark.parametrize("stage", ["verification"])
async def test_from_a_later_stage_too(replays: Replays, bus: Bus, broken: set[str], stage: str) -> None:
    await record(bus, *(response(f"r{number}") for number in range(5)))
    await replays.done("kept", keep=True)
    broken.add("r2")
    run = await replays.done("b", source="kept", stage=stage)
    assert run.counts.unscored == 1
    broken.clear()
    assert (await retry(bus, settings_of(bus), "b")).scored == 1
    assert (await audit(bus.js, "b")).scored == 5


async def test_an_event_that_is_gone_is_told(replays: Replays, bus: Bus, broken: set[str]) -> None:
    await record(bus, response("r1"), response("r2"))
    broken.add("r1")
    await replays.done("c")
    await bus.js.purge_stream("GW_RESPONSES", subject=f"gw.recorded.live.{response('r1').key}")
    assert await retry(bus, settings_of(bus), "c") == Retried(run="c", found=1, gone=1)


async def test_who_works_or_judges_otherwise_is_refused(
    replays: Replays, bus: Bus, broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(bus, response("r1"))
    broken.add("r1")
    await replays.begin("running")
    with pytest.raises(UsageError, match="'running' is running: what had faults"):
        await retry(bus, settings_of(bus), "running")
    await replays.done("d")
    runs = await Runs.open(bus.js)
    from msgspec.structs import replace

    await runs.change("d", lambda run: replace(run, judges=dict.fromkeys(run.judges, "other")))
    with pytest.raises(UsageError, match="one run is never of two"):
        await retry(bus, settings_of(bus), "d")
    with pytest.raises(UsageError, match="no run 'nobody'"):
        await retry(bus, settings_of(bus), "nobody")
