"""Live traffic goes first: what a replay sees of it in the real consumers, and what it then does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from tests.replay.conftest import Replays, outcomes, record, response

from groundwatch.extraction.engines.base import NoopExtractionEngine
from groundwatch.replay import worker as module
from groundwatch.replay.worker import BUSY, PIECE, LiveTrafficThrottle
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.topology import RESPONSES

pytestmark = pytest.mark.usefixtures("clean_streams")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_replay_works_in_small_pieces_while_live_traffic_flows(bus: Bus) -> None:
    await record(bus, *(response(f"r{number}") for number in range(3)))
    throttle = LiveTrafficThrottle(bus)
    assert throttle.flowing and throttle.most(200) == PIECE and throttle.most(2_000, 50) == 50
    throttle.start()
    try:
        # Events that nobody fetches are no traffic.
        await until(lambda: not throttle.flowing)
        assert throttle.most(200) == 200
        service = await bus.js.pull_subscribe_bind(consumer="extraction", stream=RESPONSES)
        for message in await service.fetch(2):
            await message.ack()
        await until(lambda: throttle.flowing)
        assert throttle.most(200) == PIECE and throttle.most(3) == 3
        await until(lambda: not throttle.flowing)
    finally:
        await throttle.stop()


async def test_a_replay_waits_while_the_services_have_much_to_do(bus: Bus) -> None:
    await record(bus, *(response(f"r{number}") for number in range(BUSY + 10)))
    service = await bus.js.pull_subscribe_bind(consumer="extraction", stream=RESPONSES)
    held = await service.fetch(5)
    throttle = LiveTrafficThrottle(bus)
    throttle.start()
    try:
        await until(lambda: not throttle._free.is_set())
        waiting = asyncio.create_task(throttle.wait())
        await asyncio.sleep(3 * module.LOOK_SECONDS)
        assert not waiting.done()
        for message in [*held, *await service.fetch(10)]:
            await message.ack()
        # As many as are let go of: the rest is no more than the services hold at any time.
        async with asyncio.timeout(30):
            await waiting
        assert throttle.waited > 0
    finally:
        await throttle.stop()


async def test_the_pause_is_a_multiple_of_the_work(bus: Bus) -> None:
    throttle = LiveTrafficThrottle(bus)
    await throttle.wait()
    before = throttle.waited
    # Nobody has looked yet, so traffic is taken to flow.
    began = time.monotonic()
    await asyncio.sleep(0.02)
    worked = time.monotonic() - began
    await throttle.wait()
    assert throttle.waited - before >= worked * (1 / module.SHARE - 1)


async def test_one_piece_is_finished_before_another_is_begun(
    replays: Replays, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveTrafficThrottle, "flowing", property(lambda self: True))
    monkeypatch.setattr(module, "SHARE", 0.9)
    stored: list[int] = []
    extract = NoopExtractionEngine.extract

    async def watched(self, responses, protocol):
        assert len(responses) <= PIECE
        stored.append((await bus.js.stream_info("GW_OUTCOMES")).state.messages)
        return await extract(self, responses, protocol)

    monkeypatch.setattr(NoopExtractionEngine, "extract", watched)
    await record(bus, *(response(f"r{number}") for number in range(100)))
    run = await replays.done("polite")
    assert run.counts.scored == len(await outcomes(bus, "polite")) == 100
    # Whenever a piece begins, everything before it is in the stream.
    assert len(stored) >= 100 // PIECE and stored == sorted(set(stored)) and stored[0] == 0
