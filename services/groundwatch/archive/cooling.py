"""Cooling: what is archived, old and no longer in work leaves its stream.

A message goes when it is older than the hot window, in the archive by position, and older than everything
that a stage or a receiver has yet to acknowledge, of whatever stream. The last one is what makes a stage
exactly once: it publishes its result with "expect no message on this subject", and an event that is delivered
again must find there what was published of it before. That result is younger than the event, so it stays for
as long as the event is not acknowledged.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

import msgspec

from groundwatch.errors import GroundwatchError, words
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.direct import delete, next_of_leader
from groundwatch.runtime.delivery.history import History, first_since
from groundwatch.runtime.delivery.streams import FAULTS, Position, position_of
from groundwatch.runtime.delivery.unanswered import Unanswered, unanswered_of
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores import repeats
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ARCHIVED, DAY, INTAKE, OUTCOMES, RETRY
from groundwatch.topology import stream as spec_of
from groundwatch.topology.partitions import kind_of, streams_of_kind

COOL_SECONDS = 60.0

RECEIVER_SECONDS = spec_of(OUTCOMES).max_age
"""For how long a receiver that is away keeps anything in the streams: as long as one without an archive does.
A receiver that nobody wants any more leaves its consumer behind."""

NEVER = 2**63 - 1
"""A sequence that no stream comes to."""


class Settled:
    """What every gateway that takes anything knows the ids of: what has been in the archive for as long as
    one goes on without looking. Counted anew after each start: no clock but our own is trusted."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], deque[tuple[float, int]]] = {}

    def up_to(self, stream: str, created: int, archived: int) -> int:
        """The last sequence, 0 for none, of what is archived up to a sequence now."""
        seen = self._seen.setdefault((stream, created), deque())
        seen.append((time.monotonic(), archived))
        until = time.monotonic() - repeats.HOLD_SECONDS
        while len(seen) > 1 and seen[1][0] <= until:
            seen.popleft()
        return min(seen[0][1], archived) if seen[0][0] <= until else 0


Positions = Callable[[Mapping[str, Position]], Awaitable[Mapping[str, int]]]
"""Up to which sequence each of these streams is archived."""


def cut_time(hot_since: float, waiting: Iterable[Unanswered]) -> float:
    """Only what was stored before this may go."""
    return min([hot_since, *(one.time for one in waiting)])


def last_to_go(stream: str, archived: int, first_kept: int, waiting: Iterable[Unanswered]) -> int:
    """The last sequence of the stream that may go, 0 for none; `first_kept` is the first one since the cut.

    What its own consumers have not acknowledged bounds it by sequences too: a server's clock may be set back.
    """
    own = [one.sequence - 1 for one in waiting if one.stream == stream]
    return max(0, min([archived, first_kept - 1, *own]))


def bounded(waiting: Iterable[Unanswered], since: float) -> list[Unanswered]:
    """The same, but what receivers have not taken since `since` waits from then on only."""
    return [
        msgspec.structs.replace(one, sequence=NEVER, time=since)
        if kind_of(one.stream) == OUTCOMES and one.time < since
        else one
        for one in waiting
    ]


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What a round removed, by stream, and what it was kept from going on by."""

    removed: dict[str, int]
    by: str = ""


class Cooling:
    """Deletes from the streams that are archived, again and again. `archived` says how far each is."""

    def __init__(self, settings: Settings, bus: Bus, metrics: Metrics, archived: Positions) -> None:
        self._hot_seconds = settings.archive.hot_days * DAY
        self._bus = bus
        self._metrics = metrics
        self._archived = archived
        self._by = ""

    async def run(self) -> None:
        """One round after the other. A round that fails has removed nothing that it should not have."""
        while True:
            try:
                await self.cool()
            except (*FAULTS, GroundwatchError) as error:
                logger.warning("archive.not_cooled", error=words(error))
            await asyncio.sleep(COOL_SECONDS)

    async def cool(self) -> Round:
        """One round. Raises what NATS and the archive raise."""
        js = self._bus.js
        now = time.time()
        hot_since = now - self._hot_seconds
        names = [name for kind in ARCHIVED for name in streams_of_kind(kind, self._bus.partitions)]
        streams = {stream: await position_of(js, stream) for stream in names}
        for stream in streams:
            # First, so that it is known when nothing can leave.
            await self._show(stream)
        archived = await self._archived(streams)
        unanswered = [one for stream in (*names, INTAKE, RETRY) for one in await unanswered_of(js, stream)]
        waiting = bounded(unanswered, now - RECEIVER_SECONDS)
        cut = cut_time(hot_since, waiting)
        by = next((f"{one.consumer} of {one.stream}" for one in waiting if one.time <= cut < hot_since), "")
        if by != self._by:
            # Only when it changes: a stage may stand still for days.
            logger.info("archive.held_back", by=by or "nothing", meaning="what is older than that leaves")
            self._by = by
        removed = dict[str, int]()

        async def cool_one(stream: str, at: Position) -> None:
            look = partial(History(js).next, stream, ">")
            first_kept = await first_since(look, cut, at.first, at.last + 1)
            last = last_to_go(stream, archived.get(stream, 0), first_kept, waiting)
            if last < max(at.first, 1):
                return
            # Not purged: that would have everybody who publishes wait.
            removed[stream] = await delete(js, stream, range(at.first, last + 1))
            logger.info("archive.cooled", stream=stream, up_to=last, messages=removed[stream])
            for one in unanswered:
                if one.stream == stream and one.sequence <= last:
                    logger.warning(
                        "archive.not_told",
                        consumer=one.consumer,
                        up_to=last,
                        meaning="it has not taken this for as long as outcomes are kept for receivers",
                    )
            await self._show(stream)

        # Side by side: each waits for the server after every message.
        cooling = [cool_one(stream, at) for stream, at in streams.items()]
        for ended in await asyncio.gather(*cooling, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended
        return Round(removed=removed, by=by)

    async def _show(self, stream: str) -> None:
        oldest = await next_of_leader(self._bus.js, stream, 1)
        self._metrics.archive_hot_sequence.labels(stream).set(oldest.sequence if oldest is not None else 0)
        seconds = time.time() - oldest.time if oldest is not None else 0.0
        self._metrics.archive_hot_seconds.labels(stream).set(max(0.0, seconds))
        self._metrics.archive_hot_window.labels(stream).set(self._hot_seconds)
