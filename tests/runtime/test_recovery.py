"""After a kill -9, what the killed process held is another's within 15 s; slow work is nobody else's."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.runtime.conftest import done, eventually, record, response

from groundwatch.events import ResponseRecorded
from groundwatch.runtime.delivery.work import Work
from groundwatch.topology import CONSUMERS

Works = Sequence[Work[ResponseRecorded]]

HOLDS = """
import asyncio, sys
from groundwatch.events import ResponseRecorded
from groundwatch.runtime.delivery.away import AwayJudges
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.runtime.settings import NatsSettings, RetrySettings
from groundwatch.runtime.delivery.stage import Stage
from groundwatch.topology import RESPONSES, ConsumerSpec

async def hold(works):
    print("held", len(works), flush=True)
    await asyncio.Event().wait()

async def main(url, name, ack_wait):
    bus = Bus(NatsSettings(url=url), name="stage")
    await bus.connect()
    spec = ConsumerSpec(name=name, stream=RESPONSES, filters=("gw.recorded.live.>",), description="",
                        ack_wait=ack_wait)
    metrics = Metrics()
    stage = Stage(name="extraction", consumer=spec, event=ResponseRecorded, handler=hold, bus=bus,
                  metrics=metrics, retries=RetrySettings(), batch=5, concurrency=1, timeout=1_800.0,
                  judges=AwayJudges("extraction", metrics))
    await stage.start()
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
"""


def test_what_a_killed_process_held_comes_again_within_15_seconds() -> None:
    """The server looks at its timers about once a second."""
    assert max(spec.ack_wait for spec in CONSUMERS) <= 13.0


@pytest.mark.slow
async def test_another_takes_what_a_killed_process_held(stage_factory, nats_server) -> None:
    handled: list[str] = []

    async def takes(works: Works) -> list[Any]:
        handled.extend(work.event.id for work in works)
        return [done(work) for work in works]

    ack_wait = 2.0
    other = await stage_factory(takes, name="killed", ack_wait=ack_wait, start=False)
    for number in range(5):
        await record(other.bus, response(f"r{number}"))
    killed = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLDS,
        nats_server.url,
        "killed",
        str(ack_wait),
        stdout=asyncio.subprocess.PIPE,
    )
    assert killed.stdout is not None
    try:
        assert (await asyncio.wait_for(killed.stdout.readline(), 60)).startswith(b"held")
        await other.stage.start()
        # As long as it lives it keeps what it has, however slow it is.
        await asyncio.sleep(2 * ack_wait)
        assert handled == [] and await other.held() == 5
    finally:
        os.kill(killed.pid, signal.SIGKILL)
        await killed.wait()
    began = time.monotonic()
    try:
        await eventually(other.settled, within=60)
        assert sorted(handled) == [f"r{number}" for number in range(5)]
        assert time.monotonic() - began < 15
    finally:
        await other.stage.drain(1)


async def test_an_engine_that_computes_in_threads_is_asked_once(stage_factory) -> None:
    """Two threads that never let go of the interpreter for longer than it lets them."""
    asked: Counter[str] = Counter()

    def compute() -> None:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            sum(range(1000))

    async def computes(works: Works) -> list[Any]:
        asked.update(work.event.id for work in works)
        other = threading.Thread(target=compute)
        other.start()
        await asyncio.to_thread(compute)
        other.join()
        return [done(work) for work in works]

    running = await stage_factory(computes, ack_wait=1.0, concurrency=2)
    await record(running.bus, response("r"))
    await eventually(running.settled, within=20)
    assert asked == {"r": 1}
    assert running.count("groundwatch_redeliveries_total", stage="extraction") == 0
