"""Reading streams to their end and beyond, through restarts."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import nats.js.errors
import pytest
from nats.js.api import DeliverPolicy, StreamConfig
from tests.runtime.conftest import eventually

from groundwatch.errors import TransientError
from groundwatch.runtime.delivery import direct, streams
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.direct import last_of_each_subject
from groundwatch.runtime.delivery.streams import (
    Count,
    count_messages,
    follow_stream,
    next_message,
    position_of,
    read_batches,
    read_stream,
)
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings


@pytest.fixture
async def test_bus(own_server: NatsServer):
    bus = Bus(NatsSettings(url=own_server.url, publish_timeout=2.0), name="test")
    await bus.connect()
    await bus.js.add_stream(StreamConfig(name="TEST", subjects=["test.>"]))
    yield bus
    await bus.close()


async def fill(bus: Bus, first: int, count: int) -> None:
    for number in range(first, first + count):
        kind = "even" if number % 2 == 0 else "odd"
        await bus.js.publish(f"test.{kind}.{number}", b"%d" % number, headers={"N": str(number)})


async def numbers(bus: Bus, **options: object) -> list[int]:
    return [int(read.headers["N"]) async for read in read_stream(bus.js, "TEST", **options)]


@pytest.mark.parametrize("asked", ["stream_info", "add_consumer", "consumer_info"])
async def test_following_ends_when_a_cancellation_came_with_an_answer(
    test_bus: Bus, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """As `asyncio.wait_for` of Python 3.11 loses it: it gives the answer, and the count alone knows."""
    monkeypatch.setattr(streams, "WAIT", 0.2)
    ask = getattr(test_bus.js, asked)
    lost = asyncio.Event()

    async def loses(*named: Any, **more: Any) -> Any:
        answer = await ask(*named, **more)
        if not lost.is_set():
            lost.set()
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        return answer

    monkeypatch.setattr(test_bus.js, asked, loses)

    async def follow() -> None:
        async for _ in follow_stream(test_bus.js, "TEST", subjects=("test.>",)):
            pass

    following = asyncio.create_task(follow())
    await lost.wait()
    done, _ = await asyncio.wait({following}, timeout=10)
    following.cancel()
    assert done and following.cancelled()


async def test_reads_all_or_a_part(test_bus: Bus) -> None:
    assert await numbers(test_bus) == []
    await fill(test_bus, 0, 20)
    assert await numbers(test_bus) == list(range(20))
    assert await numbers(test_bus, subjects=("test.even.*",)) == list(range(0, 20, 2))
    assert await numbers(test_bus, start_sequence=11) == list(range(10, 20))
    assert await numbers(test_bus, last_sequence=5) == list(range(5))
    assert await numbers(test_bus, subjects=("test.odd.*",), last_sequence=7) == [1, 3, 5]
    assert await numbers(test_bus, subjects=("test.none.*",)) == []
    reads = [read async for read in read_stream(test_bus.js, "TEST", headers_only=True)]
    assert {read.data for read in reads} == {b""}
    assert [read.pending for read in reads] == list(range(19, -1, -1))


async def test_leaves_no_consumer_behind(test_bus: Bus) -> None:
    await fill(test_bus, 0, 5)
    await numbers(test_bus)
    assert (await test_bus.js.stream_info("TEST")).state.consumer_count == 0


async def test_deleted_messages_are_not_waited_for(test_bus: Bus) -> None:
    await fill(test_bus, 0, 10)
    for sequence in (3, 9, 10):
        await test_bus.js.delete_msg("TEST", sequence)
    assert await asyncio.wait_for(numbers(test_bus), 3) == [0, 1, 3, 4, 5, 6, 7]


async def test_a_stream_that_does_not_exist(test_bus: Bus) -> None:
    with pytest.raises(nats.js.errors.NotFoundError):
        _ = [read async for read in read_stream(test_bus.js, "NOWHERE")]
    with pytest.raises(nats.js.errors.NotFoundError):
        _ = [read async for read in follow_stream(test_bus.js, "NOWHERE")]


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("end", ("stop", "kill"))
async def test_goes_on_behind_the_last_message_after_a_restart(
    own_server: NatsServer, test_bus: Bus, monkeypatch: pytest.MonkeyPatch, end: str, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(direct, "LARGE", 5)
        await test_bus.js.update_stream(StreamConfig(name="TEST", subjects=["test.>"], allow_direct=True))
    monkeypatch.setattr(streams, "MOST", 10)
    monkeypatch.setattr(streams, "WAIT", 1.0)
    await fill(test_bus, 0, 100)
    await test_bus.js.publish("test.other", b"100")
    if is_large:
        await test_bus.js.delete_msg("TEST", 101)
        await test_bus.js.publish("test.other", b"100")
    found = []
    async for read in read_stream(test_bus.js, "TEST", start_sequence=2):
        found.append(int(read.data))
        if len(found) == 35:
            if end == "kill":
                own_server.kill()
                await own_server.wait()
                await own_server.restart()
            else:
                await own_server.stop()
                await own_server.start()
    assert found == list(range(1, 101))


async def test_a_server_that_stays_away_is_told(
    own_server: NatsServer, test_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST", 10)
    monkeypatch.setattr(streams, "WAIT", 0.5)
    await fill(test_bus, 0, 50)
    with pytest.raises(TransientError, match="reading TEST broke off"):
        async for batch in read_batches(test_bus.js, "TEST", timeout=1.0):
            if batch[0].sequence <= 15 <= batch[-1].sequence:
                await own_server.stop()


async def test_follows_across_a_restart_without_gap_or_repeat(
    own_server: NatsServer, test_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WAIT", 0.5)
    await fill(test_bus, 0, 10)
    found: list[int] = []

    async def follow() -> None:
        async for batch in follow_stream(test_bus.js, "TEST", subjects=("test.>",)):
            found.extend(int(read.data) for read in batch.messages)

    async def reach(count: int) -> None:
        await eventually(lambda: len(found) >= count, within=20)

    following = asyncio.create_task(follow())
    try:
        await reach(10)
        await fill(test_bus, 10, 5)
        await reach(15)
        await own_server.stop()
        await asyncio.sleep(0.3)
        await own_server.start()
        await eventually(lambda: test_bus.connected)
        await fill(test_bus, 15, 15)
        await reach(30)
    finally:
        following.cancel()
    assert found == list(range(30))


LIVE_AND_MORE = {(): range(60), ("test.even.*",): range(0, 60, 2), ("test.even.*", "test.odd.*"): range(60)}


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "LARGE", 5)
    monkeypatch.setattr(direct, "FEW", 5)
    monkeypatch.setattr(streams, "NEAR", 10)


@pytest.fixture
async def large_bus(test_bus: Bus, everything_is_large: None) -> Bus:
    """With 60 messages, and one more of its own kind, of which some were deleted."""
    await test_bus.js.update_stream(StreamConfig(name="TEST", subjects=["test.>"], allow_direct=True))
    await fill(test_bus, 0, 60)
    await test_bus.js.publish("test.rare.60", b"60", headers={"N": "60"})
    return test_bus


async def made(bus: Bus) -> list[dict[str, object]]:
    """A list of the consumers that are made from now on, as the server is asked for them."""
    asked: list[dict[str, object]] = []
    request = bus.js._api_request

    async def asking(subject: str, body: bytes = b"", timeout: float = 5) -> dict[str, Any]:
        if subject.startswith("$JS.API.CONSUMER.CREATE."):
            config = msgspec.json.decode(body)["config"]
            asked.append({key: value for key, value in config.items() if value is not None})
        return await request(subject, body, timeout=timeout)

    bus.js._api_request = asking  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize("deleted", [(), (5, 21, 22, 23, 40, 60)])
@pytest.mark.parametrize("subjects", LIVE_AND_MORE)
async def test_a_large_stream_is_read_without_having_the_server_count(
    large_bus: Bus, subjects: tuple[str, ...], deleted: tuple[int, ...]
) -> None:
    for sequence in deleted:
        await large_bus.js.delete_msg("TEST", sequence)
    there = [number for number in LIVE_AND_MORE[subjects] if number + 1 not in deleted]
    there += [60] if not subjects else []
    asked = await made(large_bus)
    for first, last in ((1, 61), (1, 30), (21, 61), (22, 40), (60, 61)):
        found = await numbers(large_bus, subjects=subjects, start_sequence=first, last_sequence=last)
        assert found == [number for number in there if first <= number + 1 <= last], (first, last)
    reads = [one async for one in read_stream(large_bus.js, "TEST", headers_only=True, start_sequence=20)]
    assert {one.data for one in reads} == {b""}
    assert reads[-1].pending == 0 and all(one.time > 1.7e9 for one in reads)
    assert {one["filter_subject"] for one in asked} == {">"}
    if deleted:
        assert {one["opt_start_seq"] for one in asked} == {1}
    assert (await large_bus.js.stream_info("TEST")).state.consumer_count == 0


FEW_OF = {
    ("test.rare.*",): [60],
    ("test.*.30", "test.*.31", "test.none.*"): [30, 31],
    ("test.odd.5", "test.even.40"): [5, 40],
    ("test.none.*",): [],
}


@pytest.mark.parametrize("one_each", [False, True])
@pytest.mark.parametrize("deleted", [(), (31, 41), (1, 61)])
@pytest.mark.parametrize("subjects", FEW_OF)
async def test_few_of_a_large_stream_are_found_without_having_the_server_search(
    large_bus: Bus, subjects: tuple[str, ...], deleted: tuple[int, ...], one_each: bool
) -> None:
    """Neither by a consumer with a filter, nor by reading what cannot have any."""
    config = StreamConfig(name="TEST", subjects=["test.>"], allow_direct=True)
    config.max_msgs_per_subject = 1 if one_each else -1
    await large_bus.js.update_stream(config)
    for sequence in deleted:
        await large_bus.js.delete_msg("TEST", sequence)
    there = [number for number in FEW_OF[subjects] if number + 1 not in deleted]
    asked = await made(large_bus)
    for first, last in ((1, None), (20, None), (1, 35), (35, 61), (42, 50)):
        found = await numbers(large_bus, subjects=subjects, start_sequence=first, last_sequence=last)
        assert found == [number for number in there if first <= number + 1 <= (last or 61)], (first, last)
    assert {one["filter_subject"] for one in asked} <= {">"}
    assert all(one["opt_start_seq"] >= min(there) + 1 for one in asked if not deleted)
    reads = [one async for one in read_stream(large_bus.js, "TEST", subjects=subjects, headers_only=True)]
    assert [(one.data, one.headers["N"]) for one in reads] == [(b"", str(number)) for number in there]
    assert all(one.time > 1.7e9 for one in reads)


async def test_who_follows_few_of_a_large_stream_gets_those_there_are_and_new_ones(large_bus: Bus) -> None:
    found: list[int] = []

    async def follow() -> None:
        async for batch in follow_stream(large_bus.js, "TEST", subjects=("test.*.7", "test.rare.*")):
            found.extend(int(read.data) for read in batch.messages)

    asked = await made(large_bus)
    following = asyncio.create_task(follow())
    try:
        await eventually(lambda: found == [7, 60], within=60)
        await large_bus.js.publish("test.rare.61", b"61")
        await fill(large_bus, 62, 20)
        await large_bus.js.publish("test.rare.82", b"82")
        await eventually(lambda: found == [7, 60, 61, 82], within=60)
    finally:
        following.cancel()
    assert {one["filter_subject"] for one in asked} == {">"}


@pytest.mark.parametrize("deleted", [(), (1, 9, 10, 61)])
@pytest.mark.parametrize(
    "subject", ["test.>", "test.even.*", "test.*.8", "test.odd.9", "test.rare.*", "test.none.*", ">"]
)
async def test_single_messages_of_a_large_stream_are_those_that_the_server_finds(
    large_bus: Bus, monkeypatch: pytest.MonkeyPatch, subject: str, deleted: tuple[int, ...]
) -> None:
    monkeypatch.setattr(streams, "LOOKED", 3)
    for sequence in deleted:
        await large_bus.js.delete_msg("TEST", sequence)

    async def look() -> list[Any]:
        js = large_bus.js
        found = [await next_message(js, "TEST", subject, start) for start in (1, 5, 40, 61, 62)]
        return [one and (one.sequence, one.subject, one.data, one.headers) for one in found]

    asked = await made(large_bus)
    mine = await look()
    assert {one["filter_subject"] for one in asked} <= {">"}
    monkeypatch.setattr(direct, "LARGE", 1_000)
    assert mine == await look()


async def test_what_cannot_be_counted_at_once_is_estimated(
    large_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    js = large_bus.js
    assert await count_messages(js, "TEST", "test.*.7") == Count(1)
    assert await count_messages(js, "TEST", "test.none.*") == Count(0)
    assert await count_messages(js, "TEST", ">") == Count(61)
    # Each of so few messages is looked at, so the estimate is right.
    assert await count_messages(js, "TEST", "test.even.*") == Count(30, exact=False)
    monkeypatch.setattr(direct, "LARGE", 1_000)
    assert await count_messages(js, "TEST", "test.even.*") == Count(30)
    assert (await js.stream_info("TEST")).state.consumer_count == 0


async def test_a_leader_that_lags_is_waited_for(test_bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has just been chosen may not have yet what the one before has told of."""
    await fill(test_bus, 0, 3)
    following = follow_stream(test_bus.js, "TEST", start_sequence=6)
    async with contextlib.aclosing(following):
        first = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0.7)
        await fill(test_bus, 3, 4)
        batch = await asyncio.wait_for(first, 10)
    assert [int(read.data) for read in batch.messages] == [5, 6]
    reading = asyncio.create_task(numbers(test_bus, start_sequence=7, last_sequence=8))
    await asyncio.sleep(0.7)
    await fill(test_bus, 7, 1)
    assert await reading == [6, 7]
    monkeypatch.setattr(streams, "LAG_SECONDS", 0.1)
    assert [batch async for batch in follow_stream(test_bus.js, "TEST", start_sequence=100)] == []


@pytest.mark.parametrize("start", [1, 5, 30, 58, 61, 62])
async def test_a_large_stream_is_followed_without_having_the_server_count(large_bus: Bus, start: int) -> None:
    for sequence in (7, 31, 59):
        await large_bus.js.delete_msg("TEST", sequence)
    asked = await made(large_bus)
    found: list[int] = []
    ends: list[int] = []

    async def follow() -> None:
        subjects = ("test.even.*", "test.odd.*")
        async for batch in follow_stream(large_bus.js, "TEST", subjects=subjects, start_sequence=start):
            found.extend(int(read.data) for read in batch.messages)
            if not batch.pending:
                ends.append(len(found))

    following = asyncio.create_task(follow())
    try:
        before = [number for number in range(start - 1, 60) if number not in (6, 30, 58)]
        await eventually(lambda: len(found) == len(before) and ends)
        await fill(large_bus, 100, 20)
        await eventually(lambda: found[-1:] == [119])
    finally:
        following.cancel()
    assert found == [*before, *range(100, 120)]
    assert ends[0] == len(before)
    started = {one.get("deliver_policy") for one in asked if one.get("opt_start_seq") != start}
    assert started <= {DeliverPolicy.NEW}


async def test_a_work_queue_is_read_without_taking_anything(bus: Bus, clean_streams: None) -> None:
    """The server refuses a second consumer of it."""
    for number in range(3):
        await bus.js.publish("gw.intake.acme", b"%d" % number, headers={"n": str(number)})
        await bus.js.publish("gw.intake.other", b"x")
    last = (await bus.js.stream_info("GW_INTAKE")).state.last_seq
    read = [one async for one in read_stream(bus.js, "GW_INTAKE", subjects=("gw.intake.acme",))]
    assert [(one.data, one.headers) for one in read] == [(b"%d" % n, {"n": str(n)}) for n in range(3)]
    assert all(one.time > 1.7e9 for one in read)
    both = [
        one.subject
        async for one in read_stream(bus.js, "GW_INTAKE", subjects=("gw.intake.a", "gw.intake.other"))
    ]
    assert both == ["gw.intake.other"] * 3
    bodies = [one.data async for one in read_stream(bus.js, "GW_INTAKE", headers_only=True)]
    assert bodies == [b""] * 6
    first = [one.data async for one in read_stream(bus.js, "GW_INTAKE", last_sequence=last - 4)]
    assert first == [b"0", b"x"]
    assert (await bus.js.stream_info("GW_INTAKE")).state.messages == 6


async def test_all_at_once_is_all_or_nothing(large_bus: Bus) -> None:
    """An answer that has not everything is none: of too many subjects, or from a server that lags behind."""
    js = large_bus.js
    several = await last_of_each_subject(js, "TEST", ["test.*.7", "test.rare.*"], 61)
    assert several is not None
    assert [(one.sequence, one.headers, one.pending) for one in several] == [
        (8, {"N": "7"}, 1),
        (61, {"N": "60"}, 0),
    ]
    assert await last_of_each_subject(js, "TEST", ["test.*.7"], 62) is None
    assert await last_of_each_subject(js, "TEST", ["test.none.*"], 61) == []
    assert await last_of_each_subject(js, "TEST", ["test.none.*"], 61, replicas=3) is None
    for number in range(1_100):
        await large_bus.client.publish(f"test.bulk.{number}", b"")
    await large_bus.client.flush(60)

    async def stored() -> bool:
        return (await position_of(js, "TEST")).last == 1_161

    await eventually(stored, within=60)
    assert await last_of_each_subject(js, "TEST", ["test.bulk.*"], 1_161) is None
    assert await numbers(large_bus, subjects=("test.odd.7", "test.rare.*")) == [7, 60]
