"""What leaves the streams, and what stays: the arithmetic, and a real NATS server."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from tests.archive.conftest import outcome

from groundwatch.archive.cooling import (
    RECEIVER_SECONDS,
    Cooling,
    bounded,
    cut_time,
    last_to_go,
)
from groundwatch.archive.events import Events
from groundwatch.archive.service import ArchiveService
from groundwatch.errors import ProvisionRefused, TransientError
from groundwatch.events import ResponseRecorded
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import first_since
from groundwatch.runtime.delivery.outcomes import outgoing, recorded
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import Read, position_of, read_stream
from groundwatch.runtime.delivery.unanswered import Unanswered
from groundwatch.runtime.settings import ArchiveSettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ARCHIVED, DAY, EXTRACTED, JUDGED, OUTCOMES, RESPONSES, subject_of

NAMES = ("A", "B", "C")


World = tuple[dict[str, list[tuple[int, float]]], dict[str, int], list[Unanswered], float]


@st.composite
def worlds(
    draw: st.DrawFn,
) -> tuple[dict[str, list[tuple[int, float]]], dict[str, int], list[Unanswered], float]:
    """Streams with gaps, in the order of time; how far each is archived; what waits; and the hot window."""
    held: dict[str, list[tuple[int, float]]] = {name: [] for name in NAMES}
    now = 0.0
    places = dict.fromkeys(NAMES, 0)
    for name, gap, pause in draw(
        st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 3), st.floats(0, 5)), max_size=40)
    ):
        places[name] += gap
        now += pause
        held[name].append((places[name], now))
    archived = {name: draw(st.integers(0, places[name])) for name in NAMES}
    messages = [(name, *one) for name in NAMES for one in held[name]]
    waiting = [
        Unanswered(stream=name, consumer="c", sequence=sequence, time=at)
        for name, sequence, at in (draw(st.lists(st.sampled_from(messages), max_size=3)) if messages else [])
    ]
    return held, archived, waiting, draw(st.floats(0, max(now, 1.0) + 1))


@given(world=worlds())
async def test_what_goes_is_old_archived_and_older_than_all_work(world):
    held, archived, waiting, hot_since = world
    cut = cut_time(hot_since, waiting)
    for name, messages in held.items():

        async def look(sequence: int, messages=messages):
            reads = (Read(subject="", data=b"", headers={}, sequence=at, time=when) for at, when in messages)
            return next((read for read in reads if read.sequence >= sequence), None)

        ends = (messages[0][0], messages[-1][0] + 1) if messages else (1, 1)
        last = last_to_go(name, archived[name], await first_since(look, cut, *ends), waiting)

        def may_go(sequence: int, when: float, name: str = name) -> bool:
            return when < hot_since and sequence <= archived[name] and all(when < one.time for one in waiting)

        # Exactly these: nothing else goes, and nothing that may stays.
        assert [one for one in messages if one[0] <= last] == [one for one in messages if may_go(*one)]


def test_a_clock_that_was_set_back_takes_nothing_from_work():
    waiting = [Unanswered(stream="A", consumer="c", sequence=5, time=90.0)]
    assert last_to_go("A", 10, 9, waiting) == 4
    assert last_to_go("B", 10, 9, waiting) == 8


def test_a_receiver_keeps_nothing_for_ever_and_a_stage_does():
    waiting = [
        Unanswered(stream=name, consumer="c", sequence=5, time=at)
        for name, at in ((OUTCOMES, 10.0), (OUTCOMES, 30.0), (RESPONSES, 10.0))
    ]
    away, back, stage = bounded(waiting, since=20.0)
    assert away.time == 20.0 and last_to_go(OUTCOMES, 9, 9, [away]) == 8
    assert (back, stage) == tuple(waiting[1:])
    assert RECEIVER_SECONDS == 30 * DAY


def cooling(bus: Bus, position: int = 10**9, hot_days: float = 1e-9) -> Cooling:
    async def archived(streams):
        return dict.fromkeys(streams, position)

    settings = Settings(archive=ArchiveSettings(url="/nowhere", hot_days=hot_days))
    return Cooling(settings, bus, Metrics(), archived)


async def record(bus: Bus, *numbers: int) -> None:
    for number in numbers:
        await bus.create(recorded(ResponseRecorded(id=str(number), model="m", answer="a")))


async def held(bus: Bus, name: str) -> list[int]:
    return [read.sequence async for read in read_stream(bus.js, name)]


async def fetched(bus: Bus, name: str, count: int, *, on: str = RESPONSES):
    pull = await bus.js.pull_subscribe_bind(name, stream=on)
    found = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += await pull.fetch(count - len(found), timeout=5)
    return found


async def acknowledged(bus: Bus, name: str, sequence: int, *, on: str = RESPONSES) -> None:
    """Until the server counts everything up to there as done."""
    async with asyncio.timeout(30):
        while True:
            info = await bus.js.consumer_info(on, name)
            if info.ack_floor is not None and info.ack_floor.stream_seq >= sequence:
                return
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("clean_streams")
async def test_what_is_not_acknowledged_keeps_all_of_its_time_and_later(bus):
    await record(bus, 1, 2)
    first, second = await fetched(bus, "extraction", 2)
    claims = subject_of("extracted", "live", "verification", "faithscore", "k1")
    before = subject_of("extracted", "gone", "verification", "faithscore", "k0")
    await bus.js.publish(before, b"{}")
    # Of the first response, and the stage has not said yet that it is done with it.
    await bus.js.publish(claims, b"{}")
    await second.ack_sync()
    done = await cooling(bus).cool()
    assert done.by == f"extraction of {RESPONSES}"
    assert await held(bus, RESPONSES) == [1, 2] and len(await held(bus, EXTRACTED)) == 2
    await first.ack_sync()
    await acknowledged(bus, "extraction", 2)
    # What verification has yet to do is of later than both responses.
    assert (await cooling(bus).cool()).removed == {RESPONSES: 2, EXTRACTED: 1}
    assert await held(bus, RESPONSES) == [] and len(await held(bus, EXTRACTED)) == 1
    assert (await position_of(bus.js, RESPONSES)).last == 2


@pytest.mark.usefixtures("clean_streams")
async def test_a_receiver_and_a_letter_sent_again_are_in_work_too(bus):
    await bus.js.add_consumer(
        OUTCOMES,
        ConsumerConfig(
            durable_name="outflow-to-somebody",
            ack_policy=AckPolicy.EXPLICIT,
            deliver_policy=DeliverPolicy.ALL,
            filter_subject="gw.outcome.live.>",
        ),
    )
    try:
        await bus.create(outgoing(outcome(1)))
        assert (await cooling(bus).cool()).removed == {}
        [told] = await fetched(bus, "outflow-to-somebody", 1, on=OUTCOMES)
        await told.ack_sync()
        await acknowledged(bus, "outflow-to-somebody", 1, on=OUTCOMES)
        await bus.js.publish(subject_of("retry", "scoring", "live", "k"), b"{}")
        await bus.create(outgoing(outcome(2)))
        assert (await cooling(bus).cool()).removed == {OUTCOMES: 1}
        assert await held(bus, OUTCOMES) == [2]
    finally:
        await bus.js.delete_consumer(OUTCOMES, "outflow-to-somebody")


@pytest.mark.usefixtures("clean_streams")
async def test_nothing_goes_while_a_consumer_is_not_known_of(bus):
    await bus.js.publish(subject_of("recorded", "again", "k1"), b"{}")
    await bus.js.delete_consumer(JUDGED, "scoring")
    try:
        with pytest.raises(TransientError, match="GW_JUDGED has no consumer scoring: run groundwatch"):
            await cooling(bus).cool()
        assert await held(bus, RESPONSES) == [1]
    finally:
        await provision(bus.js)
    assert (await cooling(bus).cool()).removed == {RESPONSES: 1}


@pytest.mark.usefixtures("clean_streams")
async def test_only_what_is_archived_and_old_goes(bus):
    for number in range(1, 6):
        await bus.js.publish(subject_of("recorded", "again", f"k{number}"), b"{}")
    assert (await cooling(bus, hot_days=1).cool()).removed == {}
    assert (await cooling(bus, position=0).cool()).removed == {}
    assert (await cooling(bus, position=3).cool()).removed == {RESPONSES: 3}
    assert await held(bus, RESPONSES) == [4, 5]


@pytest.mark.usefixtures("clean_streams")
async def test_the_service_archives_first_and_cools_then(bus, tmp_path, monkeypatch):
    monkeypatch.setattr("groundwatch.archive.cooling.COOL_SECONDS", 0.1)
    monkeypatch.setattr("groundwatch.runtime.stores.repeats.HOLD_SECONDS", 0.0)
    url = str(tmp_path / "archive")
    settings = Settings(archive=ArchiveSettings(url=url, flush_seconds=0.1, hot_days=1e-9))
    metrics = Metrics()
    service = ArchiveService(settings, bus, metrics)
    await service.start()
    for number in range(1, 21):
        await bus.js.publish(subject_of("recorded", "again", f"k{number}"), b"{}")
        await bus.create(outgoing(outcome(number)))
    async with asyncio.timeout(60):
        for name in (RESPONSES, OUTCOMES):
            while True:
                if (await position_of(bus.js, name)).first > 20:
                    break
                await asyncio.sleep(0.05)
    await service.drain(30)
    data = Events(url).snapshot().dataset()
    assert data is not None
    rows = data.to_table(columns=["stream", "sequence"]).to_pylist()
    for name in (RESPONSES, OUTCOMES):
        assert sorted(row["sequence"] for row in rows if row["stream"] == name) == list(range(1, 21))
        assert await held(bus, name) == []
    assert metrics.archive_hot_sequence.labels(OUTCOMES)._value.get() == 0


@pytest.mark.usefixtures("clean_streams")
async def test_streams_that_are_archived_drop_nothing_for_its_age(bus):
    await record(bus, 1)
    try:
        changes = {one.name: one.change for one in await provision(bus.js, archived=True)}
        assert {name for name, change in changes.items() if change == "updated"} == set(ARCHIVED)
        assert (await bus.js.stream_info(RESPONSES)).config.max_age in (None, 0)
        assert {one.change for one in await provision(bus.js, archived=True)} == {"unchanged"}
    finally:
        # Switched off again: nothing that is there is older than the limit.
        await provision(bus.js)
    assert (await bus.js.stream_info(RESPONSES)).config.max_age == 30 * DAY
    assert await held(bus, RESPONSES) == [1]


@pytest.mark.usefixtures("clean_streams")
async def test_switching_the_archive_off_drops_nothing(bus, monkeypatch):
    await record(bus, 1)
    await provision(bus.js, archived=True)
    try:
        with monkeypatch.context() as later:
            later.setattr("groundwatch.runtime.delivery.provisioning.time.time", lambda: LATER)
            with pytest.raises(ProvisionRefused, match="max_age would shrink from no limit"):
                await provision(bus.js)
    finally:
        await provision(bus.js)


LATER = time.time() + 31 * DAY
