"""Whether a stream is still the one that was archived.

A NATS server that lost its latest messages, or was restored from a backup, gives their sequences to others.
Those would pass for archived, and would leave their stream unread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from groundwatch.errors import TransientError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import Read, position_of
from groundwatch.runtime.delivery.unanswered import message_from

if TYPE_CHECKING:
    from groundwatch.archive.events import Events

PRECISION = 0.001
"""Seconds by which the time of one message may differ: it is rounded in the table."""


class Continuity:
    """Compares the last message that was archived of each stream with the one that the stream has there."""

    def __init__(self, bus: Bus, events: Callable[[], Events]) -> None:
        self._bus = bus
        self._events = events
        self._last: dict[tuple[str, int], tuple[int, float]] = {}

    async def check(self, stream: str) -> int:
        """When the stream was created. Raises `TransientError` where it has gone back, and what NATS and the
        archive raise."""
        at = await position_of(self._bus.js, stream)
        last = self._last.get((stream, at.created))
        if last is None:
            last = await asyncio.to_thread(lambda: self._events().newest(stream, at.created))
            if last is None:
                return at.created
            self._last[stream, at.created] = last
        sequence, time = last
        found = await message_from(self._bus.js, stream, sequence) if sequence <= at.last else None
        other = found is not None and found[0] == sequence and abs(found[1] - time) > PRECISION
        if other or sequence > at.last:
            raise TransientError(
                f"{stream} is not what was archived, from {sequence} on at the latest: NATS came back with "
                "an older state. Restore the archive as of that time, or name an empty archive.url"
            )
        return at.created

    async def go_on(self, stream: str, latest: Read) -> None:
        """The same, before what ends with `latest` is archived."""
        created = await self.check(stream)
        self._last[stream, created] = (latest.sequence, latest.time)
