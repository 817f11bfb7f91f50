"""What second opinions say of rates, versions and alarms."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

from groundwatch.errors import GroundwatchError, Unavailable
from groundwatch.reporting.alarms import Raised
from groundwatch.reporting.compare.render import VersionComparison
from groundwatch.reporting.corrected import EVERY_VERSION, CorrectedAlarm, CorrectedRow
from groundwatch.reporting.trends import VersionReport
from groundwatch.reviews.corrected import (
    QueueSamples,
    VersionOf,
    compare_versions,
    correct_alarms,
    read_samples,
)
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.statistics.intervals import Interval


class CorrectedRates:
    """Those of whole queues. Of several about the same, people go before models, then more opinions before
    fewer."""

    def __init__(self, rows: Iterable[CorrectedRow]) -> None:
        self._rows: dict[tuple[str, str, str, str, str], CorrectedRow] = {}
        for row in sorted(rows, key=lambda one: (one.by == "people", one.opinions)):
            if row.whole and row.corrected is not None:
                key = (row.model, row.protocol, row.fingerprint, row.version, row.category)
                self._rows[key] = row

    def row(
        self,
        model: str,
        protocol: str,
        fingerprint: str,
        *,
        version: str = EVERY_VERSION,
        category: str = "all",
    ) -> CorrectedRow | None:
        return self._rows.get((model, protocol, fingerprint, version, category))

    def rate(self, model: str, protocol: str, fingerprint: str, **narrower: str) -> Interval | None:
        row = self.row(model, protocol, fingerprint, **narrower)
        return row.corrected if row is not None else None


SECONDS = 2.0
"""What was read is used for so long, whoever asks."""

TIMEOUT = 5.0
"""Seconds that a reading may take."""

REST = 20.0
"""And so many times as long as the reading took: it never is more than a twentieth of the time."""

NAMES = ("run", "protocol", "model", "category", "fingerprint", "raised_at")
"""Fields that tell one alarm from all others."""


class Corrections:
    """Reads queues and opinions anew when they are older than that. Where they cannot be read, what was read
    last counts."""

    def __init__(self, bus: Bus, version_of: VersionOf) -> None:
        self._bus = bus
        self._version_of = version_of
        self._queues: Sequence[QueueSamples] | None = None
        self._until = 0.0
        self._turn = asyncio.Lock()

    async def versions(
        self, versions: Iterable[VersionReport], model: str, first: str, second: str
    ) -> tuple[VersionComparison, ...]:
        """Raises `Unavailable` where no opinions could be read yet."""
        queues = await self._current()
        return await asyncio.to_thread(compare_versions, versions, queues, model, first, second)

    async def alarms(self, raised: Sequence[Raised], among: Sequence[Raised]) -> tuple[CorrectedAlarm, ...]:
        """Of each alarm whether the corrected rate rose too, nothing where no opinions could be read yet;
        `among` are those that may have gone before."""
        if not raised:
            return ()
        try:
            queues = await self._current()
        except Unavailable:
            return ()
        return await asyncio.to_thread(correct_alarms, queues, raised, among)

    async def add_to(self, rows: Iterable[dict[str, Any]], raised: Sequence[Raised]) -> None:
        """Add `corrected` to rows that tell of these alarms, None where no opinions could be read yet."""
        raised = tuple(raised)
        corrected = await self.alarms(raised, raised)
        found = {
            tuple(getattr(one.alarm, name) for name in NAMES): told
            for one, told in zip(raised, corrected, strict=False)
        }
        for row in rows:
            row["corrected"] = found.get(tuple(row[name] for name in NAMES))

    async def _current(self) -> Sequence[QueueSamples]:
        async with self._turn:
            begun = time.monotonic()
            if begun >= self._until:
                try:
                    async with asyncio.timeout(TIMEOUT):
                        self._queues = await read_samples(self._bus, self._version_of)
                except (GroundwatchError, TimeoutError) as error:
                    why = str(error) or f"it took longer than {TIMEOUT:g} s"
                    logger.warning("gateway.opinions_not_read", error=why)
                now = time.monotonic()
                self._until = now + max(SECONDS, REST * (now - begun))
            if self._queues is None:
                raise Unavailable("second opinions cannot be read at this moment: try again")
            return self._queues
