"""The thread that sends: in batches by a timer, so that it is out of the application's way.

What it cannot send it keeps, and tries again after a pause that grows; what it drops it counts, and sends the
count. Nothing here ever raises into the application.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from functools import partial

import msgspec

from groundwatch.client import sending
from groundwatch.client.buffer import Buffer
from groundwatch.client.lines import CannotSend, Line, breathe
from groundwatch.client.losses import Losses
from groundwatch.client.replies import Refused
from groundwatch.client.sending import GAVE_UP, TOO_LARGE, Connection, Sender

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
        finally:
            self._lock.release()

    @property
    def settled(self) -> bool:
        """Whether the gateway knows of everything that was lost."""
        return self._losses.settled

    def _run(self) -> None:
        try:
            while not self._ends_at:
                self._wait()
                self._step(sending.ANSWER_SECONDS)
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
            self._send(max(LEAST_SECONDS, min(sending.ANSWER_SECONDS, stop - time.monotonic())))
        with self._lock:
            if self._abandoned:
                return
            self._lose_rest()
        self._report_to_the_end()
        with self._lock:
            if not self._abandoned:
                self._abandoned = True
                self._keep()
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
