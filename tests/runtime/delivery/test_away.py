"""A judge that is away: its events wait in the stream, none is given up, all are judged when it is back."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.runtime.conftest import FAST, done, eventually, record, response
from tests.support.llm_server import running

from groundwatch.errors import RateLimited, Unavailable
from groundwatch.events import ResponseRecorded
from groundwatch.extraction.service import ExtractionService
from groundwatch.models.settings import ChatSettings
from groundwatch.runtime.delivery.away import AwayJudges
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.dead_letters import dead_letters
from groundwatch.runtime.delivery.work import Work
from groundwatch.runtime.local.servers import free_port
from groundwatch.runtime.settings import CacheSettings, ExtractionSettings, RetrySettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import EXTRACTED, RESPONSES

Works = Sequence[Work[ResponseRecorded]]
EVENTS = 30
LOOPS = 3

Start = Callable[..., Awaitable[ExtractionService]]


@pytest.fixture
async def start(bus: Bus, clean_streams: None) -> AsyncIterator[Start]:
    """Starts extraction by a model at this address that is asked again after a moment."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(url: str, script: str = "ok", **chat: Any) -> ExtractionService:
            wanted = {
                "timeout": 0.3,
                "retries": 0,
                "patience": 0.05,
                "first_wait": 0.01,
                "breaker_pause": 0.05,
                "concurrency": LOOPS,
            } | chat
            llm = ChatSettings(base_url=url, model=script, **wanted)
            settings = Settings(
                retry=RetrySettings(attempts=FAST.attempts, first_delay=0.05, max_delay=2.0),
                cache=CacheSettings(enabled=False),
                extraction=ExtractionSettings(engine="llm", llm=llm),
            )
            service = ExtractionService(settings, bus, Metrics())
            await service.start()
            stack.push_async_callback(service.drain, 0.05)
            return service

        yield make


async def backlog(bus: Bus) -> tuple[int, int]:
    """How many events wait in the stream, and how many were given out and not answered for."""
    info = await bus.js.consumer_info(RESPONSES, "extraction")
    return int(info.num_pending or 0), int(info.num_ack_pending or 0)


async def all_extracted(bus: Bus, number: int = EVENTS) -> bool:
    return (await bus.js.stream_info(EXTRACTED)).state.messages == number


async def letters(bus: Bus) -> list[str]:
    return [letter.reason async for letter in dead_letters(bus)]


def away_seconds(service: ExtractionService, judge: str = "ok") -> float | None:
    return service.metrics.registry.get_sample_value(
        "groundwatch_judge_away_seconds", {"stage": "extraction", "judge": judge}
    )


def about(request: dict[str, Any]) -> str:
    """The text that the judge was asked for."""
    return json.dumps(request["messages"])


async def test_an_outage_stops_fetching_and_costs_no_event_anything(bus: Bus, start: Start) -> None:
    port = free_port()
    service = await start(f"http://127.0.0.1:{port}/v1")
    for number in range(EVENTS):
        await record(bus, response(f"r{number}"))
    await eventually(lambda: away_seconds(service))
    (problem,) = [problem for problem in service.problems() if "judge ok is away since" in problem]
    assert "cannot be reached" in problem
    # Many more trials than attempts: each hands one event back, and the rest has never left the stream.
    count = service.metrics.registry.get_sample_value
    handed_back = {"stage": "extraction", "result": "handed_back"}
    await eventually(
        lambda: (count("groundwatch_stage_messages_total", handed_back) or 0) > FAST.attempts, within=30
    )
    waiting, held = await backlog(bus)
    assert waiting >= EVENTS - 3 * (LOOPS + FAST.attempts) and waiting + held == EVENTS
    assert await letters(bus) == []
    with running(port):
        await eventually(lambda: all_extracted(bus), within=30)
        await eventually(lambda: not away_seconds(service))
        assert not any("away" in problem for problem in service.problems())
    assert await letters(bus) == []


@pytest.mark.parametrize("trouble", ["500", "503", "401", "ok:1", "closed", "html"])
async def test_a_judge_that_fails_everybody_is_away(bus: Bus, start: Start, trouble: str) -> None:
    with running() as server:
        server.behave = lambda request: trouble
        service = await start(server.base_url, breaker_failures=2)
        for number in range(EVENTS):
            await record(bus, response(f"r{number}"))
        await eventually(lambda: away_seconds(service))
        asked = len(server.requests)
        await eventually(lambda: len(server.requests) >= asked + 2)
        assert (await backlog(bus))[0] > 0
        server.behave = None
        await eventually(lambda: all_extracted(bus), within=30)
    assert await letters(bus) == []


@pytest.mark.parametrize("trouble", ["500", "ok:1"])
async def test_one_event_that_always_fails_is_no_outage(bus: Bus, start: Start, trouble: str) -> None:
    with running() as server:
        server.behave = lambda request: trouble if "poison" in about(request) else "ok"
        service = await start(server.base_url)
        await record(bus, response("poison", answer="There is a poison."))
        number = 0

        async def buried() -> bool:
            nonlocal number
            await record(bus, response(f"r{number}"))
            number += 1
            return bool(await letters(bus))

        await eventually(buried, within=30)
        await eventually(lambda: all_extracted(bus, number))
    (reason,) = await letters(bus)
    assert reason.startswith("gave_up")
    assert not away_seconds(service)


async def test_more_poison_than_loops_blocks_nobody(bus: Bus, start: Start) -> None:
    """They look like an outage; but each trial is another event's, so a good one comes to its turn."""
    with running() as server:
        server.behave = lambda request: "500" if "poison" in about(request) else "ok"
        await start(server.base_url, breaker_failures=2)
        for number in range(2 * LOOPS):
            await record(bus, response(f"bad{number}", answer=f"There is a poison {number}."))
        for number in range(5):
            await record(bus, response(f"r{number}"))
        await eventually(lambda: all_extracted(bus, 5), within=30)


async def test_a_rate_limit_pauses_and_uses_up_no_attempt(bus: Bus, start: Start) -> None:
    with running() as server:
        limited = Counter[str]()

        def busy(request: dict[str, Any]) -> str:
            limited["429"] += 1
            return "429:0.2" if limited["429"] <= 3 * FAST.attempts else "ok"

        server.behave = busy
        service = await start(server.base_url)
        await record(bus, response("r"))
        await eventually(lambda: all_extracted(bus, 1), within=30)
    assert await letters(bus) == []
    assert not away_seconds(service)
    info = await bus.js.consumer_info(RESPONSES, "extraction")
    # It was held in hand and never went round.
    assert info.delivered and info.delivered.consumer_seq == info.delivered.stream_seq == 1


async def test_one_judge_of_several_does_not_hold_up_the_others_events(stage_factory) -> None:
    back = False
    finished: list[str] = []

    async def two_judges(works: Works) -> list[Any]:
        name = works[0].event.id
        if name.startswith("a") and not back:
            return [Unavailable("nobody there", judge="a", retry_after=0.2)]
        finished.append(name)
        return [done(works[0])]

    running_stage = await stage_factory(two_judges, batch=1, concurrency=2, judges=2)
    for number in range(10):
        await record(running_stage.bus, response(f"a{number}"))
    for number in range(5):
        await record(running_stage.bus, response(f"b{number}"))
    await eventually(lambda: len(finished) == 5)
    assert all(name.startswith("b") for name in finished)
    back = True
    await eventually(running_stage.settled)
    assert [letter async for letter in dead_letters(running_stage.bus)] == []


async def test_a_drain_hands_back_at_once_what_waits_for_a_judge(stage_factory) -> None:
    async def away(works: Works) -> list[Any]:
        return [Unavailable("nobody there", judge="j", retry_after=3600.0) for _ in works]

    running_stage = await stage_factory(away, ack_wait=30.0, name="waits", start=False)
    await record(running_stage.bus, response("r"))
    await running_stage.stage.start()
    await eventually(lambda: running_stage.stage.in_flight == 1)

    async def all_done(works: Works) -> list[Any]:
        return [done(work) for work in works]

    await running_stage.stage.drain(20)
    other = await stage_factory(all_done, ack_wait=30.0, name="waits")
    await eventually(other.settled, within=8)


async def test_what_nats_will_not_take_is_kept_and_no_judge_asked_again(stage_factory, monkeypatch) -> None:
    asked = 0

    async def judged(works: Works) -> list[Any]:
        nonlocal asked
        asked += len(works)
        return [done(work) for work in works]

    running_stage = await stage_factory(judged, start=False)
    original, refused = running_stage.bus.start_create, 0

    async def full(outgoing: Any) -> Any:
        nonlocal refused
        refused += 1
        if refused <= 3 * FAST.attempts:
            raise Unavailable("the stream refused it: maximum bytes exceeded")
        return await original(outgoing)

    await record(running_stage.bus, response("r"))
    monkeypatch.setattr(running_stage.bus, "start_create", full)
    await running_stage.stage.start()
    try:
        await eventually(running_stage.settled)
    finally:
        await running_stage.stage.drain(1)
    assert asked == 1
    assert [letter async for letter in dead_letters(running_stage.bus)] == []


def test_who_is_away_is_told_until_an_event_that_waited_is_answered() -> None:
    metrics = Metrics()
    judges = AwayJudges("s", metrics)
    judges.found_away("one", RateLimited("slow down", judge="j"))
    judges.found_away("one", Unavailable("NATS is away"))
    assert judges.problems() == []
    judges.found_away("one", Unavailable("refused", judge="j"))
    (problem,) = judges.problems()
    assert problem.startswith("judge j is away since ") and problem.endswith("refused")
    judges.answered("another")
    assert judges.away
    judges.answered("one")
    assert judges.problems() == []
    labels = {"stage": "s", "judge": "j"}
    assert metrics.registry.get_sample_value("groundwatch_judge_away_seconds", labels) == 0.0


def test_an_absence_that_nobody_sees_any_more_lapses(monkeypatch: pytest.MonkeyPatch) -> None:
    from groundwatch.runtime.delivery import away as judging

    monkeypatch.setattr(judging, "LAPSE", 0.2)
    judges = AwayJudges("s", Metrics(), number=2)
    judges.found_away("one", Unavailable("refused", judge="j"))
    judges.found_away("two", Unavailable("refused", judge="k", retry_after=60.0))
    assert judges.nobody_answers
    time.sleep(0.25)
    # Of the other one nothing was to be heard for longer.
    assert set(judges.away) == {"k"} and not judges.nobody_answers
