"""Work without end is stopped, told, and tried again a few times."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.runtime.conftest import done, eventually, record, response

from groundwatch.errors import WorkTimeout
from groundwatch.events import ResponseRecorded
from groundwatch.runtime.delivery.dead_letters import dead_letters
from groundwatch.runtime.delivery.stage import BUG_ATTEMPTS
from groundwatch.runtime.delivery.work import Work, WorkClock
from groundwatch.runtime.telemetry.metrics import Metrics

Works = Sequence[Work[ResponseRecorded]]


async def test_a_handler_that_hangs_is_told_and_ends_as_a_dead_letter(stage_factory) -> None:
    tries: Counter[str] = Counter()

    async def hangs(works: Works) -> list[Any]:
        for work in works:
            tries[work.event.id] += 1
        if any(work.event.id == "endless" for work in works):
            await asyncio.Event().wait()
        return [done(work) for work in works]

    running = await stage_factory(hangs, timeout=0.2, start=False)
    for name in ("a", "endless", "b"):
        await record(running.bus, response(name))
    await running.stage.start()
    try:
        await eventually(lambda: running.stage.problems())
        assert "no result within 0.2 s" in running.stage.problems()[0]
        await eventually(running.settled)
    finally:
        await running.stage.drain(1)
    (letter,) = [letter async for letter in dead_letters(running.bus)]
    assert letter.reason == "bug: no result within 0.2 s"
    # Once with its batch and then alone, as for a handler that breaks.
    assert tries["endless"] == BUG_ATTEMPTS + 1
    assert running.count("groundwatch_stage_timeouts_total", stage="extraction") == BUG_ATTEMPTS + 1
    assert running.stage.problems() == []


async def test_a_handler_that_hangs_once_is_done_in_the_end(stage_factory) -> None:
    tries = 0

    async def hangs(works: Works) -> list[Any]:
        nonlocal tries
        tries += 1
        if tries == 1:
            await asyncio.Event().wait()
        return [done(work) for work in works]

    running = await stage_factory(hangs, timeout=0.2)
    await record(running.bus, response("r"))
    await eventually(running.settled)
    assert tries == 2
    assert running.stage.problems() == []
    assert [letter async for letter in dead_letters(running.bus)] == []


async def test_work_that_will_not_be_cancelled_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from groundwatch.runtime.delivery import work

    monkeypatch.setattr(work, "CANCEL_SECONDS", 0.05)
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    metrics = Metrics()
    clock = WorkClock("s", metrics, 0.05)
    with pytest.raises(WorkTimeout):
        await clock.within(stubborn(), [])
    release.set()


async def test_the_oldest_work_of_a_stage_is_a_metric() -> None:
    metrics = Metrics()
    clock, other = WorkClock("s", metrics, 60.0), WorkClock("s", metrics, 60.0)
    release = asyncio.Event()
    task = asyncio.create_task(clock.within(release.wait(), []))
    await asyncio.sleep(0.05)

    def longest() -> float:
        return metrics.registry.get_sample_value("groundwatch_stage_longest_seconds", {"stage": "s"}) or 0.0

    assert longest() > 0.02
    release.set()
    await task
    assert longest() == 0.0
    assert other.problems() == []
