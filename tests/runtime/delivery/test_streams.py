"""Reading streams to their end and beyond, through restarts."""

from __future__ import annotations

import asyncio

import nats.js.errors
import pytest
from nats.js.api import StreamConfig
from tests.runtime.conftest import eventually

from groundwatch.errors import TransientError
from groundwatch.runtime.delivery import streams
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import follow_stream, read_batches, read_stream
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


@pytest.mark.parametrize("end", ("stop", "kill"))
async def test_goes_on_behind_the_last_message_after_a_restart(
    own_server: NatsServer, test_bus: Bus, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(streams, "MOST", 10)
    monkeypatch.setattr(streams, "WAIT", 1.0)
    await fill(test_bus, 0, 100)
    found = []
    async for read in read_stream(test_bus.js, "TEST"):
        found.append(int(read.data))
        if len(found) == 35:
            if end == "kill":
                own_server.kill()
                await own_server.wait()
                await own_server.restart()
            else:
                await own_server.stop()
                await own_server.start()
    assert found == list(range(100))


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
