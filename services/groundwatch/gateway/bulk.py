"""Many responses in one request: each line on its own, a bounded number of them in the air.

Reading goes on only as room comes free, so a sender that is faster than the stream is held up by its own
TCP window, and memory does not depend on the size of the request.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import msgspec

from groundwatch.gateway.backlog import Backlog
from groundwatch.gateway.bodies import Lines, TooLarge
from groundwatch.gateway.intake import RETRY_SECONDS, Intake, Ready
from groundwatch.gateway.results import Recorded, Refused
from groundwatch.gateway.wire import Submission, read_submission
from groundwatch.records import Limits
from groundwatch.runtime.bus import Receipt, settle

PATIENCE = 20.0
"""Seconds that one request waits in all for a full or absent stream."""

MAX_ERRORS = 100
HELD_BYTES = 8 * 1024 * 1024
"""Bytes of lines in the air; one line alone may be larger."""


class LineError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why one line was refused. Lines count from 1."""

    line: int
    error: str
    reason: str
    field: str = ""
    id: str = ""


class Summary(msgspec.Struct, kw_only=True):
    """What became of a bulk request.

    `errors` are the first hundred. `retry_from` is the first line that was refused for no fault of its
    own: sending from there again loses and doubles nothing.
    """

    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    retry_from: int | None = None
    errors: list[LineError] = []


class _Waiting(msgspec.Struct, frozen=True):
    line: int
    size: int
    ready: Ready | None
    ending: Any


class Bulk:
    """One bulk request."""

    def __init__(self, intake: Intake, backlog: Backlog, bounds: Limits, *, in_flight: int) -> None:
        self._intake = intake
        self._backlog = backlog
        self._bounds = bounds
        self._in_flight = in_flight
        self._patience = PATIENCE
        self._waiting: deque[_Waiting] = deque()
        self._held = 0
        self._given_up: Refused | None = None
        self.summary = Summary()

    async def read(self, chunks: AsyncIterator[bytes]) -> Summary:
        """Record every line. However the sending ends, what was sent in full is recorded."""
        lines = Lines(self._bounds.line)
        try:
            async for chunk in chunks:
                for number, line in lines.feed(chunk):
                    await self._take(number, line)
            for number, line in lines.finish():
                await self._take(number, line)
        finally:
            while self._waiting:
                await self._settle()
        return self.summary

    async def _take(self, number: int, line: bytes | TooLarge) -> None:
        if isinstance(line, TooLarge):
            message = f"the line has more than {line.limit} bytes"
            self._ended(number, self._intake.refuse(Refused(reason="too_large", message=message)))
            return
        if self._given_up is None and (self._backlog.closed or self._backlog.full):
            await self._wait()
        if self._given_up is not None:
            self._ended(number, self._intake.refuse(self._given_up))
            return
        submission = read_submission(line, self._bounds)
        if isinstance(submission, Refused):
            self._ended(number, self._intake.refuse(submission))
            return
        while self._waiting and (
            len(self._waiting) >= self._in_flight or self._held + len(line) > HELD_BYTES
        ):
            await self._make_room()
        self._held += len(line)
        await self._start(number, len(line), submission)

    async def _start(self, number: int, size: int, submission: Submission) -> None:
        images = submission.images
        if not self._intake.attachments.known(images):
            recording = self._intake.record(submission.response, images, patience=self._patience)
            self._waiting.append(_Waiting(number, size, None, asyncio.ensure_future(recording)))
            return
        response = submission.response
        if images:
            response = msgspec.structs.replace(response, images=tuple(map(str, images)))
        if self._intake.must_lease(response):
            await self._intake.lease(response)
        ready = self._intake.prepare(response)
        if isinstance(ready, Refused):
            self._held -= size
            self._ended(number, self._intake.refuse(ready))
            return
        self._waiting.append(_Waiting(number, size, ready, await self._intake.send(ready)))

    async def _make_room(self) -> None:
        """Settle the older half: one wait for many, since acknowledgements come in order."""
        half = (len(self._waiting) + 1) // 2
        last = self._waiting[half - 1].ending
        if isinstance(last, Receipt):
            await settle([last])
        for _ in range(half):
            await self._settle()

    async def _settle(self) -> None:
        """Wait for the oldest line in the air."""
        first = self._waiting.popleft()
        self._held -= first.size
        if first.ready is None:
            recording: Awaitable[Recorded | Refused] = first.ending
            self._ended(first.line, await recording)
            return
        waiting: Receipt | Refused = first.ending
        began = time.monotonic()
        ended = await self._intake.settle(first.ready, waiting, patience=self._patience)
        self._ended(first.line, ended)
        if (waited := time.monotonic() - began) >= RETRY_SECONDS:
            self._patience = max(0.0, self._patience - waited)
            self._settle_together()

    def _settle_together(self) -> None:
        """The stream fails or fails no more: what is in the air tries again side by side, not in turn."""
        for place, one in enumerate(self._waiting):
            if one.ready is not None:
                settling = self._intake.settle(one.ready, one.ending, patience=self._patience)
                self._waiting[place] = _Waiting(one.line, one.size, None, asyncio.ensure_future(settling))

    async def _wait(self) -> None:
        """Spend patience on a full backlog, and give up when it is spent."""
        if self._backlog.closed:
            self._given_up = Refused(reason="unavailable", message="the gateway is going down; send it again")
            return
        began = time.monotonic()
        if not await self._backlog.room(began + self._patience):
            self._given_up = Refused(reason="backlog", message=self._backlog.refusal())
        self._patience = max(0.0, self._patience - (time.monotonic() - began))

    def _ended(self, number: int, ended: Recorded | Refused) -> None:
        summary = self.summary
        if isinstance(ended, Recorded):
            if ended.status == "recorded":
                summary.accepted += 1
                self._backlog.sent()
            else:
                summary.duplicates += 1
            return
        summary.refused += 1
        if ended.passing and ended.reason == "unavailable":
            # Every further line would wait for a timeout of its own.
            self._given_up = ended
        if ended.passing and (summary.retry_from is None or number < summary.retry_from):
            summary.retry_from = number
        if len(summary.errors) < MAX_ERRORS:
            summary.errors.append(
                LineError(
                    line=number, error=ended.message, reason=ended.reason, field=ended.field, id=ended.id
                )
            )
