"""The alarm of a running gateway: shown, announced once, and not again by who starts after it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.events import AlarmRaised
from groundwatch.gateway.live.alarms import AlarmPublisher, _news
from groundwatch.reporting.alarms import named
from groundwatch.runtime.delivery.bus import ENCODER, Outgoing
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import AlarmSettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ALARMS, subject_of

LABELS = {"model": "heron-7b", "protocol": "faithscore", "category": "all"}


@pytest.fixture
def settings() -> AlarmSettings:
    """What the gateway of these tests is started with."""
    return AlarmSettings(responses=100, objective=0.05)


async def announced(bus) -> list[AlarmRaised]:
    return [msgspec.json.decode(read.data, type=AlarmRaised) async for read in read_stream(bus.js, ALARMS)]


async def until_alarms(gateway, number: int, *, sequence: int = 0) -> dict[str, Any]:
    """What the gateway tells of alarms, once there are so many and it has read so far."""
    for _ in range(300):
        told: dict[str, Any] = (await gateway.http.get("/v1/alarms")).json()
        if len(told["alarms"]) == number and told["complete"] and told["sequence"] >= sequence:
            return told
        await asyncio.sleep(0.03)
    raise AssertionError(told)


async def until_announced(bus, number: int) -> list[AlarmRaised]:
    for _ in range(200):
        found = await announced(bus)
        if len(found) == number:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(found)


async def send(publish, start: int, number: int, **changes: Any) -> None:
    for one in range(start, start + number):
        await publish(f"r{one}", recorded_at=1_700_000_000.0 + one, **changes)


async def test_an_alarm_is_shown_counted_and_announced_once(gateway_factory, publish, bus, settings):
    gateway = await gateway_factory(alarm=settings)
    await send(publish, 0, 10)
    await send(publish, 10, 8, refuted=3, supported=3)
    told = await until_alarms(gateway, 2, sequence=18)
    assert {row["category"] for row in told["alarms"]} == {"all", "entity"}
    assert {row["recovered_at"] for row in told["alarms"]} == {None}
    whole = next(row for row in told["alarms"] if row["category"] == "all")
    assert (whole["model"], whole["since"], whole["since_response"]) == ("heron-7b", 1_700_000_010.0, 11)
    assert told["rule"]["responses"] == 100
    assert (await gateway.http.get("/v1/report")).json()["alarms"] == told["alarms"]
    found = await until_announced(bus, 2)
    assert {one.category for one in found} == {"all", "entity"}
    assert gateway.count("groundwatch_alarm_raised", **LABELS) == 1
    assert gateway.count("groundwatch_alarms_total", **LABELS) == 1

    again = await gateway_factory(alarm=settings)
    restored = await until_alarms(again, 2, sequence=18)
    assert restored["alarms"] == told["alarms"]
    assert again.count("groundwatch_alarm_raised", **LABELS) == 1
    await send(publish, 18, 3, refuted=3, supported=3)
    await until_alarms(again, 2, sequence=21)
    await asyncio.sleep(0.5)
    assert len(await announced(bus)) == 2
    assert again.count("groundwatch_alarms_total", **LABELS) == 0


async def test_it_recovers_and_the_same_fault_is_announced_again(gateway_factory, publish, bus, settings):
    gateway = await gateway_factory(alarm=settings)
    await send(publish, 0, 10, refuted=3, supported=3, tenant="zoo")
    whose = {(*named(one), one.tenant, one.response_id) for one in await until_announced(bus, 2)}
    # One that starts in between reads all outcomes again.
    other = await gateway_factory(alarm=settings)
    await send(publish, 10, 300)
    told = await until_alarms(gateway, 2, sequence=310)
    assert all(row["recovered_at"] > 1_700_000_010 for row in told["alarms"])
    assert gateway.count("groundwatch_alarm_raised", **LABELS) == 0
    over = (await until_announced(bus, 4))[2:]
    ends = {row["category"]: (row["recovered_at"], row["recovered_response"]) for row in told["alarms"]}
    assert {one.category: (one.recovered_at, one.recovered_response) for one in over} == ends
    assert {(*named(one), one.tenant, one.response_id) for one in over} == whose
    again = await gateway_factory(alarm=settings)
    assert (await until_alarms(again, 2, sequence=310))["alarms"] == told["alarms"]
    await send(publish, 310, 10, refuted=3, supported=3)
    assert len(await until_announced(bus, 6)) == 6
    assert sum(one.count("groundwatch_alarms_total", **LABELS) for one in (gateway, other, again)) == 2
    assert gateway.count("groundwatch_alarm_raised", **LABELS) == 1


async def test_an_alarm_outlives_other_settings_until_it_is_acknowledged(
    gateway_factory, publish, bus, settings
):
    gateway = await gateway_factory(alarm=settings)
    await send(publish, 0, 10)
    await send(publish, 10, 8, refuted=3, supported=3)
    told = await until_alarms(gateway, 2, sequence=18)
    await until_announced(bus, 2)
    other = await gateway_factory(alarm=AlarmSettings(responses=100, objective=0.9))
    kept = await until_alarms(other, 2, sequence=18)
    assert kept["alarms"] == told["alarms"]
    assert (await other.http.get("/v1/report")).json()["alarms"] == told["alarms"]
    assert 'data-alarms="1"' in (await other.http.get("/")).text
    shown = (await other.http.get("/alarms")).text
    assert "1 fault raised now" in shown and "by other settings" in shown
    # While the history is read, nobody knows yet which of them the rule of now finds.
    live, (raised, _) = other.service.core.live, await announced(bus)
    live._caught_up.clear()
    shown = (await other.http.get("/alarms")).text
    assert "1 fault raised now" in shown and "by other settings" not in shown
    await other.http.post(f"/alarms/{raised.key}/acknowledge", data={"at": str(raised.raised_at)})
    assert not live._alarms.waiting and len(await announced(bus)) == 2
    live._caught_up.set()
    for raised in await announced(bus):
        path = f"/alarms/{raised.key}/acknowledge"
        assert (
            await other.http.post(path, data={"by": "Ann", "at": str(raised.raised_at)})
        ).status_code == 303
    assert {one.recovered_at is None for one in (await until_announced(bus, 4))[2:]} == {False}
    async with asyncio.timeout(30):
        while "None is raised." not in (await other.http.get("/alarms")).text:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    # By the rule that raised it, it is still so.
    assert gateway.count("groundwatch_alarm_raised", **LABELS) == 1


FIRST = AlarmRaised(model="m", protocol="faithscore", category="all", base=0.1, after=0.5, tenant="zoo")
FIRST = msgspec.structs.replace(FIRST, since=100.0, raised_at=110.0, raised_response=11)
OVER = msgspec.structs.replace(FIRST, recovered_at=200.0, recovered_response=200)
EARLY = msgspec.structs.replace(OVER, recovered_at=105.0)
SECOND = msgspec.structs.replace(FIRST, since=300.0, raised_at=310.0, raised_response=311)


@pytest.mark.parametrize(
    ("alarm", "last", "news"),
    [
        (FIRST, None, FIRST),
        (FIRST, FIRST, None),
        (FIRST, OVER, None),
        (FIRST, SECOND, None),
        (SECOND, OVER, SECOND),
        # The one before was raised by other settings, which never found its end.
        (SECOND, FIRST, msgspec.structs.replace(FIRST, recovered_at=300.0)),
        (OVER, FIRST, OVER),
        (OVER, OVER, None),
        (OVER, SECOND, None),
        # Its alarm has left the stream.
        (OVER, None, OVER),
        # Read again by other rules, it was raised earlier: what was announced is over.
        (msgspec.structs.replace(OVER, since=90.0, raised_at=95.0, raised_response=9), FIRST, OVER),
        # Responses are recorded in any order: the time of an end can lie before the alarm's.
        (EARLY, FIRST, EARLY),
    ],
)
def test_what_the_stream_lacks_of_an_alarm_or_its_end(alarm, last, news):
    assert _news(alarm, last) == news


async def told(desk: AlarmPublisher) -> list[tuple[float, float | None]]:
    """What it would show, by when it was raised and when it was over."""
    await desk._read_announced()
    return [(one.alarm.raised_at, one.recovered_at) for one in desk.raised]


async def test_who_acknowledges_an_earlier_alarm_ends_none_that_came_after_it(bus, clean_streams, settings):
    """Announced by a version that told no ends; and under settings that never found the first one's end."""
    desk = AlarmPublisher(settings, bus, Metrics())
    for one in (FIRST, SECOND):
        place = subject_of("alarm", one.run, one.protocol, one.key)
        await bus.create(Outgoing(subject=place, payload=ENCODER.encode(one), expect=None))
    assert await told(desk) == [(110.0, 300.0), (310.0, None)]
    third = msgspec.structs.replace(FIRST, since=400.0, raised_at=410.0)
    await desk._announce(third)
    assert [(one.raised_at, one.recovered_at) for one in (await announced(bus))[2:]] == [
        (310.0, 400.0),
        (410.0, None),
    ]
    assert await told(desk) == [(110.0, 300.0), (310.0, 400.0), (410.0, None)]


async def test_of_an_erased_alarm_no_end_is_announced(bus, clean_streams, settings):
    erased = set[str]()
    desk = AlarmPublisher(settings, bus, Metrics(), None, lambda key, tenant: tenant in erased)
    await desk._announce(FIRST)
    assert await told(desk) == [(110.0, None)]
    await Eraser(bus.js, subject(None, "zoo", None), Stores(), wait=0).erase()
    erased.add("zoo")
    await desk._announce(OVER)
    assert await announced(bus) == []
    assert await told(desk) == []


async def test_of_two_gateways_one_announces(gateway_factory, publish, bus, settings):
    both = [await gateway_factory(alarm=settings) for _ in range(2)]
    await send(publish, 0, 10, refuted=3, supported=3)
    for gateway in both:
        await until_alarms(gateway, 2)
    await until_announced(bus, 2)
    await asyncio.sleep(0.5)
    assert len(await announced(bus)) == 2
    assert sum(gateway.count("groundwatch_alarms_total", **LABELS) for gateway in both) == 1


async def test_a_stream_that_refuses_is_tried_again(bus, clean_streams, settings, monkeypatch):
    from groundwatch.errors import TransientError
    from groundwatch.gateway.live import alarms

    monkeypatch.setattr(alarms, "PAUSE", 0.05)
    desk = AlarmPublisher(settings, bus, Metrics())
    create, refused = bus.create, []

    async def refusing(message):
        if len(refused) < 2:
            refused.append(message)
            raise TransientError("not now")
        return await create(message)

    monkeypatch.setattr(bus, "create", refusing)
    desk.start()
    alarm = AlarmRaised(model="m", protocol="faithscore", category="all", base=0.1, after=0.5, since=1.0)
    desk._waiting.append(alarm)
    desk._awake.set()
    [found] = await until_announced(bus, 1)
    await desk.stop()
    assert found == alarm
    assert len(refused) == 2


async def test_a_label_that_goes_leaves_the_gauges_of_others(gateway_factory, publish, settings):
    """Invented models have all labels at first; the bad one earns its own, and its alarm is then shown."""
    gateway = await gateway_factory(alarm=settings)
    gateway.service.core.live._alarms._metrics = metrics = Metrics(max_labels=3)
    for number in range(5):
        await publish(f"i{number}", model=f"invented-{number}")
    for number in range(15):
        await publish(f"b{number}", model="bad", refuted=3)
        await publish(f"c{number}", model="busy", refuted=3)
    await until_alarms(gateway, 4, sequence=35)

    def raised(model: str) -> float | None:
        return metrics.registry.get_sample_value("groundwatch_alarm_raised", LABELS | {"model": model})

    assert (raised("bad"), raised("busy")) == (1, 1)
    assert not raised("other")
    assert metrics.generation == 2
