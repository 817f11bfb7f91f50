"""Whose turn it is to ask the second judge, and how many answers are left to it in this hour.

One document, changed by compare-and-set, has both: so replicas do not ask about the same answer, and what an
hour may cost holds over all of them and over restarts. A turn is a lease: one that dies lets go of it in
`LEASE_SECONDS`.
"""

import asyncio
import secrets
import time
from collections.abc import Callable

import msgspec

from groundwatch.errors import UNDECODED, Unavailable
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.topology import QUEUES_BUCKET

KEY = "second-opinion"
LEASE_SECONDS = 30.0
TRIES = 20
HOUR = 3600.0


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks the second judge, `until` when (seconds since the epoch), and how many answers were `spent` in
    which `hour` since the epoch."""

    holder: str = ""
    until: float = 0.0
    hour: int = 0
    spent: int = 0


class Turns:
    """This process's part in it. Everything raises `Unavailable` when the server does not answer."""

    def __init__(self, bus: Bus, per_hour: int, clock: Callable[[], float] = time.time) -> None:
        self._bucket = Bucket(bus, QUEUES_BUCKET)
        self._per_hour = per_hour
        self._clock = clock
        self._me = secrets.token_hex(8)
        self._lock = asyncio.Lock()
        self._known = Turn()

    @property
    def ours(self) -> bool:
        """Whether it is our turn, as far as we know."""
        return self._known.holder == self._me and self._clock() < self._known.until

    @property
    def left(self) -> int:
        """How many answers are left in this hour, as far as we know."""
        return self._left(self._known)

    async def take(self) -> bool:
        """Take the turn, or hold it for longer; False while it is another's."""

        def change(turn: Turn) -> Turn:
            now = self._clock()
            if turn.holder != self._me and turn.until > now:
                return turn
            if turn.holder == self._me and turn.until > now + LEASE_SECONDS / 2:
                return turn
            return msgspec.structs.replace(turn, holder=self._me, until=now + LEASE_SECONDS)

        await self._change(change)
        return self.ours

    async def spend(self, wanted: int) -> int:
        """Take so many answers out of this hour, or as many as are left; how many, none on another's turn."""
        taken = 0

        def change(turn: Turn) -> Turn:
            nonlocal taken
            now = self._clock()
            taken = min(wanted, self._left(turn)) if turn.holder == self._me else 0
            if not taken:
                return turn
            hour = int(now // HOUR)
            spent = turn.spent if turn.hour == hour else 0
            until = now + LEASE_SECONDS
            return msgspec.structs.replace(turn, hour=hour, spent=spent + taken, until=until)

        await self._change(change)
        return taken

    async def give_back(self, number: int) -> None:
        """Answers that were spent and not asked about; those of an hour that is over are lost."""

        def change(turn: Turn) -> Turn:
            if not number or turn.hour != int(self._clock() // HOUR):
                return turn
            return msgspec.structs.replace(turn, spent=max(0, turn.spent - number))

        await self._change(change)

    async def end(self) -> None:
        """Let another one have the turn."""

        def change(turn: Turn) -> Turn:
            return msgspec.structs.replace(turn, until=0.0) if turn.holder == self._me else turn

        await self._change(change)

    def _left(self, turn: Turn) -> int:
        spent = turn.spent if turn.hour == int(self._clock() // HOUR) else 0
        return max(0, self._per_hour - spent)

    async def _change(self, change: Callable[[Turn], Turn]) -> None:
        async with self._lock:
            for _ in range(TRIES):
                found = await self._bucket.get(KEY)
                turn, revision = Turn(), 0
                if found is not None:
                    revision = found.revision
                    try:
                        turn = msgspec.json.decode(found.data, type=Turn)
                    except UNDECODED:
                        # Of another version: what it says of the hour is lost.
                        turn = Turn()
                changed = change(turn)
                if changed == turn or await self._bucket.put(KEY, ENCODER.encode(changed), revision):
                    self._known = changed
                    return
            raise Unavailable("others change whose turn it is at this moment")
