"""The replay service: it takes up what waits, and only that; what Prometheus is told meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from tests.replay.conftest import Replays, outcomes, record, response, settings_of
from tests.runtime.conftest import eventually

from groundwatch.errors import UsageError
from groundwatch.ledger.ledger import audit
from groundwatch.replay import service as serving
from groundwatch.replay.running import cancel, delete, pause
from groundwatch.replay.runs import Page, Runs, this_worker
from groundwatch.replay.service import MOST, Board, ReplayService, RunGauges, show, state_of
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.verification.engines.base import NoopVerificationEngine


@pytest.fixture
async def served(replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """A service that looks often, and its metrics."""
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(serving, "LOOK_SECONDS", 0.05)
    one = ReplayService(settings_of(bus), bus, Metrics())
    await one.start()
    yield one
    await one.drain(10.0)


def status(bus: Bus, name: str, wanted: str) -> Callable[[], Any]:
    async def holds() -> bool:
        return (await (await Runs.open(bus.js)).get(name)).status == wanted

    return holds


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"groundwatch_replay_{name}", labels)


def named(metrics: Metrics) -> set[str]:
    """Runs that have series of their own."""
    return {
        sample.labels["run"]
        for family in metrics.registry.collect()
        if family.name.startswith("groundwatch_replay_")
        for sample in family.samples
        if "run" in sample.labels
    }


async def test_a_run_that_nobody_works_at_is_taken_up(replays: Replays, bus: Bus, served: Any) -> None:
    await record(bus, *(response(f"r{number}") for number in range(120)))
    await replays.done("first")
    await replays.begin("waiting", source="live")
    await eventually(status(bus, "waiting", "done"), within=30)
    assert len(await outcomes(bus, "waiting")) == 120
    assert (await audit(bus.js, "waiting")).balanced
    assert served.problems() == []


async def test_a_run_that_a_dead_process_held_goes_on(replays: Replays, bus: Bus, served: Any) -> None:
    await record(bus, *(response(f"r{number}") for number in range(50)))
    run = await replays.begin("orphan")
    dead = msgspec.structs.replace(this_worker(), started=1.0)
    page = Page(first=run.first, last=run.last, at=run.first, worker=dead, expires=time.time() + 3_600)
    runs = await Runs.open(bus.js)
    await runs.change("orphan", lambda run: msgspec.structs.replace(run, next=run.last + 1, pages=(page,)))
    await eventually(status(bus, "orphan", "done"), within=30)
    assert len(await outcomes(bus, "orphan")) == 50


async def test_what_is_paused_or_somebody_elses_is_left_alone(
    replays: Replays, bus: Bus, served: Any
) -> None:
    await served.drain(10.0)
    await record(bus, response("r"))
    runs = await Runs.open(bus.js)
    theirs = await replays.begin("theirs")
    page = Page(first=theirs.first, last=theirs.last, at=theirs.first, worker=this_worker(), expires=2**40)
    held = msgspec.structs.replace(theirs, next=theirs.last + 1, pages=(page,))
    await runs.change("theirs", lambda _: held)
    await replays.begin("paused")
    await pause(runs, "paused")
    again = ReplayService(settings_of(bus), bus, Metrics())
    await again.start()
    await replays.begin("next")
    await eventually(status(bus, "next", "done"), within=30)
    await again.drain(10.0)
    assert await outcomes(bus, "paused") == {} == await outcomes(bus, "theirs")


async def test_a_service_that_stops_lets_go(replays: Replays, bus: Bus, served: Any) -> None:
    await record(bus, *(response(f"r{number}", recorded_at=time.time() + number) for number in range(40)))
    await replays.begin("slow", speed=1.0)

    async def begun() -> bool:
        return bool((await (await Runs.open(bus.js)).get("slow")).counts.outcomes)

    await eventually(begun, within=30)
    await served.drain(10.0)
    run = await (await Runs.open(bus.js)).get("slow")
    assert (run.status, run.workers(time.time())) == ("running", 0)
    assert (await audit(bus.js, "slow")).balanced


async def test_a_run_that_cannot_be_judged_here_holds_up_no_other(
    replays: Replays, bus: Bus, served: Any
) -> None:
    await served.drain(10.0)
    await record(bus, response("r"))
    runs = await Runs.open(bus.js)
    changes = {"foreign": {"judge": "nobody-knows"}, "typed": {"own": "--models judge.toml"}}
    for name, change in changes.items():
        run = await replays.begin(name)
        spec = msgspec.structs.replace(run.spec, **change)
        await runs.change(name, lambda run, spec=spec: msgspec.structs.replace(run, spec=spec))
    again = ReplayService(settings_of(bus), bus, Metrics())
    await again.start()
    await replays.begin("good")
    await eventually(status(bus, "good", "done"), within=30)
    await again.drain(10.0)
    unable = [await runs.get(name) for name in changes]
    assert again._unable.keys() == {run.nonce for run in unable}
    assert [run.counts.outcomes for run in unable] == [0, 0]
    with pytest.raises(UsageError, match=r"groundwatch replay resume typed --models judge\.toml"):
        unable[1].spec.check_judges()


async def test_what_prometheus_is_told(
    replays: Replays, bus: Bus, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = served._metrics
    await record(bus, *(response(f"r{number}") for number in range(30)))
    await replays.done("first")
    verify = NoopVerificationEngine.verify

    async def moody(self: Any, extracted: Any, protocol: Any) -> Any:
        found = await verify(self, extracted, protocol)
        return [
            msgspec.structs.replace(one, verdicts=()) if event.response.id == "r3" else one
            for event, one in zip(extracted, found, strict=True)
        ]

    monkeypatch.setattr(NoopVerificationEngine, "verify", moody)
    await record(bus, *(response(f"r{number}") for number in range(30)), run="first")
    await replays.begin("second", source="first")
    await eventually(lambda: value(metrics, "state", run="second", state="done") == 1, within=30)
    assert value(metrics, "progress_ratio", run="second") == 1.0
    assert value(metrics, "events", run="second") == value(metrics, "events_expected", run="second") == 30
    assert value(metrics, "outcomes", run="second", outcome="scored") == 29
    assert value(metrics, "cost_dollars", run="second") == 0
    assert value(metrics, "seconds_left", run="second") == 0
    assert value(metrics, "runs", state="done") == 2
    assert named(metrics) == {"first", "second"}
    # Long after its end it is counted, and has no series.
    runs = await Board(bus).look()
    show(runs, metrics.replay, time.time() + 1_000)
    assert (named(metrics), value(metrics, "runs", state="done")) == (set(), 2)


async def test_who_stays_tells_of_runs_that_nobody_works_at(replays: Replays, bus: Bus) -> None:
    await record(bus, response("r"))
    metrics = Metrics()
    gauges = RunGauges(bus, metrics.replay)
    for name in ("waits", "stands", "gone"):
        await replays.begin(name)
    runs = await Runs.open(bus.js)
    await pause(runs, "stands")
    await gauges.look()
    assert value(metrics, "state", run="waits", state="unattended") == 1
    assert value(metrics, "state", run="stands", state="paused") == 1
    assert value(metrics, "runs", state="unattended") == 2
    await delete(bus, "gone", ArchiveSettings())
    await cancel(runs, "waits")
    await gauges.look()
    assert named(metrics) == {"waits", "stands"}
    assert value(metrics, "state", run="waits", state="cancelled") == 1
    assert (value(metrics, "runs", state="unattended"), value(metrics, "runs", state="paused")) == (0, 1)
    gauges.start()
    await asyncio.wait_for(gauges.stop(), 10)


async def test_however_many_runs_wait_few_have_series(replays: Replays, bus: Bus) -> None:
    run = await replays.begin("x")
    many = [
        msgspec.structs.replace(run, spec=msgspec.structs.replace(run.spec, run=f"r{number}"))
        for number in range(MOST + 20)
    ]
    metrics = Metrics()
    show(many, metrics.replay, run.created_at)
    assert named(metrics) == {f"r{number}" for number in range(MOST)}
    assert value(metrics, "runs", state="unattended") == MOST + 20


async def test_a_run_out_of_its_budget_is_told_from_one_that_somebody_paused(
    replays: Replays, bus: Bus
) -> None:
    run = await replays.begin("x")
    spent = msgspec.structs.replace(run, status="paused", reason="its budget of $1.00 is used up ($1.02)")
    by_hand = msgspec.structs.replace(run, status="paused", reason="by hand")
    assert (state_of(spent, 0.0), state_of(by_hand, 0.0)) == ("over_budget", "paused")
