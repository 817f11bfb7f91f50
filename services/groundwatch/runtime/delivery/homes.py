"""In which partition a response is recorded: its home, by the number of partitions that there are.

The stream of responses has in its metadata every number that there was, the present one last. Gateways go by
that and not by their own settings. An id is looked for wherever it would have been recorded under an earlier
number, so it stays a duplicate however often that grew.

A growth is a drain: while the next number is announced (`1>3`) no gateway records anything. Each has heard of
it after `LOOK` seconds; whoever provisions waits `DRAIN` seconds, so that what gateways have taken by then is
recorded where it was sent, and writes down that the number counts (`1,3`).
"""

import asyncio
import math
import time
from typing import Self

import msgspec
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from groundwatch.errors import Unavailable
from groundwatch.events import LIVE
from groundwatch.keys import home_of, in_partition
from groundwatch.protocols.base import Stage
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS, Read, own_metadata
from groundwatch.topology import ASKED, RESPONSES, subject_of

METADATA = "groundwatch-partitions"

LOOK = 5.0
"""Seconds for which a gateway goes by what it heard: before it records anything later, it asks again."""

DRAIN = 30.0
"""Seconds from the announcement on: `LOOK`, and what a gateway takes at most to place and send a response."""


class Partitions(msgspec.Struct, frozen=True):
    """The numbers of partitions that there were, the present one last, and the announced one; 0: none is."""

    numbers: tuple[int, ...] = (1,)
    announced: int = 0

    @classmethod
    def of(cls, config: StreamConfig) -> Self:
        """Those that the stream of responses has written down; one partition where it has nothing."""
        text = (config.metadata or {}).get(METADATA, "1")
        numbers, _, announced = text.partition(">")
        return cls(tuple(map(int, numbers.split(","))), int(announced or 0))

    async def write(self, js: JetStreamContext) -> None:
        text = ",".join(map(str, self.numbers)) + (f">{self.announced}" if self.announced else "")
        config = (await js.stream_info(RESPONSES)).config
        await js.update_stream(config.evolve(metadata=own_metadata(config) | {METADATA: text}))

    @property
    def last(self) -> int:
        return self.numbers[-1]

    def places(self, key: str) -> tuple[int, ...]:
        """The partitions that a key may be in; the first is where it belongs."""
        return tuple(dict.fromkeys(home_of(key, number) for number in reversed(self.numbers)))


async def places_of(bus: Bus, key: str) -> tuple[int, ...]:
    """The partitions that a response may be in, most likely first. Raises `Unavailable`."""
    return (await _look(bus)).places(key) if bus.partitions > 1 else (0,)


async def event_of(bus: Bus, stream: str, key: str, kind: str, *names: str) -> Read | None:
    """What a stream has of a response of live traffic, wherever that is. Raises `TransientError`."""
    for partition in await places_of(bus, key):
        subject = subject_of(kind, LIVE, *names, in_partition(key, partition))
        if (read := await bus.last_event(stream, subject)) is not None:
            return read
    return None


async def _look(bus: Bus) -> Partitions:
    """Raises `Unavailable`."""
    try:
        return Partitions.of((await bus.js.stream_info(RESPONSES)).config)
    except nats.js.errors.NotFoundError:
        # Nothing can be recorded, nor read: publishing says so, and what to do.
        return Partitions()
    except FAULTS as error:
        raise Unavailable(f"cannot ask how many partitions there are: {error!r}") from error


class Homes:
    """Says in which partition a gateway records."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._partitions = Partitions()
        self._heard = self._asked = -math.inf
        self._asking: asyncio.Task[Partitions] | None = None

    @property
    def problem(self) -> str:
        """Why this gateway takes less than others; empty while it does not."""
        if (there := self._partitions.last) <= self._bus.partitions:
            return ""
        return (
            f"there are {there} partitions, and this gateway knows of {self._bus.partitions}: "
            f"set nats.partitions = {there} and start it again"
        )

    async def partition(self, key: str) -> int:
        """Where a response is recorded, or belongs. Raises `Unavailable` while nobody can say."""
        partitions = await self._current()
        if number := partitions.announced:
            raise Unavailable(
                f"streams are made for {number} partitions: send it again in half a minute; where this "
                "lasts, groundwatch admin provision was killed: run it again"
            )
        home, *others = partitions.places(key)
        if max(home, *others, 0) >= self._bus.partitions:
            raise Unavailable(self.problem)
        if not others:
            return home
        held = await asyncio.gather(*(self._holds(in_partition(key, other)) for other in others))
        return next((other for other, there in zip(others, held, strict=True) if there), home)

    async def _current(self) -> Partitions:
        """What was heard less than `LOOK` seconds ago; all who wait share one question, and its failure."""
        if (now := time.monotonic()) - self._heard < LOOK:
            return self._partitions
        if self._asking is None or self._asking.done() or now - self._asked >= LOOK:
            self._asked, self._asking = now, asyncio.create_task(self._ask(now))
        # A caller that goes away takes the answer from nobody else.
        return await asyncio.shield(self._asking)

    async def _ask(self, now: float) -> Partitions:
        """What holds from when it was asked on, not from when the answer came. Raises `Unavailable`."""
        partitions = await _look(self._bus)
        if now >= self._heard:
            self._partitions, self._heard = partitions, now
        return partitions

    async def _holds(self, key: str) -> bool:
        recorded, asked = await asyncio.gather(
            self._bus.holds(RESPONSES, subject_of("recorded", LIVE, key)),
            self._bus.holds(ASKED, subject_of("asked", LIVE, Stage.CAPTIONING.value, key)),
        )
        return recorded or asked
