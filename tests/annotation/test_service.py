"""The annotation service over a real server: what it draws, counts once, and goes on with."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
from tests.annotation.conftest import Publish, outcome, several
from tests.conftest import BusFactory
from tests.runtime.conftest import eventually

from groundwatch.annotation.drawing import position
from groundwatch.annotation.service import AnnotationService
from groundwatch.errors import UnknownName, UsageError
from groundwatch.events import AlarmRaised, ResponseScored
from groundwatch.reporting.sums import facts_of
from groundwatch.reviews.queues import Frame, Frames, Items, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.alarm import ALL
from groundwatch.topology import subject_of

pytestmark = pytest.mark.usefixtures("clean_streams")

EVER = 0.5
"""A time of recording before everything."""


@contextlib.asynccontextmanager
async def running(bus: Bus) -> AsyncIterator[AnnotationService]:
    service = AnnotationService(Settings(), bus, Metrics())
    await service.start()
    try:
        yield service
    finally:
        await service.drain(5)


async def frame_of(bus: Bus, name: str, number: int) -> Frame:
    """The frame, as soon as it counts so many answers."""
    found = Frame()

    async def counted() -> bool:
        nonlocal found
        found, _ = await Frames(bus).load(name)
        return found.size >= number

    await eventually(counted, within=20)
    return found


def whole(events: list[ResponseScored]) -> tuple[int, int]:
    pairs = [facts_of(one)[ALL] for one in events]
    return sum(one[0] for one in pairs), sum(one[1] for one in pairs)


async def test_a_share_of_what_comes_is_drawn_and_all_is_counted(bus: Bus, publish: Publish) -> None:
    events = several(200)
    await publish(events[:80])
    queues = Queues(bus)
    spec = await queues.create(QueueSpec(name="q", protocol="faithscore", share=0.2, since=EVER))
    async with running(bus) as service:
        await frame_of(bus, "q", 80)
        await publish(events[80:])
        frame = await frame_of(bus, "q", 200)
        assert service.problems() == []
    (group,) = {key for key in frame.sums if key[4] == ALL}
    plain = frame.sums[group].plain
    assert (plain.numerator, plain.denominator) == whole(events)
    assert group[:3] == ("lvlm", "", "faithscore") and len(group[3]) == 12
    wanted = {one.key for one in events if position(spec, one.key) < 0.2}
    items = await Items(bus).all("q")
    assert {one.key for one in items} == wanted and frame.drawn == len(wanted)
    assert {one.probability for one in items} == {0.2}


async def test_two_replicas_and_restarts_count_each_outcome_once(
    bus_factory: BusFactory, publish: Publish
) -> None:
    events = several(300)
    buses = [await bus_factory("annotation") for _ in range(2)]
    await Queues(buses[0]).create(QueueSpec(name="q", protocol="faithscore", share=0.3, since=EVER))
    for start in range(0, 300, 60):
        async with running(buses[0]), running(buses[1]):
            await publish(events[start : start + 30])
            await asyncio.sleep(0.3)
            await publish(events[start + 30 : start + 60])
            await frame_of(buses[0], "q", start + 60)
    frame, _ = await Frames(buses[0]).load("q")
    (sums,) = [one for key, one in frame.sums.items() if key[4] == ALL]
    assert frame.size == 300 and (sums.plain.numerator, sums.plain.denominator) == whole(events)
    assert frame.drawn == len(await Items(buses[0]).all("q"))


@pytest.mark.parametrize("rule", ["random", "uncertain"])
async def test_a_fixed_number_is_drawn_of_what_is_recorded(
    bus_factory: BusFactory, publish: Publish, rule: str
) -> None:
    events = several(150)
    await publish(events)
    buses = [await bus_factory("annotation") for _ in range(2)]
    await Queues(buses[0]).create(QueueSpec(name="q", protocol="faithscore", rule=rule, size=30))  # type: ignore[arg-type]
    async with running(buses[0]), running(buses[1]):
        frame = await frame_of(buses[0], "q", 150)
    items = await Items(buses[0]).all("q")
    assert len(items) == 30 and frame.complete and frame.size == 150
    if rule == "random":
        assert {one.probability for one in items} == {30 / 150}
    else:
        assert sum(1 / one.probability for one in items) == pytest.approx(150, rel=0.35)
    await publish(several(10, seed=1))
    async with running(buses[0]):
        await asyncio.sleep(1.5)
    assert len(await Items(buses[0]).all("q")) == 30


async def test_answers_on_which_judges_disagree_are_likelier(bus: Bus, publish: Publish) -> None:
    await publish([outcome("same", run="again"), outcome("other", [0.9, 0.9], run="again")])
    await publish([outcome("same"), outcome("other")])
    spec = QueueSpec(name="q", protocol="faithscore", rule="disagreement", share=0.3, since=EVER)
    await Queues(bus).create(spec)
    async with running(bus):
        await frame_of(bus, "q", 2)
    likely = {one.id: one.probability for one in await Items(bus).all("q")}
    assert likely.pop("other") == 1.0 and set(likely.values()) <= {0.3}


async def test_answers_of_an_alarm(bus: Bus, publish: Publish) -> None:
    alarm = AlarmRaised(
        model="lvlm", protocol="faithscore", category="color", base=0.1, after=0.4, since=2_000.0
    )
    subject = subject_of("alarm", "live", "faithscore", alarm.key)
    await bus.create(Outgoing(subject=subject, payload=ENCODER.encode(alarm)))
    await publish(several(20, recorded_at=1_500.0))
    await publish([one for one in several(30, seed=3, recorded_at=2_500.0) if "color" in facts_of(one)])
    spec = await Queues(bus).create(QueueSpec(name="q", rule="alarm", alarm=alarm.key, size=5))
    assert (spec.protocol, spec.model, spec.category, spec.since) == ("faithscore", "lvlm", "color", 2_000.0)
    async with running(bus):
        await frame_of(bus, "q", 1)
    items = await Items(bus).all("q")
    assert len(items) == 5 and {one.recorded_at for one in items} == {2_500.0}


async def test_definitions(bus: Bus) -> None:
    queues = Queues(bus)
    made = await queues.create(QueueSpec(name="q", protocol="faithscore", assigned=("ann",)))
    assert made.since == pytest.approx(time.time(), abs=10) and made.salt
    assert await queues.list() == [made] and await queues.find("q") == made
    assert (await queues.close("q")).closed
    for wrong in (
        QueueSpec(name="q", protocol="faithscore"),
        QueueSpec(name="r"),
        QueueSpec(name="r", protocol="faithscore", tag="shop"),
        QueueSpec(name="r", protocol="faithscore", since=2.0, until=1.0),
        QueueSpec(name="r", protocol="faithscore", alarm="k"),
        QueueSpec(name="r", rule="alarm"),
    ):
        with pytest.raises(UsageError):
            await queues.create(wrong)
    with pytest.raises(UnknownName):
        await queues.create(QueueSpec(name="r", rule="alarm", alarm="no such"))
    with pytest.raises(UnknownName):
        await queues.find("no such")
    await queues.delete("q")
    assert await queues.list() == []


async def test_a_queue_that_another_replica_began_and_did_not_draw_is_drawn(
    bus: Bus, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(several(30))
    await Queues(bus).create(QueueSpec(name="q", protocol="faithscore", size=5))
    save = Frames.save
    others = 0

    async def after_another(self: Frames, frame: Frame, revision: int) -> int:
        """The other one writes from where on it draws, and dies."""
        nonlocal others
        if not revision and not others:
            others += 1
            await save(self, frame, revision)
        return await save(self, frame, revision)

    monkeypatch.setattr(Frames, "save", after_another)
    async with running(bus):
        await frame_of(bus, "q", 30)
    assert others == 1 and len(await Items(bus).all("q")) == 5
