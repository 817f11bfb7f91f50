"""Whether a stream is still the one that was archived.

A NATS server that lost its latest messages, or was restored from a backup, gives their sequences to others.
Those would pass for archived, and would leave their stream unread. And a stream that was restored through the
server's API counts as made then: it is known again by its messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from groundwatch.errors import TransientError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.marks import Mark, has_gone_back, is_same, label
from groundwatch.runtime.delivery.streams import FAULTS, LABEL, Position, Read, position_of
from groundwatch.runtime.stores import repeats
from groundwatch.runtime.telemetry.logs import logger

if TYPE_CHECKING:
    from groundwatch.archive.events import Events

COMPARED = 20
"""Messages that are looked at, at the most, to tell whether a stream is one that was archived."""


class Continuity:
    """Knows streams again, and compares the last message that was archived of each with what it has there."""

    def __init__(self, bus: Bus, events: Callable[[], Events]) -> None:
        self._bus = bus
        self._events = events
        self._last: dict[tuple[str, int], Mark] = {}
        self._turn = asyncio.Lock()

    async def position(self, stream: str) -> Position:
        """Where a stream stands that is labelled, or is labelled now. Raises `TransientError` where nobody
        can tell which one it is, and what NATS and the archive raise."""
        async with self._turn:
            at = await position_of(self._bus.js, stream)
            if at.labelled:
                return at
            created = await self._creation(stream, at)
            try:
                await label(self._bus.js, stream, created)
            except FAULTS as error:
                why = (
                    f"cannot label {stream} with when it was created ({LABEL}={created}): {error!r}. With "
                    "users of NATS, run groundwatch admin auth of this version"
                )
                if created != at.made:
                    raise TransientError(why) from error
                logger.warning("archive.not_labelled", stream=stream, meaning=why)
                return at
            if created != at.made:
                logger.warning(
                    "archive.restored", stream=stream, created=created, meaning="it is the one from before"
                )
            return await position_of(self._bus.js, stream)

    async def check(self, stream: str) -> Position:
        """Where the stream stands. Raises `TransientError` where it has gone back, and what `position`
        raises."""
        at = await self.position(stream)
        last = self._last.get((stream, at.created))
        if last is None:
            last = await asyncio.to_thread(lambda: self._events().newest(stream, at.created))
            if last is None:
                return at
            self._last[stream, at.created] = last
        if await has_gone_back(self._bus.js, stream, at, last):
            raise TransientError(
                f"{stream} is not what was archived, from {last.sequence} on at the latest: NATS came back "
                "with an older state. Restore the archive as of that time, or name an empty archive.url"
            )
        return at

    async def go_on(self, stream: str, latest: Read) -> None:
        """The same, before what ends with `latest` is archived."""
        created = (await self.check(stream)).created
        self._last[stream, created] = Mark(latest.sequence, latest.time)

    async def _creation(self, stream: str, at: Position) -> int:
        """When a stream without a label was created: as the server says, or, of a stream that was archived
        before, as the archive says."""
        if at.last == 0:
            return at.made
        known = await asyncio.to_thread(lambda: self._events().creations(stream))
        try:
            indexed = {name.created for name in await repeats.parts(self._bus.js) if name.stream == stream}
        except repeats.NoBucketError:
            indexed = set()
        if at.made in known or not known | indexed:
            return at.made
        undecided = set(indexed - known)
        for created in known:
            same = await self._is(stream, at, created)
            if same:
                return created
            if same is None:
                undecided.add(created)
        snapshot = await asyncio.to_thread(lambda: self._events().snapshot())
        # What has left it is what was archived of it.
        fitting = [one for one in undecided if snapshot.position(one, stream) == at.first - 1 > 0]
        if len(fitting) == 1:
            return fitting[0]
        if undecided:
            raise TransientError(
                f"nothing of {stream} tells whether it is the stream that was archived or a new one, so "
                "nothing is archived and nothing leaves. Say it in the stream's metadata (nats stream edit): "
                f"{LABEL}:{max(undecided)} if it was restored, {LABEL}:{at.made} if it is new"
            )
        return at.made

    async def _is(self, stream: str, at: Position, created: int) -> bool | None:
        """Whether it is the stream that was archived as created then; None where nothing tells."""
        marks = await asyncio.to_thread(
            lambda: self._events().marks(stream, created, at.first, at.last, COMPARED)
        )
        for mark in marks:
            if (same := await is_same(self._bus.js, stream, mark)) is not None:
                return same
        return None
