"""What waits to be sent: bounded by bytes, filled by any thread, emptied by one. Counts what is lost."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

Read = Callable[..., Any]
Entry = tuple[int, Read, tuple[Any, ...]]
"""Its size in bytes, and the function that makes lines of it in the sending thread, with its arguments."""

OVERHEAD = 512
"""Bytes that an entry takes beside what is in it."""


class Buffer:
    """No thread that fills it ever waits for the one that empties it.

    The lock is one that the same thread may take twice: a destructor may record something while its thread
    is in here already.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.RLock()
        self._entries: deque[Entry] = deque()
        self._reserved = 0
        self._released = 0
        self._lost: dict[str, int] = {}
        self.put_in = 0
        self.taken_out = 0

    @property
    def held(self) -> int:
        """Bytes of all that is not yet sent: what waits, what is being sent, and streams that are read."""
        return self._reserved - self._released

    def reserve(self, size: int) -> bool:
        """Make room for so many bytes; where there is none, tell so."""
        with self._lock:
            if self._reserved - self._released + size > self._max_bytes:
                return False
            self._reserved += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._reserved -= size

    def put(self, size: int, read: Read, arguments: tuple[Any, ...]) -> bool:
        """Take an entry, or count it as lost."""
        size += OVERHEAD
        with self._lock:
            if self._reserved - self._released + size > self._max_bytes:
                self._lost["full"] = self._lost.get("full", 0) + 1
                return False
            self._reserved += size
            self._entries.append((size, read, arguments))
            self.put_in += 1
            return True

    def put_reserved(self, size: int, read: Read, arguments: tuple[Any, ...]) -> None:
        with self._lock:
            self._entries.append((size, read, arguments))
            self.put_in += 1

    def lose(self, reason: str, number: int = 1) -> None:
        with self._lock:
            self._lost[reason] = self._lost.get(reason, 0) + number
            if not self._lost[reason]:
                del self._lost[reason]

    def lost(self) -> dict[str, int]:
        """How many were lost so far, by reason."""
        with self._lock:
            return dict(self._lost)

    def take(self) -> Entry | None:
        """The oldest. Only the sending thread takes, and says `done` when it is over with it."""
        try:
            return self._entries.popleft()
        except IndexError:
            return None

    def done(self, size: int, number: int = 1) -> None:
        """Only the sending thread writes these two numbers."""
        self._released += size
        self.taken_out += number

    @property
    def waiting(self) -> int:
        return len(self._entries)
