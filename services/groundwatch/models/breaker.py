"""A circuit breaker: a model that fails again and again is left alone for a while.

Without it every waiting event would find out by itself, each with its own timeout, and a server that comes
back would be met by all of them at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FACTOR = 10


class Breaker:
    """Closed until `failures` faults in a row; then open for `pause` seconds, then one call may try.

    If the trial fails, the pause doubles, up to ten times the first. Not for threads.
    """

    def __init__(self, *, failures: int, pause: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = failures
        self._first = pause
        self._pause = pause
        self._clock = clock
        self._faults = 0
        self._opens_until = 0.0
        self._trial = 0.0
        self._why = ""

    @property
    def why(self) -> str:
        """The last fault while the breaker is open; empty when it is closed."""
        return self._why if self._faults >= self._limit else ""

    def enter(self) -> float:
        """0 when a call may be made; else seconds until it is worth asking again.

        A call that was let in must report `succeeded`, `failed` or `left`.
        """
        if self._faults < self._limit:
            return 0.0
        now = self._clock()
        if now < self._opens_until:
            return self._opens_until - now
        if self._trial:
            return self._first
        self._trial = now
        return 0.0

    def succeeded(self) -> None:
        """The model answered: closed again."""
        self._faults, self._trial, self._pause, self._why = 0, 0.0, self._first, ""

    def left(self) -> None:
        """The call ended without telling anything about the model: it was cancelled."""
        self._trial = 0.0

    def failed(self, why: str) -> None:
        """The model failed."""
        tried, self._trial = bool(self._trial), 0.0
        self._faults += 1
        self._why = why
        if self._faults < self._limit:
            return
        now = self._clock()
        if tried:
            self._pause = min(self._pause * 2, self._first * FACTOR)
        if tried or now >= self._opens_until:
            self._opens_until = now + self._pause
