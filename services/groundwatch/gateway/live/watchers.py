"""Who watches live scores: each with a queue of its own, so that nobody can hold up the others."""

import asyncio
import contextlib
from collections import deque
from typing import NamedTuple

import msgspec

from groundwatch.events import ResponseScored
from groundwatch.gateway.callers import Filter

QUEUE = 1_000
TOGETHER = 64


class Missed(msgspec.Struct, frozen=True):
    """So many outcomes were left out because they were not read in time; those behind `after` are kept."""

    count: int
    after: int


class Heartbeat(msgspec.Struct, frozen=True):
    """Nothing for a while: what was wanted up to `position` has been sent."""

    position: int


class Shown(NamedTuple):
    """An outcome with its sequence in the stream and as it stands there."""

    sequence: int
    event: ResponseScored
    data: bytes


class Watcher:
    """One who watches: a bounded queue, and how many did not fit.

    What is at `after` or before it was seen already, perhaps at a gateway that had read further.
    """

    def __init__(self, wanted: Filter, after: int) -> None:
        self.wanted = wanted
        self.after = after
        self.awake = asyncio.Event()
        self._queue: deque[Shown] = deque()
        self._missed = 0
        self._last = 0

    def offer(self, shown: Shown) -> None:
        """Take an outcome, or count it as missed until the queue has been emptied."""
        if shown.sequence <= self.after:
            return
        if self._missed or len(self._queue) >= QUEUE:
            self._missed += 1
        else:
            self._queue.append(shown)
        self.awake.set()

    async def next(self, timeout: float) -> list[Shown | Missed]:
        """What to send next, with what was missed behind it; nothing if none came for `timeout` seconds."""
        if not self._queue and not self._missed:
            self.awake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self.awake.wait()
        found: list[Shown | Missed] = []
        while self._queue and len(found) < TOGETHER:
            self._last = self._queue[0].sequence
            found.append(self._queue.popleft())
        if not self._queue and self._missed:
            found.append(Missed(self._missed, self._last))
            self._missed = 0
        return found


def frame(item: Shown | Missed | Heartbeat) -> bytes:
    """As a server-sent event."""
    match item:
        case Shown():
            return b"id: %d\nevent: outcome\ndata: %b\n\n" % (item.sequence, item.data)
        case Missed():
            return b'event: missed\ndata: {"count":%d,"since":%d}\n\n' % (item.count, item.after)
    return b": heartbeat\n\n"
