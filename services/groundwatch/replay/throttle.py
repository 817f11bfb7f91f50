"""Live traffic goes first: a replay waits while the services have work, and keeps to the pace asked for."""

import asyncio
import contextlib
import os
import time

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import RETRY
from groundwatch.topology.partitions import consumers

LOOK_SECONDS = 0.25
"""Between two looks, each a question for every consumer, while no traffic is seen to flow."""

LOOK_SECONDS_FLOWING = 1.0
BUSY = 20
"""Events that wait for, or are held by, the services of live traffic: a replay gives way from here on."""

FLOWING = 2.5
"""Seconds after live traffic was last seen during which a replay works in turns."""

SHARE = 0.1
"""How much of the time it works while live traffic flows."""

PIECE = 3
"""Events that it works at between two pauses then: what a live event waits for, at most."""

FIRST_SECONDS = 0.1
"""Until the second look, which is the first that can see traffic flow, it is taken to flow."""

NICE = 5


def prefer_others() -> None:
    """Let the operating system give this whole process less than others: for one that only replays."""
    with contextlib.suppress(OSError):
        os.nice(max(0, NICE - os.nice(0)))


class LiveTrafficThrottle:
    """Watches the consumers of live traffic; `wait` returns when a replay may go on."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._watching = SupervisedTask("replay-throttle", self._watch)
        self._stopped = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._seen: dict[str, int] = {}
        self._looks = 0
        self._flowed = -FLOWING
        self._last = time.monotonic()
        self.waited = 0.0

    def start(self) -> None:
        """Begin to watch."""
        self._watching.start()

    async def stop(self) -> None:
        """Watch no more."""
        # Told and not cancelled: a cancellation can be lost in nats-py while it waits for an answer.
        self._stopped.set()
        await self._watching.finish()
        self._free.set()

    @property
    def flowing(self) -> bool:
        """Whether live traffic flows: then one piece is finished before another is begun."""
        return self._looks < 2 or time.monotonic() - self._flowed < FLOWING

    def most(self, wanted: int, flowing: int = PIECE) -> int:
        """How many events may be worked at, or read, at a time: at most `flowing` while traffic flows."""
        return min(wanted, flowing) if self.flowing else wanted

    async def wait(self) -> None:
        """Wait until live traffic leaves room. Called before each piece, with the one before it finished
        while traffic flows."""
        began = time.monotonic()
        if not self._free.is_set():
            await self._free.wait()
        elif self.flowing:
            # Some times as long a pause as the piece before took, so that the services find an idle core.
            await asyncio.sleep(min((began - self._last) * (1 / SHARE - 1), 0.5))
        self._last = time.monotonic()
        self.waited += self._last - began

    async def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                waiting = await self._look()
            except FAULTS as error:
                logger.debug("throttle.unknown", error=repr(error))
                waiting = 0
            self._looks += 1
            if waiting > BUSY:
                self._free.clear()
            else:
                self._free.set()
            pause = FIRST_SECONDS
            if self._looks >= 2:
                pause = LOOK_SECONDS_FLOWING if self.flowing else LOOK_SECONDS
            await until_set(self._stopped, pause)

    async def _look(self) -> int:
        """How many events wait for the services or are in their hands.

        What nobody fetches is not waited for: it would be for ever.
        """
        waiting = 0
        for spec in consumers(self._bus.partitions):
            if spec.stream == RETRY:
                continue
            info = await self._bus.js.consumer_info(spec.stream, spec.name)
            if info.num_waiting or info.num_ack_pending:
                waiting += (info.num_pending or 0) + (info.num_ack_pending or 0)
            delivered = int(info.delivered.consumer_seq) if info.delivered else 0
            if self._seen.setdefault(spec.name, delivered) != delivered:
                self._seen[spec.name] = delivered
                self._flowed = time.monotonic()
        return waiting


class Pace:
    """Keeps the distances at which responses were recorded, `speed` times as fast; 0: no distances."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._began = 0.0
        self._first: float | None = None

    def left(self, recorded_at: float) -> float:
        """Seconds until it is this one's turn; the first one's is at once."""
        if not self._speed:
            return 0.0
        if self._first is None:
            self._first, self._began = recorded_at, time.monotonic()
        due = self._began + (recorded_at - self._first) / self._speed
        return due - time.monotonic()
