"""The report of live traffic, kept up to date outcome by outcome and told without stopping anything."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from groundwatch.events import ResponseScored
from groundwatch.reporting import Report
from groundwatch.runtime.outcomes import REPLACEABLE

FRESH_SECONDS = 0.5
COST_SHARE = 20
"""Intervals and changes take time to compute: at most a twentieth of it is spent on them."""


class Board:
    """A `Report` that takes outcomes while another thread computes its numbers."""

    def __init__(self) -> None:
        self._report = Report()
        self._pending: list[ResponseScored] = []
        self._computing = asyncio.Lock()
        self._replaceable: set[str] = set()
        self._told: dict[str, Any] | None = None
        self._changed = True
        self._stale_at = 0.0
        self.outdated = False

    def add(self, subject: str, event: ResponseScored) -> None:
        """Count an outcome. One that takes a dead letter's place cannot undo it: that is `outdated`."""
        if subject in self._replaceable:
            self.outdated = True
        elif event.reason in REPLACEABLE:
            self._replaceable.add(subject)
        self._changed = True
        if self._computing.locked():
            self._pending.append(event)
        else:
            self._report.add(event)

    async def tell(self) -> dict[str, Any]:
        """The report as of a moment ago."""
        async with self._computing:
            if self._told is None or (self._changed and time.monotonic() >= self._stale_at):
                self._changed = False
                began = time.monotonic()
                self._told = await asyncio.to_thread(self._report.to_dict)
                ended = time.monotonic()
                self._stale_at = ended + max(FRESH_SECONDS, COST_SHARE * (ended - began))
            pending, self._pending = self._pending, []
            for event in pending:
                self._report.add(event)
            return self._told
