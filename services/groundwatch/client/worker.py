"""The thread that sends: in batches by a timer, so that it is out of the application's way.

What it cannot send it keeps, and tries again after a pause that grows; what it drops it counts, and sends the
count. Nothing here ever raises into the application.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mmap
import os
import queue
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from groundwatch.client import transport
from groundwatch.client.lines import CannotSend, Line, breathe
from groundwatch.client.transport import GAVE_UP, TOO_LARGE, Connection, Refused, Reply, Sender

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
        self.tally: Tally | None = None

    def count_in(self, tally: Tally) -> None:
        """For the sending thread."""
        with self._lock:
            self.tally = tally
            tally.numbers[0] = self.put_in
        tally.numbers[1] = self.taken_out

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
        if not self.reserve(size):
            self.lose("full")
            return False
        return self.put_reserved(size, read, arguments)

    def put_reserved(self, size: int, read: Read, arguments: tuple[Any, ...]) -> bool:
        with self._lock:
            self._entries.append((size, read, arguments))
            self.put_in += 1
            if self.tally is not None:
                self.tally.numbers[0] = self.put_in
        return True

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
        if self.tally is not None:
            self.tally.numbers[1] = self.taken_out

    @property
    def waiting(self) -> int:
        return len(self._entries)


LOSSES_SECONDS = 5.0
"""Between two reports of what was lost."""

JSON = "application/json"
MOST_UNCONFIRMED = 500
"""Responses that a report names; what is beyond them counts as lost."""

MOST_FILES = 1_000
MAX_FILE = 1024 * 1024
_GONE = frozenset((400, 404, 405, 413, 422))
"""A gateway of before has no such path, or does not read the report: nobody can be told."""


class Unconfirmed(msgspec.Struct, frozen=True, kw_only=True):
    """A response that was given up without an answer: the gateway knows whether it is recorded."""

    id: str
    tenant: str
    reason: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one process has lost in all: under its number the same report counts once."""

    sender: str
    process: str
    sequence: int
    lost: dict[str, int]
    unconfirmed: tuple[Unconfirmed, ...] = ()


class _Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's reply: how many of those unconfirmed are recorded, by the reason for giving them up."""

    recorded: dict[str, int] | None = None


def folder() -> Path:
    """Where reports wait: the user's folder for what programs remember."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "groundwatch" / "losses"


def waiting(address: str, token: str) -> list[Path]:
    """The reports that earlier processes could not make to this gateway."""
    try:
        for path in folder().glob(f"{_scope(address, token)}-*.{Tally.KIND}"):
            Tally.report(path)
        return sorted(folder().glob(f"{_scope(address, token)}-*.json"))
    except (OSError, RuntimeError):
        return []


class Tally:
    """How many responses a process has taken, and how many of them have ended, in a file that outlives it.

    Who is killed, or ends by `os._exit`, tells nobody: whoever finds the file without the lock that went with
    the process tells it in its place.
    """

    KIND = "tally"
    _NUMBERS = 16

    def __init__(self, path: Path, sender: str) -> None:
        """Raises `OSError` where no file can be written."""
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        half = path.with_suffix(".part")
        with half.open("xb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(bytes(self._NUMBERS) + sender.encode())
            file.flush()
            # It keeps a file descriptor of its own, and the lock with it.
            self._held = mmap.mmap(file.fileno(), self._NUMBERS)
        half.rename(path)
        self.numbers = memoryview(self._held).cast("Q")

    def end(self) -> None:
        """What is missing is told otherwise."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    @classmethod
    def report(cls, path: Path) -> None:
        """Make a report of the file of a process that is gone."""
        with contextlib.suppress(OSError, ValueError, TypeError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = file.read(MAX_FILE)
            taken, ended = memoryview(data[: cls._NUMBERS]).cast("Q")
            if taken > ended:
                sender, process = data[cls._NUMBERS :].decode(), path.stem.rpartition("-")[2]
                lost = {"exit": taken - ended}
                # Under another number: what that process itself has told counts beside it.
                report = Report(sender=sender, process=f"{process}-ended", sequence=1, lost=lost)
                _write(path.with_suffix(".json"), msgspec.json.encode(report))
            path.unlink()


def _write(path: Path, report: bytes) -> None:
    # Another process must not read half of it.
    half = path.with_suffix(".part")
    half.write_bytes(report)
    half.replace(path)


def _scope(address: str, token: str) -> str:
    return hashlib.sha256(f"{address.rstrip('/')}\n{token}".encode()).hexdigest()[:16]


class Losses:
    """Of one process. Those unconfirmed count as lost until the gateway says that they are recorded."""

    def __init__(self, buffer: Buffer, connection: Connection, sender: str, token: str) -> None:
        self._buffer = buffer
        self._connection = connection
        self._sender = sender
        self._process = secrets.token_hex(8)
        self._scope = _scope(connection.address, token)
        self._earlier = waiting(connection.address, token)
        self._sequence = 0
        self._unconfirmed: list[Unconfirmed] = []
        self._reported: dict[str, int] = {}
        self._report_at = 0.0

    def begin(self) -> None:
        """Count in a file from now on, where that can be."""
        with contextlib.suppress(OSError, RuntimeError):
            if fcntl is not None:
                path = folder() / f"{self._scope}-{self._process}.{Tally.KIND}"
                self._buffer.count_in(Tally(path, self._sender))

    def end(self) -> None:
        """All that was taken is sent or counted."""
        if self._buffer.tally is not None:
            self._buffer.tally.end()

    def lose(self, line: Line, reason: str) -> None:
        self._buffer.lose(reason)
        if line.unconfirmed and len(self._unconfirmed) < MOST_UNCONFIRMED:
            self._unconfirmed.append(Unconfirmed(id=line.id, tenant=line.tenant, reason=reason))

    @property
    def settled(self) -> bool:
        """Whether the gateway knows of everything that was lost."""
        return not self._unconfirmed and self._reported == self._buffer.lost()

    @property
    def unconfirmed(self) -> int:
        return len(self._unconfirmed)

    def hurry(self) -> None:
        self._report_at = 0.0

    def report(self, seconds: float) -> None:
        """Report what is new, and what earlier processes could not; `seconds` bound each wait."""
        if (self.settled and not self._earlier) or time.monotonic() < self._report_at:
            return
        self._report_at = time.monotonic() + LOSSES_SECONDS
        if not self.settled:
            lost, named = Counter(self._buffer.lost()), len(self._unconfirmed)
            reply = self._post(self._next(), seconds)
            if reply is None:
                return
            recorded = _recorded(reply)
            del self._unconfirmed[:named]
            if named and recorded is None:
                # It looks none up: they are reported once more, as lost.
                self.hurry()
                return
            for reason, number in (recorded or {}).items():
                self._buffer.lose(reason, -number)
            lost.subtract(recorded or {})
            self._reported = dict(+lost)
        while self._earlier:
            with contextlib.suppress(OSError):
                if self._post(self._earlier[-1].read_bytes()[:MAX_FILE], seconds) is None:
                    return
                self._earlier[-1].unlink(missing_ok=True)
            self._earlier.pop()

    def keep(self) -> str:
        """Write what is not reported where the next start finds it; where, or why that cannot be."""
        try:
            where = folder()
            where.mkdir(mode=0o700, parents=True, exist_ok=True)
            if sum(1 for _ in where.glob("*.json")) >= MOST_FILES:
                return f"{where} holds {MOST_FILES} reports already"
            path = where / f"{self._scope}-{self._process}.json"
            _write(path, self._next())
        except (OSError, RuntimeError) as error:
            return f"no file can be written: {error}"
        return f"the next start will report them from {path}"

    def _next(self) -> bytes:
        self._sequence += 1
        lost = Counter(self._buffer.lost())
        lost.subtract(one.reason for one in self._unconfirmed)
        report = Report(
            sender=self._sender,
            process=self._process,
            sequence=self._sequence,
            lost=dict(+lost),
            unconfirmed=tuple(self._unconfirmed),
        )
        return msgspec.json.encode(report)

    def _post(self, report: bytes, seconds: float) -> Reply | None:
        """The reply of a gateway that is done with the report."""
        try:
            reply = self._connection.post("/v1/losses", report, JSON, seconds)
        except Exception:
            self._connection.close()
            return None
        return reply if reply.status < 300 or reply.status in _GONE else None


def _recorded(reply: Reply) -> dict[str, int] | None:
    try:
        return msgspec.json.decode(reply.body, type=_Counted).recorded
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


logger = logging.getLogger("groundwatch.client")

BUSY_PAUSE = 0.002
END_PAUSE = 1.0
"""Longest pause between two attempts while somebody waits for the end."""

REPORT_SECONDS = 2.0
"""Of the time in which it ends, so much at most is for the report of what is lost."""

LEAST_SECONDS = 0.05
LOCK_SECONDS = 1.0


class Worker:
    def __init__(
        self, buffer: Buffer, connection: Connection, sender: str, interval: float, token: str = ""
    ) -> None:
        self._buffer = buffer
        self._connection = connection
        self._sender = Sender(connection, self._ended)
        self._losses = Losses(buffer, connection, sender, token)
        self._interval = interval
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._warned: set[str] = set()
        self._ends_at = 0.0
        self._lock = threading.Lock()
        self._abandoned = False
        self.finished = False
        self._thread = threading.Thread(target=self._run, name="groundwatch-client", daemon=True)

    def start(self) -> None:
        """Raises `RuntimeError` where no thread can be had."""
        self._thread.start()

    def hurry(self) -> None:
        """Send what there is now, also where a pause after a fault is not over."""
        self._signals.put(None)

    def end(self, deadline: float) -> None:
        """Send what can be sent until then (monotonic), say what is lost, and finish."""
        self._ends_at = deadline
        self._signals.put(None)

    def abandon(self) -> None:
        """Count what is not sent, and send nothing more: nobody waits for this thread any longer."""
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            return
        try:
            if not (self._abandoned or self.finished):
                self._abandoned = True
                self._lose_rest()
                self._keep()
                self._losses.end()
        finally:
            self._lock.release()

    @property
    def settled(self) -> bool:
        """Whether the gateway knows of everything that was lost."""
        return self._losses.settled

    def _run(self) -> None:
        try:
            self._losses.begin()
            while not self._ends_at:
                self._wait()
                self._step(transport.ANSWER_SECONDS)
            self._finish()
        finally:
            self.finished = True

    def _wait(self) -> None:
        pause = self._interval
        if wait := self._sender.wait:
            pause = wait
        elif self._sender.lines or self._buffer.waiting:
            pause = min(pause, BUSY_PAUSE)
        try:
            self._signals.get(timeout=pause)
        except queue.Empty:
            return
        self._sender.hurry()
        self._losses.hurry()

    def _step(self, seconds: float) -> None:
        if self._sender.wait:
            return
        self._send(seconds)
        if not self._sender.wait:
            self._guarded(partial(self._losses.report, seconds))

    def _send(self, seconds: float) -> None:
        """What there is, up to a batch."""
        self._guarded(self._read)
        if not self._sender.lines:
            return
        fault = self._sender.fault
        try:
            lines, verdict = self._sender.attempt(seconds)
            with self._lock:
                if not self._abandoned:
                    self._sender.apply(lines, verdict)
        except Exception as error:
            self._bug(error)
        if self._sender.fault and not fault:
            logger.warning(
                "groundwatch: the gateway takes nothing now (%s); responses wait, up to a bound",
                self._sender.fault,
            )
        elif fault and not self._sender.fault:
            logger.info("groundwatch: the gateway takes responses again")

    def _guarded(self, work: Callable[[], None]) -> None:
        # A fault of this code must neither end the thread nor be told without end.
        try:
            work()
        except Exception as error:
            self._bug(error)

    def _bug(self, error: Exception) -> None:
        lines, self._sender.lines = self._sender.lines, []
        for line in lines:
            self._buffer.done(line.size)
            self._losses.lose(line, "bug")
        self._warn("bug", f"what was to be sent is dropped: {error!r}")

    def _read(self) -> None:
        """Lines from the buffer, up to a batch. An image is read here, and encoded while it is sent."""
        while not self._sender.full and (entry := self._buffer.take()):
            size, read, arguments = entry
            try:
                line = read(*arguments)
            except CannotSend as error:
                self._buffer.done(size)
                self._buffer.lose(error.reason)
                self._warn(error.reason, f"a response cannot be sent: {error}")
            except Exception as error:
                self._buffer.done(size)
                self._buffer.lose("unreadable")
                self._warn("unreadable", f"a response cannot be read: {error!r}")
            else:
                if line is None:
                    self._buffer.done(size)
                else:
                    self._sender.lines.append(msgspec.structs.replace(line, size=size))
            breathe()

    def _ended(self, line: Line, refused: Refused | None) -> None:
        self._buffer.done(line.size)
        if refused is None:
            return
        reason = refused.reason if refused.reason in (GAVE_UP, TOO_LARGE) else "refused"
        self._losses.lose(line, reason)
        self._warn(reason, f"a response is lost ({refused.reason}): {refused.error}")

    def _finish(self) -> None:
        """At the end: send until little of the time is left, then say what is lost until it is over."""
        stop = self._ends_at - min(REPORT_SECONDS, 0.25 * (self._ends_at - time.monotonic()))
        self._sender.hurry()
        while (self._sender.lines or self._buffer.waiting) and not self._abandoned:
            left = stop - time.monotonic()
            if left <= LEAST_SECONDS:
                break
            if wait := self._sender.wait:
                # Also a gateway that asks for a longer pause is asked once more before all is given up.
                longest = left if self._sender.asked_to_wait else END_PAUSE
                time.sleep(min(wait, longest, left / 2))
            self._send(max(LEAST_SECONDS, min(transport.ANSWER_SECONDS, stop - time.monotonic())))
        with self._lock:
            if self._abandoned:
                return
            self._lose_rest()
        self._report_to_the_end()
        with self._lock:
            if not self._abandoned:
                self._abandoned = True
                self._keep()
                self._losses.end()
        self._connection.close()

    def _report_to_the_end(self) -> None:
        while not self._abandoned:
            left = self._ends_at - time.monotonic() - LEAST_SECONDS
            if left <= 0:
                return
            self._losses.hurry()
            self._guarded(partial(self._losses.report, max(LEAST_SECONDS, left)))
            if self._losses.settled:
                return
            time.sleep(min(END_PAUSE / 4, max(0.0, left / 4)))

    def _lose_rest(self) -> None:
        lines, self._sender.lines = self._sender.lines, []
        for line in lines:
            self._buffer.done(line.size)
            self._losses.lose(line, "exit")
        while (entry := self._buffer.take()) is not None:
            self._buffer.done(entry[0])
            self._buffer.lose("exit")
        # What this thread was reading when it was abandoned.
        if number := self._buffer.put_in - self._buffer.taken_out:
            self._buffer.done(0, number)
            self._buffer.lose("exit", number)

    def _keep(self) -> None:
        if self._losses.settled:
            return
        lost = ", ".join(f"{reason} {number}" for reason, number in sorted(self._buffer.lost().items()))
        unsure = self._losses.unconfirmed
        may_be = f", of which {unsure} may be recorded" if unsure else ""
        logger.warning(
            "groundwatch: responses were not sent, and the gateway does not know: %s%s; %s",
            lost,
            may_be,
            self._losses.keep(),
        )

    def _warn(self, reason: str, message: str) -> None:
        """Once for each reason; the counts tell how often."""
        if reason not in self._warned:
            self._warned.add(reason)
            logger.warning("groundwatch: %s", message)
