"""The scaler's view: real messages in the real streams, and the JSON that the server's monitoring port gives.

One message stands for `events_per_message` events, rounded up, so that a backlog is never told smaller than
it is. What waits in the simulation is published and not delivered, what is in hand is delivered and not
acknowledged, what is done is acknowledged: to the durable consumers that `groundwatch admin provision` makes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any

import httpx
from nats.aio.msg import Msg

from autoscaling.rules import lag
from groundwatch.errors import CheckFailed
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.topology import (
    consumer,
    subject_of,
)

ACCOUNT = "$G"
BODY = b"{}"
PAUSE = 0.002
PATIENCE = 2_000


def subject_for(stage: str, key: str) -> str:
    """A subject that this stage's consumer takes."""
    match stage:
        case "extraction":
            return subject_of("recorded", "live", key)
        case "matching" | "verification":
            return subject_of("extracted", "live", stage, "faithscore", key)
        case "scoring":
            return subject_of("judged", "live", stage, "faithscore", key)
    raise ValueError(f"stage {stage} is in no line here")


class Mirror:
    """The backlog of one stage as real messages."""

    def __init__(self, bus: Bus, stage: str, events_per_message: int) -> None:
        self.stage = stage
        self.spec = consumer(stage)
        self.messages = 0
        self._bus = bus
        self.scale = events_per_message
        self._published = 0
        self._acknowledged = 0
        self._held: deque[Msg] = deque()
        self._subscription: Any = None

    async def start(self) -> None:
        """Bind to the durable consumer."""
        self._subscription = await self._bus.js.pull_subscribe_bind(
            consumer=self.spec.name, stream=self.spec.stream
        )

    def expected(self, backlog: int) -> int:
        """Messages that stand for this backlog."""
        return -(-backlog // self.scale)

    async def show(self, backlog: int, in_hand: int, finished: int) -> None:
        """Bring the stream to this state; `finished` events have left the stage since the beginning."""
        wanted = self.expected(backlog)
        acknowledged = max(self._acknowledged, finished // self.scale, self._published - wanted)
        await self._publish(acknowledged + wanted - self._published)
        held = min(wanted, self.expected(in_hand))
        await self._fetch(acknowledged + held - self._acknowledged - len(self._held))
        await self._acknowledge(acknowledged - self._acknowledged)

    async def _publish(self, count: int) -> None:
        for number in range(count):
            self._published += 1
            subject = subject_for(self.stage, f"simulated-{self._published}")
            if number < count - 1:
                await self._bus.client.publish(subject, BODY)
            else:
                # A connection's messages are taken in order: with the last confirmed, all are in.
                await self._bus.js.publish(subject, BODY, timeout=30)
        self.messages += max(count, 0)

    async def _fetch(self, count: int) -> None:
        while count > 0:
            got = await self._subscription.fetch(min(count, 1_000), timeout=30)
            self._held.extend(got)
            count -= len(got)

    async def _acknowledge(self, count: int) -> None:
        for number in range(count):
            message = self._held.popleft()
            if number < count - 1:
                await message.ack()
            else:
                await message.ack_sync(timeout=30)
        self._acknowledged += max(count, 0)


class Monitor:
    """What KEDA asks: the server's monitoring port."""

    def __init__(self, server: NatsServer) -> None:
        self._http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.monitor_port}", timeout=30)
        self.reads = 0
        self.too_early = 0

    async def read(self) -> dict[str, Any]:
        """The JSON, by the same query as KEDA's."""
        reply = await self._http.get(f"/jsz?acc={ACCOUNT}&consumers=true&config=true")
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()
        return found

    async def settled(self, expected: Mapping[str, int]) -> dict[str, int]:
        """The lag of each stage, in messages, once the server has counted everything that it has confirmed.

        It confirms a message a moment before it counts it, which is no time at all in the simulation. Raises
        `CheckFailed` when it goes on telling another backlog than the one put there.
        """
        for _ in range(PATIENCE):
            found = await self.read()
            lags = {stage: lag_of(found, stage) for stage in expected}
            if lags == expected:
                self.reads += 1
                return lags
            self.too_early += 1
            await asyncio.sleep(PAUSE)
        raise CheckFailed(f"the server tells a backlog of {lags} messages where {dict(expected)} were put")

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()


def lag_of(jsz: dict[str, Any], stage: str) -> int:
    """The lag of a stage's durable consumer, in messages."""
    spec = consumer(stage)
    return lag(jsz, stream=spec.stream, consumer=spec.name, account=ACCOUNT)
