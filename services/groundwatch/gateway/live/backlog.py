"""Whether the services behind the gateway keep up, and whether there is anything behind it at all."""

from __future__ import annotations

import asyncio
import time

import nats.errors
import nats.js.errors

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.topology import RESPONSES

CONSUMER = "extraction"
LOOK_SECONDS = 1.0
WAIT_SECONDS = 0.1


class Backlog:
    """What waits for extraction: looked up every second, with what was sent since added."""

    def __init__(self, bus: Bus, limit: int) -> None:
        self._bus = bus
        self._limit = limit
        self._waiting = 0
        self._sent = 0
        self._closing = False
        self._task = SupervisedTask("gateway-backlog", self._watch)
        self._unseen = ""

    def start(self) -> None:
        """Begin to look."""
        self._task.start()

    async def stop(self) -> None:
        """Look no more, and let nobody wait any longer."""
        self._closing = True
        await self._task.stop()

    def close(self) -> None:
        """Take nothing more: who is asked from now on refuses."""
        self._closing = True

    def sent(self, number: int = 1) -> None:
        """Count what was recorded since the last look."""
        self._sent += number

    @property
    def problem(self) -> str:
        """Why it is not known what waits; empty while it is."""
        return self._unseen or self._task.problem

    @property
    def closed(self) -> bool:
        """Whether the gateway is going down."""
        return self._closing

    @property
    def full(self) -> bool:
        """Whether no more should be taken now."""
        return self._waiting + self._sent > self._limit

    def refusal(self) -> str:
        """What to tell a caller while it is full."""
        return f"more than {self._limit} responses wait to be judged; send it again later"

    async def room(self, deadline: float) -> bool:
        """Wait until there is room, at most until `deadline` (of the monotonic clock)."""
        while self.full:
            if self._closing or time.monotonic() >= deadline:
                return False
            await asyncio.sleep(WAIT_SECONDS)
        return True

    async def look(self) -> None:
        """Ask the server once."""
        before = self._sent
        try:
            info = await self._bus.js.consumer_info(RESPONSES, CONSUMER)
        except nats.js.errors.NotFoundError:
            # Recording is still safe: the consumer, once made, begins with the first response.
            self._unseen = (
                f"consumer {CONSUMER} or stream {RESPONSES} does not exist: run groundwatch admin provision"
            )
            return
        except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError) as error:
            self._unseen = f"NATS does not answer: {error!r}"
            return
        self._unseen = ""
        self._waiting = info.num_pending or 0
        self._sent -= before

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)
