"""Fetching: at once, honestly, and with nothing left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec
import pytest
from nats.aio.msg import Msg
from tests.runtime.conftest import done, eventually, record, response
from tests.support.frozen import frozen

from groundwatch.events import ResponseRecorded
from groundwatch.extraction.engines.base import NoopExtractionEngine
from groundwatch.extraction.service import ExtractionService
from groundwatch.runtime.delivery import pull as pulling
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.pull import WAIT, PullSubscriber
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.services import service as services
from groundwatch.runtime.settings import NatsSettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import EXTRACTED, RESPONSES

Works = Sequence[Work[ResponseRecorded]]

PATIENT = b'{"batch": 1, "expires": 9000000000}'
"""A request for one message that waits until there is one."""


async def all_done(works: Works) -> list[Result]:
    return [done(work) for work in works]


async def test_a_single_message_is_handled_at_once(stage_factory) -> None:
    handled = asyncio.Event()

    async def handler(works: Works) -> list[Result]:
        handled.set()
        return [done(work) for work in works]

    running = await stage_factory(handler, batch=200)
    times = []
    for number in range(5):
        await asyncio.sleep(0.1)
        handled.clear()
        began = time.monotonic()
        await record(running.bus, response(f"r{number}"))
        await asyncio.wait_for(handled.wait(), WAIT * 2)
        times.append(time.monotonic() - began)
    assert min(times) < WAIT / 4


async def test_what_waits_comes_in_batches(stage_factory) -> None:
    sizes: list[int] = []

    async def handler(works: Works) -> list[Result]:
        sizes.append(len(works))
        return [done(work) for work in works]

    running = await stage_factory(handler, batch=50, start=False)
    for number in range(120):
        await record(running.bus, response(f"r{number}"))
    await running.stage.start()
    try:
        await eventually(running.settled)
    finally:
        await running.stage.drain(0.1)
    assert sizes == [50, 50, 20]


async def test_a_full_consumer_is_busy_and_not_a_problem(stage_factory) -> None:
    release = asyncio.Event()

    async def handler(works: Works) -> list[Result]:
        await release.wait()
        return [done(work) for work in works]

    running = await stage_factory(handler, batch=1, concurrency=3, max_ack_pending=2)
    for number in range(6):
        await record(running.bus, response(f"r{number}"))
    await eventually(lambda: running.stage.in_flight == 2)
    await asyncio.sleep(0.5)
    assert [pull.problem for pull in running.stage.pulls] == ["", "", ""]
    release.set()
    await eventually(running.settled)


@pytest.fixture
async def service(bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch):
    """A started extraction service that looks after its consumers often."""
    monkeypatch.setattr(services, "MONITOR_SECONDS", 0.1)
    monkeypatch.setattr(pulling, "PAUSE", 0.1)
    made = ExtractionService(Settings(), bus, Metrics(), NoopExtractionEngine())
    await made.start()
    yield made
    await made.drain(0.1)


async def test_a_deleted_consumer_is_told_and_its_return_noticed(
    service: ExtractionService, bus: Bus
) -> None:
    await eventually(lambda: not service.problems())
    await bus.js.delete_consumer(RESPONSES, "extraction")
    await eventually(lambda: any("run groundwatch admin provision" in found for found in service.problems()))
    assert all("consumer extraction" in found for found in service.problems())
    # The socket is up all the while.
    assert bus.connected
    assert (
        service.metrics.registry.get_sample_value("groundwatch_consumer_up", {"consumer": "extraction"}) == 0
    )
    await provision(bus.js)
    await eventually(lambda: not service.problems())
    await record(bus, response("r"))

    async def extracted() -> int:
        return int((await bus.js.stream_info(EXTRACTED)).state.messages)

    await eventually(extracted)


async def test_a_frozen_server_is_a_problem(own_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "WAIT", 0.3)
    monkeypatch.setattr(pulling, "GRACE", 0.2)
    bus = Bus(NatsSettings(url=own_server.url), name="test")
    await bus.connect()
    await provision(bus.js)
    service = ExtractionService(Settings(), bus, Metrics(), NoopExtractionEngine())
    await service.start()
    with frozen(own_server.pid):
        await eventually(lambda: any("no answer from the server" in found for found in service.problems()))
    await eventually(lambda: not service.problems())
    await service.drain(1)
    await bus.close()


async def test_a_process_that_stood_still_does_not_blame_the_server(
    stage_factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer lies in the socket when the process goes on, and its time has long been up."""
    monkeypatch.setattr(pulling, "WAIT", 0.5)
    monkeypatch.setattr(pulling, "GRACE", 0.2)
    running = await stage_factory(all_done)
    blamed = []

    async def failed(error: Exception) -> None:
        blamed.append(error)

    for pull in running.stage.pulls:
        monkeypatch.setattr(pull, "_failed", failed)
    for _ in range(5):
        await asyncio.sleep(0.3)
        time.sleep(1.0)  # noqa: ASYNC251
    assert not blamed


async def test_requests_do_not_pile_up_while_the_server_is_away(
    own_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PAUSE", 0.05)
    monkeypatch.setattr(pulling, "WAIT", 0.3)
    bus = Bus(NatsSettings(url=own_server.url), name="test")
    await bus.connect()
    await provision(bus.js)
    service = ExtractionService(Settings(), bus, Metrics(), NoopExtractionEngine())
    await service.start()
    await own_server.stop()
    await eventually(lambda: any("not connected" in found for found in service.problems()))
    sent = bus.client.stats["out_msgs"]
    await asyncio.sleep(0.5)
    assert bus.client.stats["out_msgs"] - sent < 5
    await own_server.start()
    await eventually(lambda: not service.problems())
    await service.drain(1)
    await bus.close()


class Loop:
    """One loop on a stage's consumer; its handler waits until it may go on."""

    def __init__(self, bus: Bus, consumer: str) -> None:
        self.batches: list[list[Msg]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.breaks = False
        self.pull = PullSubscriber(
            bus.broker,
            stream=RESPONSES,
            consumer=consumer,
            subject="gw.recorded.live.>",
            batch=10,
            handler=self._handle,
        )

    async def _handle(self, messages: list[Msg]) -> None:
        self.batches.append(messages)
        await self.go_on.wait()
        for message in messages:
            await message.ack()
        if self.breaks:
            raise ValueError("a bug")


async def test_what_the_subscriber_takes_for_granted_of_faststream(bus: Bus, stage_factory) -> None:
    """The handler has messages as they came; its errors end no loop; stopping ends it."""
    running = await stage_factory(all_done, start=False)
    loop = Loop(bus, running.spec.name)
    assert loop.pull in bus.broker.subscribers and not loop.pull.running
    await loop.pull.start()
    assert loop.pull.running and len(loop.pull.tasks) == 1
    await record(bus, response("a"))
    await eventually(lambda: len(loop.batches) == 1)
    (message,) = loop.batches[0]
    assert message.metadata.stream == RESPONSES and msgspec.json.decode(message.data)["id"] == "a"

    loop.breaks = True
    await record(bus, response("b"))
    await eventually(lambda: len(loop.batches) == 2)
    loop.breaks = False
    await record(bus, response("c"))
    await eventually(lambda: len(loop.batches) == 3)
    await loop.pull.drain()
    await loop.pull.stop()
    assert not loop.pull.running and not loop.pull.tasks


async def test_a_late_answer_is_not_taken_for_the_next_requests(bus: Bus, stage_factory) -> None:
    running = await stage_factory(all_done, start=False)
    loop = Loop(bus, running.spec.name)
    await loop.pull.start()
    # What an earlier request of this loop, given up, is still answered with.
    await bus.client.publish(f"{loop.pull._inbox}.0", b"", headers={"Status": "408"})
    await bus.client.publish(
        f"{loop.pull._inbox}.0", b"", headers={"Status": "409", "Description": "Consumer Deleted"}
    )
    await bus.client.flush()
    await record(bus, response("r"))
    await eventually(lambda: len(loop.batches) == 1)
    assert len(loop.batches[0]) == 1
    assert loop.pull.problem == ""
    await loop.pull.drain()
    await loop.pull.stop()


async def test_what_comes_when_nobody_waits_is_handed_back(bus: Bus, stage_factory) -> None:
    running = await stage_factory(all_done, start=False, ack_wait=30.0)
    loop = Loop(bus, running.spec.name)
    loop.go_on.clear()
    await loop.pull.start()
    await record(bus, response("first"))
    await eventually(lambda: len(loop.batches) == 1)
    await record(bus, response("r"))
    # As for a request that was given up, whose loop is busy with something else by now.
    await bus.client.publish(loop.pull._asking, PATIENT, f"{loop.pull._inbox}.0")
    subscription = await bus.js.pull_subscribe_bind(consumer=running.spec.name, stream=RESPONSES)
    (message,) = await subscription.fetch(1, timeout=5)
    assert message.metadata.num_delivered == 2
    await message.ack()
    loop.go_on.set()
    await loop.pull.drain()
    await loop.pull.stop()


async def test_a_drain_hands_back_what_came_too_late(bus: Bus, stage_factory) -> None:
    running = await stage_factory(all_done, start=False, ack_wait=30.0)
    loop = Loop(bus, running.spec.name)
    await loop.pull.start()
    await asyncio.wait_for(loop.pull.drain(), 5)
    await record(bus, response("r"))
    await bus.client.publish(loop.pull._asking, PATIENT, f"{loop.pull._inbox}.0")
    subscription = await bus.js.pull_subscribe_bind(consumer=running.spec.name, stream=RESPONSES)
    (message,) = await subscription.fetch(1, timeout=5)
    assert message.metadata.num_delivered == 2
    await message.ack()
    assert loop.batches == []
    await loop.pull.stop()
