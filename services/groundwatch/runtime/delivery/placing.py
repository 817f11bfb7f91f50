"""Where a response belongs while the number of partitions grows.

The stream of responses says in its metadata how many partitions there were and are, and since when the last
number counts. Gateways go by that and not by their own settings, so that all of them change at one moment:
it is announced at least `AHEAD` seconds before, and around it nobody records for `SKEW` seconds. Who has not
heard of it for `STALE` seconds records nothing either. An id is looked for wherever it would have been
recorded under an earlier number, so it is a duplicate however often that grew.
"""

import asyncio
import contextlib
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
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.topology import ASKED, RESPONSES, subject_of

METADATA = "groundwatch-partitions"

LOOK = 5.0
"""Seconds after which the stream is asked again."""

START_SECONDS = 5.0
"""How long a gateway's start waits until it was asked; then each response asks."""

STALE = 20.0
AHEAD = 30.0
SKEW = 2.0
"""By which clocks of gateways, and of who provisions, may differ."""


class Counts(msgspec.Struct, frozen=True):
    """The numbers of partitions, the present one last; that counts `since` (seconds since the epoch)."""

    numbers: tuple[int, ...] = (1,)
    since: float = 0.0

    @classmethod
    def of(cls, config: StreamConfig) -> Self:
        """Those that the stream of responses has written down; one partition where it has nothing."""
        said = (config.metadata or {}).get(METADATA, "")
        if not said:
            return cls()
        numbers, _, since = said.partition("@")
        return cls(tuple(map(int, numbers.split(","))), float(since or 0))

    @property
    def said(self) -> str:
        return f"{','.join(map(str, self.numbers))}@{self.since:.3f}"

    @property
    def last(self) -> int:
        return self.numbers[-1]

    def grown(self, partitions: int, now: float, ahead: float = 0.0) -> "Counts":
        """With more of them, from a moment that everybody has heard of by then."""
        return Counts((*self.numbers, partitions), now + max(ahead, AHEAD))

    def pending(self, now: float) -> bool:
        """Whether the last number is still to come, by some clock."""
        return now < self.since + SKEW

    def changing(self, now: float) -> bool:
        """Whether one clock may say that the last number counts, and another not."""
        return bool(self.since) and abs(now - self.since) <= SKEW

    def places(self, key: str, now: float) -> tuple[int, ...]:
        """The partitions that a key may be in; the first is where it belongs now."""
        valid = self.numbers if now >= self.since else self.numbers[:-1]
        return tuple(dict.fromkeys(home_of(key, number) for number in reversed(valid)))


async def announce(js: JetStreamContext, counts: Counts) -> None:
    """Write the numbers down, where they say more than nothing written does."""
    if counts == Counts():
        return
    config = (await js.stream_info(RESPONSES)).config
    await js.update_stream(config.evolve(metadata=own_metadata(config) | {METADATA: counts.said}))


def own_metadata(config: StreamConfig) -> dict[str, str]:
    """Without what the server says of itself."""
    return {name: text for name, text in (config.metadata or {}).items() if not name.startswith("_nats.")}


async def places_of(bus: Bus, key: str) -> tuple[int, ...]:
    """The partitions that a response may be in, most likely first. Raises what NATS raises."""
    if bus.partitions == 1:
        return (0,)
    return Counts.of((await bus.js.stream_info(RESPONSES)).config).places(key, time.time())


class Placing:
    """Says in which partition a gateway records."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._counts = Counts()
        self._looked = -math.inf
        self._turn = asyncio.Lock()
        self._heard = asyncio.Event()
        self._task = SupervisedTask("gateway-partitions", self._follow)

    async def start(self) -> None:
        """Begin to look. Waits for the first time while the server answers."""
        self._task.start()
        await until_set(self._heard, START_SECONDS)

    async def stop(self) -> None:
        await self._task.stop()

    @property
    def problem(self) -> str:
        """Why this gateway will take less than others; empty while it will not."""
        return self._too_few or self._task.problem

    @property
    def _too_few(self) -> str:
        if (there := self._counts.last) <= self._bus.partitions:
            return ""
        return (
            f"there are {there} partitions, and this gateway knows of {self._bus.partitions}: "
            f"set nats.partitions = {there} and start it again"
        )

    async def partition(self, key: str) -> int:
        """Where a response is recorded, or belongs. Raises `Unavailable` while nobody can say."""
        counts = await self._current()
        now = time.time()
        if counts.changing(now):
            raise Unavailable("the number of partitions changes at this moment: send it again")
        home, *others = counts.places(key, now)
        most = max(home, *others, 0)
        if most >= self._bus.partitions:
            raise Unavailable(self._too_few)
        held = await asyncio.gather(*(self._holds(in_partition(key, other)) for other in others))
        return next((other for other, there in zip(others, held, strict=True) if there), home)

    async def _holds(self, key: str) -> bool:
        recorded, asked = await asyncio.gather(
            self._bus.holds(RESPONSES, subject_of("recorded", LIVE, key)),
            self._bus.holds(ASKED, subject_of("asked", LIVE, Stage.CAPTIONING.value, key)),
        )
        return recorded or asked

    async def _current(self) -> Counts:
        async with self._turn:
            if time.monotonic() - self._looked >= STALE:
                try:
                    await self._look()
                except FAULTS as error:
                    raise Unavailable(f"cannot ask how many partitions there are: {error!r}") from error
        return self._counts

    async def _follow(self) -> None:
        while True:
            # Whoever records something finds out by itself that it is stale.
            with contextlib.suppress(*FAULTS):
                await self._look()
            self._heard.set()
            await asyncio.sleep(LOOK)

    async def _look(self) -> None:
        began = time.monotonic()
        try:
            self._counts = Counts.of((await self._bus.js.stream_info(RESPONSES)).config)
        except nats.js.errors.NotFoundError:
            # Nothing can be recorded: publishing says so, and what to do.
            self._counts = Counts()
        self._looked = began
