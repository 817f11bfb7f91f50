"""Whether the services behind the gateway keep up, and whether there is anything behind it at all."""

import asyncio
import time

import nats.errors
import nats.js.errors

from groundwatch.gateway.intake.results import Refused
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.topology import RESPONSES

CONSUMER = "extraction"
LOOK_SECONDS = 1.0
WAIT_SECONDS = 0.1


class Backlog(SupervisedTask):
    """What waits for extraction: looked up every second, with what was sent since added."""

    def __init__(self, bus: Bus, limit: int) -> None:
        super().__init__("gateway-backlog", self._watch)
        self._bus = bus
        self._limit = limit
        self._waiting = 0
        self._sent = 0
        self._closing = False
        self._unseen = ""

    async def stop(self) -> None:
        """Look no more, and let nobody wait any longer."""
        self._closing = True
        await super().stop()

    def close(self) -> None:
        """Take nothing more: who is asked from now on refuses."""
        self._closing = True

    def sent(self) -> None:
        """Count what was recorded since the last look."""
        self._sent += 1

    @property
    def problem(self) -> str:
        """Why it is not known what waits; empty while it is."""
        return self._unseen or super().problem

    @property
    def closed(self) -> bool:
        return self._closing

    @property
    def full(self) -> bool:
        return self._waiting + self._sent > self._limit

    def refusal(self) -> Refused | None:
        if self._closing:
            return Refused(reason="unavailable", message="the gateway is going down; send it again")
        if self.full:
            message = f"more than {self._limit} responses wait to be judged; send it again later"
            return Refused(reason="backlog", message=message)
        return None

    async def room(self, deadline: float) -> Refused | None:
        """Wait for room, at most until `deadline` (of the monotonic clock); why there is none then."""
        while True:
            refusal = self.refusal()
            if refusal is None or self._closing or time.monotonic() >= deadline:
                return refusal
            await asyncio.sleep(WAIT_SECONDS)

    async def look(self) -> None:
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
