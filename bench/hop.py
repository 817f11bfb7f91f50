"""What a hop costs: a cheap stage through our runtime against a raw nats-py loop, in one run.

Both read the same recorded events from the same server, decode them, publish one event each and
acknowledge. Rounds alternate, so that a noisy machine disturbs both alike; what counts is the client's
CPU time for a message, and the ratio of the medians.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from nats.js.api import AckPolicy, ConsumerConfig

from groundwatch.events import Reference, ResponseRecorded
from groundwatch.runtime.delivery.away import AwayJudges
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.stage import Stage
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings, RetrySettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import EXTRACTED, HEADER_PROTOCOLS, RESPONSES, ConsumerSpec, subject_of

ANSWER = (
    "The image features a young woman riding a brown horse along a sandy beach, with gentle waves "
    "rolling in behind them. "
)


def recorded(number: int) -> ResponseRecorded:
    """An event of about 1 KB."""
    return ResponseRecorded(
        id=f"bench-{number}",
        model="bench",
        answer=ANSWER * 6,
        prompt="Describe this image in detail.",
        reference=Reference(objects=("woman", "horse", "beach", "waves")),
        protocols=("faithscore",),
        recorded_at=1.0,
    )


async def fill(bus: Bus, first: int, count: int) -> None:
    """Record `count` events."""
    waiting = []
    for number in range(first, first + count):
        event = recorded(number)
        waiting.append(
            await bus.start_create(
                Outgoing(
                    subject=subject_of("recorded", "live", event.key),
                    payload=ENCODER.encode(event),
                    message_id=event.key,
                    headers={HEADER_PROTOCOLS: "faithscore"},
                )
            )
        )
        if len(waiting) >= 1_000:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)


async def raw_round(bus: Bus, count: int) -> float:
    """CPU seconds of the raw loop for `count` messages."""
    subscription = await bus.js.pull_subscribe_bind(consumer="raw", stream=RESPONSES)
    decoder = msgspec.json.Decoder(ResponseRecorded)
    began = time.process_time()
    done = 0
    while done < count:
        messages = await subscription.fetch(min(100, count - done), timeout=5)
        waiting = []
        for message in messages:
            event = decoder.decode(message.data)
            waiting.append(
                await bus.js.publish_async(f"gw.extracted.raw.x.{event.key}", ENCODER.encode(event))
            )
        for future in waiting:
            await future
        for message in messages:
            await message.ack()
        done += len(messages)
    spent = time.process_time() - began
    await subscription.unsubscribe()
    return spent


class Counting:
    """The cheapest handler there is: the event itself, on to the next stage."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.done = asyncio.Event()

    async def __call__(self, works: Sequence[Work[ResponseRecorded]]) -> Sequence[Result]:
        return [Result(publications=(self._sent_on(work.event),)) for work in works]

    def _sent_on(self, event: ResponseRecorded) -> Outgoing:
        return Outgoing(
            subject=f"gw.extracted.ours.x.{event.key}",
            payload=ENCODER.encode(event),
            message_id=event.key,
            counted=self._counted,
        )

    def _counted(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.done.set()


async def runtime_round(settings: NatsSettings, count: int) -> float:
    """CPU seconds of our runtime for `count` messages, its start and drain left out."""
    bus = Bus(settings, name="bench-stage")
    await bus.connect()
    counting = Counting(count)
    metrics = Metrics()
    stage: Stage[Any] = Stage(
        name="bench",
        consumer=ConsumerSpec(name="ours", stream=RESPONSES, filters=("gw.recorded.live.>",), description=""),
        event=ResponseRecorded,
        handler=counting,
        bus=bus,
        metrics=metrics,
        retries=RetrySettings(),
        batch=200,
        concurrency=2,
        timeout=1_800.0,
        judges=AwayJudges("bench", metrics),
    )
    began = time.process_time()
    await stage.start()
    await asyncio.wait_for(counting.done.wait(), 120)
    spent = time.process_time() - began
    await stage.drain(5)
    await bus.close()
    return spent


async def measure(*, messages: int = 10_000, rounds: int = 5) -> dict[str, Any]:
    """Alternate the two; medians over rounds. Times are client CPU microseconds for a message."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as folder:
        server = NatsServer(Path(folder))
        await server.start()
        try:
            settings = NatsSettings(url=server.url)
            bus = Bus(settings, name="bench")
            await bus.connect()
            await provision(bus.js)
            for durable in ("raw", "ours"):
                await bus.js.add_consumer(
                    RESPONSES,
                    ConsumerConfig(
                        durable_name=durable, ack_policy=AckPolicy.EXPLICIT, max_ack_pending=5_000
                    ),
                )
            raw, ours = [], []
            for number in range(rounds + 1):
                await fill(bus, number * messages, messages)
                first = await raw_round(bus, messages)
                second = await runtime_round(settings, messages)
                if number:  # The first round warms caches up.
                    raw.append(first / messages * 1e6)
                    ours.append(second / messages * 1e6)
                await bus.js.purge_stream(EXTRACTED)
            await bus.close()
        finally:
            await server.stop()
    return {
        "messages": messages,
        "rounds": rounds,
        "raw_us": round(statistics.median(raw), 1),
        "runtime_us": round(statistics.median(ours), 1),
        "ratio": round(statistics.median(ours) / statistics.median(raw), 3),
    }
