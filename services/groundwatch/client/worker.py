"""The thread that sends: in batches by a timer, so that it is out of the application's way.

What it cannot send it keeps, and tries again after a pause that grows; what it drops it counts, and sends the
count. Nothing here ever raises into the application.
"""

from __future__ import annotations

import logging
import queue
import random
import secrets
import threading
import time
from collections.abc import Sequence

import msgspec

from groundwatch.client.buffer import Buffer
from groundwatch.client.lines import CannotSend, Line, body, breathe
from groundwatch.client.replies import Verdict, judge
from groundwatch.client.transport import ANSWER_SECONDS, Connection

logger = logging.getLogger("groundwatch.client")

BUSY_PAUSE = 0.002
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
LOSSES_SECONDS = 5.0
"""Between two reports of what was lost."""

MAX_LINES = 100
"""The gateway names so many refused lines of a batch, and no more."""

MAX_BYTES = 4 * 1024 * 1024
MOST_ATTEMPTS = 5
"""How often one response alone is sent that makes the gateway fail, or hang."""

LEAST_SECONDS = 0.05
NDJSON, JSON = "application/x-ndjson", "application/json"


class Worker:
    def __init__(self, buffer: Buffer, connection: Connection, sender: str, interval: float) -> None:
        self._buffer = buffer
        self._connection = connection
        self._sender = sender
        self._interval = interval
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lines: list[Line] = []
        self._most = MAX_LINES
        self._attempts = 0
        self._failures = 0
        self._fault = ""
        self._warned: set[str] = set()
        self._try_at = 0.0
        self._asked_to_wait = False
        self._ends_at = 0.0
        self._process = secrets.token_hex(8)
        self._sequence = 0
        self._reported: dict[str, int] = {}
        self._report_at = 0.0
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
        """Say what is not sent, since nobody waits for this thread any more."""
        if number := self._buffer.put_in - self._buffer.taken_out:
            logger.warning("groundwatch: %d responses were not sent in time", number)

    @property
    def settled(self) -> bool:
        """Whether the gateway knows of everything that was lost."""
        return self._reported == self._buffer.lost()

    def _run(self) -> None:
        try:
            while not self._ends_at:
                self._wait()
                self._step()
            self._finish()
        finally:
            self.finished = True

    def _wait(self) -> None:
        now = time.monotonic()
        pause = self._interval
        if now < self._try_at:
            pause = self._try_at - now
        elif self._lines or self._buffer.waiting:
            pause = min(pause, BUSY_PAUSE)
        try:
            self._signals.get(timeout=pause)
        except queue.Empty:
            return
        if not self._asked_to_wait:
            self._try_at = 0.0
        self._report_at = 0.0

    def _step(self) -> None:
        try:
            if time.monotonic() >= self._try_at:
                self._read()
                if self._lines:
                    self._send(self._lines[: self._most])
                self._report()
        except Exception as error:
            # A fault of this code must neither end the thread nor be told without end.
            self._lose(self._lines, "bug")
            self._lines = []
            self._warn("bug", f"what was to be sent is dropped: {error!r}")

    def _read(self) -> None:
        """Lines from the buffer, up to a batch. An image is read here, and encoded while it is sent."""
        length = sum(line.length for line in self._lines)
        while len(self._lines) < MAX_LINES and length < MAX_BYTES and (entry := self._buffer.take()):
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
                    self._lines.append(msgspec.structs.replace(line, size=size))
                    length += line.length
            breathe()

    def _send(self, lines: Sequence[Line]) -> None:
        import httpx

        try:
            reply = self._connection.post("/v1/responses", body(lines), NDJSON, self._seconds())
            verdict = judge(lines, reply)
        except Exception as error:
            self._connection.close()
            hangs = isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout)
            verdict = Verdict(left=tuple(lines), fault=repr(error)[:300], smaller=hangs, attempt=hangs)
        self._take(lines, verdict)

    def _take(self, lines: Sequence[Line], verdict: Verdict) -> None:
        left = list(verdict.left)
        for reason, number in verdict.lost.items():
            self._buffer.lose(reason, number)
            self._warn(reason, f"the gateway refuses a response: {verdict.why}")
        if verdict.smaller and len(lines) > 1:
            self._most = 1 if verdict.attempt else max(1, len(lines) // 2)
        elif not verdict.fault:
            self._most = min(MAX_LINES, self._most * 2)
        self._attempts = self._attempts + 1 if verdict.attempt and len(lines) == 1 else 0
        if self._attempts >= MOST_ATTEMPTS:
            self._warn("gave_up", f"a response is dropped after {MOST_ATTEMPTS} attempts: {verdict.fault}")
            self._buffer.lose("gave_up", len(left))
            left, self._attempts = [], 0
        kept = {id(line) for line in left}
        for line in lines:
            if id(line) not in kept:
                self._buffer.done(line.size)
        self._lines[: len(lines)] = left
        self._pause(verdict)

    def _pause(self, verdict: Verdict) -> None:
        """The breaker: after a fault nothing is sent for a while."""
        self._asked_to_wait = verdict.pause is not None
        if verdict.pause is None and not verdict.fault:
            if self._fault:
                logger.info("groundwatch: the gateway takes responses again")
            self._failures, self._fault = 0, ""
            return
        pause = verdict.pause
        if pause is None:
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures, 10))
            pause *= 0.5 + random.random() / 2
        self._failures += 1
        if not self._fault:
            self._fault = verdict.fault
            logger.warning(
                "groundwatch: the gateway takes nothing now (%s); responses wait, up to a bound", self._fault
            )
        self._try_at = time.monotonic() + pause

    def _report(self) -> None:
        """Say what was lost in all, under a number: the same said twice counts once."""
        lost = self._buffer.lost()
        if lost == self._reported or time.monotonic() < self._report_at:
            return
        self._report_at = time.monotonic() + LOSSES_SECONDS
        self._sequence += 1
        said = {"sender": self._sender, "process": self._process, "sequence": self._sequence, "lost": lost}
        try:
            reply = self._connection.post("/v1/losses", msgspec.json.encode(said), JSON, self._seconds())
        except Exception:
            self._connection.close()
            return
        # A gateway of before has no such path: nobody can be told.
        if reply.status < 300 or reply.status in (404, 405):
            self._reported = lost

    def _finish(self) -> None:
        """At the end: send until three quarters of the time are over, then say what is lost."""
        began = time.monotonic()
        stop = began + (self._ends_at - began) * 0.75
        self._try_at = 0.0 if not self._asked_to_wait else self._try_at
        while (self._lines or self._buffer.waiting) and time.monotonic() < stop:
            if time.monotonic() < self._try_at:
                break
            self._step()
        self._lose(self._lines, "exit")
        self._lines = []
        while (entry := self._buffer.take()) is not None:
            self._buffer.done(entry[0])
            self._buffer.lose("exit")
        self._report_at = 0.0
        if lost := self._buffer.lost():
            self._report()
            if lost != self._reported:
                told = ", ".join(f"{reason} {number}" for reason, number in sorted(lost.items()))
                logger.warning(
                    "groundwatch: responses were not sent, and the gateway does not know: %s", told
                )
        self._connection.close()

    def _lose(self, lines: Sequence[Line], reason: str) -> None:
        for line in lines:
            self._buffer.done(line.size)
            self._buffer.lose(reason)

    def _seconds(self) -> float:
        """How long the gateway may take: not beyond the end."""
        if not self._ends_at:
            return ANSWER_SECONDS
        return max(LEAST_SECONDS, min(ANSWER_SECONDS, self._ends_at - time.monotonic()))

    def _warn(self, reason: str, message: str) -> None:
        """Once for each reason; the counts tell how often."""
        if reason not in self._warned:
            self._warned.add(reason)
            logger.warning("groundwatch: %s", message)
