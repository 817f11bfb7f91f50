"""A circuit breaker: a model that fails again and again is left alone for a while.

Without it every waiting event would find out by itself, each with its own timeout, and a server that comes
back would be met by all of them at once. It also tells two things apart that look alike in one event: a
model that is away, and an event that makes it fail.
"""

import time
from collections.abc import Callable
from contextvars import ContextVar

FACTOR = 10

ASKED_FOR: ContextVar[str] = ContextVar("asked_for", default="")
"""The event that a model is asked for; empty where nobody says, and each call is then its own."""

EVENTS = 2
"""So many different events must have failed, and none passed, before it is the model that is away."""


class Breaker:
    """Closed until `failures` faults in a row; then open for `pause` seconds, then one call may try.

    The faults of one event alone never open it. If the trial fails, the pause doubles, up to ten times the
    first. Not for threads.
    """

    def __init__(self, *, failures: int, pause: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = failures
        self._first = pause
        self._pause = pause
        self._clock = clock
        self._faults = 0
        self._failed: set[object] = set()
        self._is_open = False
        self._opens_until = 0.0
        self._trial = 0.0
        self._why = ""

    @property
    def is_open(self) -> bool:
        """Whether the model is away, as far as is known."""
        return self._is_open

    @property
    def why(self) -> str:
        """The last fault while the breaker is open; empty when it is closed."""
        return self._why if self._is_open else ""

    @property
    def remaining(self) -> float:
        """Seconds until it is worth asking again; 0 when a call may be made."""
        if not self._is_open:
            return 0.0
        left = self._opens_until - self._clock()
        return left if left > 0 else self._first if self._trial else 0.0

    def enter(self) -> float:
        """0 when a call may be made; else seconds until it is worth asking again.

        A call that was let in must report `succeeded`, `failed` or `left`.
        """
        wait = self.remaining
        if self._is_open and wait == 0.0:
            self._trial = self._clock() or 1.0
        return wait

    def succeeded(self) -> None:
        """The model answered: closed again."""
        self._faults, self._trial, self._pause, self._why = 0, 0.0, self._first, ""
        self._is_open = False
        self._failed.clear()

    def left(self) -> None:
        """The call ended without telling anything about the model: it was cancelled."""
        self._trial = 0.0

    def failed(self, why: str) -> None:
        """The model failed."""
        self._faults += 1
        self._why = why
        if len(self._failed) < EVENTS:
            self._failed.add(ASKED_FOR.get() or object())
        if self._is_open or (self._faults >= self._limit and len(self._failed) >= min(EVENTS, self._limit)):
            self._open()

    def away(self, why: str) -> None:
        """The model is away for certain, whatever it was asked: nobody was there to be asked."""
        self._why = why
        if not self._is_open:
            self._open()
        elif self._clock() >= self._opens_until:
            # Whoever found that out has tried.
            self._trial = self._trial or 1.0
            self._open()

    def _open(self) -> None:
        tried, self._trial = bool(self._trial), 0.0
        now = self._clock()
        if tried:
            self._pause = min(self._pause * 2, self._first * FACTOR)
        if tried or now >= self._opens_until:
            self._opens_until = now + self._pause
        self._is_open = True
