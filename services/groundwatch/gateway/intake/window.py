"""Responses on their way into the stream: a bounded number in the air, ended in the order they came.

Taking goes on only as room comes free, so a sender that is faster than the stream is held up by its own
flow control, and memory does not depend on how much it sends.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.intake.intake import RETRY_SECONDS, Ready
from groundwatch.gateway.intake.parsing import Submission
from groundwatch.gateway.intake.results import Recorded, Refused
from groundwatch.gateway.intake.waiting import ANSWER_SECONDS
from groundwatch.runtime.delivery.bus import Receipt, wait_acks

TIMEOUT = ANSWER_SECONDS
"""Seconds that one request waits in all for a full or absent stream."""

HELD_BYTES = 8 * 1024 * 1024
"""Bytes of responses in the air; one alone may be larger."""

Ended = Callable[[int, Recorded | Refused], None]


class Waiting(msgspec.Struct, frozen=True):
    """One in the air. `ending` is a receipt, an awaitable of its end, or its end where that is known."""

    number: int
    size: int
    ready: Ready | None
    ending: Any


class Window:
    """The responses of one request. `ended` is told how each ended, in order."""

    def __init__(self, core: GatewayCore, ended: Ended, *, timeout: float = TIMEOUT) -> None:
        self._intake = core.intake
        self._backlog = core.backlog
        self._tell = ended
        self._in_flight = core.settings.intake.in_flight
        self._timeout = timeout
        self._waiting: deque[Waiting] = deque()
        self._held = 0
        self.given_up: Refused | None = None
        """Why nothing more is taken: what is put is refused with it."""

    @property
    def held(self) -> int:
        return self._held

    async def put(self, number: int, size: int, read: Callable[[], Submission | Refused]) -> None:
        """Take the response that `read` returns; `size` in bytes. Waits for room, and for the backlog."""
        if self.given_up is None and self._backlog.refusal():
            await self._wait()
        submission = self.given_up or read()
        if isinstance(submission, Refused):
            await self.refused(number, submission)
            return
        while self._waiting and (len(self._waiting) >= self._in_flight or self._held + size > HELD_BYTES):
            await self._make_room()
        self._held += size
        self._waiting.append(await self._start(number, size, submission))
        self._added()

    async def refused(self, number: int, refused: Refused) -> None:
        """Take one that is refused already: it is told in its turn."""
        while len(self._waiting) >= self._in_flight:
            await self._make_room()
        self._waiting.append(Waiting(number, 0, None, self._intake.refuse(refused)))
        self._added()

    async def drain(self) -> None:
        while self._waiting:
            await self._finish()

    async def _start(self, number: int, size: int, submission: Submission) -> Waiting:
        images = submission.images
        if self._intake.blind or not self._intake.attachments.known(images):
            recording = self._intake.record(
                submission.response, images, sender=submission.sender, timeout=self._timeout
            )
            return Waiting(number, size, None, asyncio.ensure_future(recording))
        response = submission.response
        if images:
            response = msgspec.structs.replace(response, images=tuple(map(str, images)))
        if self._intake.must_lease(response):
            await self._intake.lease(response)
        ready = self._intake.prepare(response)
        if isinstance(ready, Refused):
            return Waiting(number, size, None, self._intake.refuse(ready))
        return Waiting(number, size, ready, await self._intake.send(ready))

    def _added(self) -> None:
        """For who finishes beside."""

    async def _make_room(self) -> None:
        """Finish the older half: one wait for many, since acknowledgements come in order."""
        half = (len(self._waiting) + 1) // 2
        last = self._waiting[half - 1].ending
        if isinstance(last, Receipt):
            await wait_acks([last])
        for _ in range(half):
            await self._finish()

    async def _finish(self) -> None:
        first = self._waiting.popleft()
        self._held -= first.size
        if first.ready is None:
            known: Recorded | Refused | Awaitable[Recorded | Refused] = first.ending
            self._ended(first.number, known if isinstance(known, Recorded | Refused) else await known)
            return
        waiting: Receipt | Refused = first.ending
        began = time.monotonic()
        ended = await self._intake.finish(first.ready, waiting, timeout=self._timeout)
        self._ended(first.number, ended)
        if (waited := time.monotonic() - began) >= RETRY_SECONDS:
            self._timeout = max(0.0, self._timeout - waited)
            self._finish_together()

    def _finish_together(self) -> None:
        """The stream fails or fails no more: what is in the air tries again side by side, not in turn."""
        for place, one in enumerate(self._waiting):
            if one.ready is not None:
                finishing = self._intake.finish(one.ready, one.ending, timeout=self._timeout)
                self._waiting[place] = Waiting(one.number, one.size, None, asyncio.ensure_future(finishing))

    async def _wait(self) -> None:
        """Wait for a full backlog, and give up when the time is spent."""
        began = time.monotonic()
        if refusal := await self._backlog.room(began + self._timeout):
            self.given_up = refusal
        self._timeout = max(0.0, self._timeout - (time.monotonic() - began))

    def _ended(self, number: int, ended: Recorded | Refused) -> None:
        if isinstance(ended, Recorded):
            if ended.status == "recorded":
                self._backlog.sent()
        elif ended.reason in ("unavailable", "unconfirmed"):
            # Every further one would wait for a timeout of its own.
            self.given_up = self.given_up or Refused(
                reason="unavailable", message=f"not recorded: one before it was {ended.reason}"
            )
        self._tell(number, ended)
