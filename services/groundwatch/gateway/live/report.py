"""The report of live traffic, kept up to date outcome by outcome and told without stopping anything."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Container
from typing import Any

import msgspec

from groundwatch.events import ResponseScored
from groundwatch.reporting import Report
from groundwatch.runtime.delivery.bus import ENCODER
from groundwatch.runtime.delivery.outcomes import REPLACEABLE

FRESH_SECONDS = 0.5
COST_SHARE = 20
"""Intervals and changes take time to compute: at most a twentieth of it is spent on them."""

_DECODER = msgspec.json.Decoder(ResponseScored)


class Board:
    """A `Report` that takes outcomes while another thread computes its numbers.

    `most` and `kept` are the report's. An outcome that stands for a dead letter is kept until another one
    takes its place: then it is taken back, and the report is right at once, with nothing read again.
    """

    def __init__(self, most: int | None = None, kept: Callable[[], Container[str]] = tuple) -> None:
        self._report = Report(most=most, kept=kept)
        self._pending: list[tuple[int, ResponseScored | None, ResponseScored | None]] = []
        self._computing = asyncio.Lock()
        self._replaceable: dict[bytes, bytes] = {}
        self._sequence = 0
        self._told: dict[str, Any] | None = None
        self._changed = True
        self._stale_at = 0.0

    def add(self, sequence: int, subject: str, event: ResponseScored | None) -> None:
        """Count an outcome, in place of the dead letter's on the same subject; None could not be read."""
        old = None
        if event is not None and (self._replaceable or event.reason in REPLACEABLE):
            old = self._replace(hashlib.blake2b(subject.encode(), digest_size=16).digest(), event)
        self._changed = True
        if self._computing.locked():
            self._pending.append((sequence, old, event))
        else:
            self._apply(sequence, old, event)

    async def current(self) -> dict[str, Any]:
        """The report as of a moment ago, with the `sequence` of the last outcome that is in it."""
        async with self._computing:
            if self._told is None or (self._changed and time.monotonic() >= self._stale_at):
                self._changed = False
                began = time.monotonic()
                found = await asyncio.to_thread(self._report.to_dict)
                self._told = found | {"sequence": self._sequence}
                ended = time.monotonic()
                self._stale_at = ended + max(FRESH_SECONDS, COST_SHARE * (ended - began))
            pending, self._pending = self._pending, []
            for change in pending:
                self._apply(*change)
            return self._told

    def _replace(self, key: bytes, event: ResponseScored) -> ResponseScored | None:
        """The dead letter's outcome whose place this one takes. What the report does not need is not kept."""
        old = self._replaceable.pop(key, None)
        if event.reason in REPLACEABLE:
            bare = msgspec.structs.replace(event, detail="", units=(), claims=(), values={})
            self._replaceable[key] = ENCODER.encode(bare)
        return _DECODER.decode(old) if old is not None else None

    def _apply(self, sequence: int, old: ResponseScored | None, event: ResponseScored | None) -> None:
        self._sequence = sequence
        if old is not None:
            self._report.remove(old)
        if event is not None:
            self._report.add(event)
