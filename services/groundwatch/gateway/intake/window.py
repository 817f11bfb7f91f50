"""Responses on their way into the stream: a bounded number in the air, ended in the order they came.

Taking goes on only as room comes free, so a sender that is faster than the stream is held up by its own
flow control, and memory does not depend on how much it sends.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import msgspec

from groundwatch.gateway.auth import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.requests import Lines
from groundwatch.gateway.intake.intake import RETRY_SECONDS, Ready
from groundwatch.gateway.intake.submissions import Submission, read_submission
from groundwatch.gateway.refusals import ANSWER_SECONDS, Recorded, Refused, outcome_of
from groundwatch.runtime.delivery.bus import Receipt, wait_acks

TURN_SECONDS = 0.02
"""So long one request's responses are taken before others have a turn: what is refused at once waits for
nothing by itself."""

TIMEOUT = ANSWER_SECONDS
"""Seconds that one request waits in all for a full or absent stream."""

HELD_BYTES = 8 * 1024 * 1024
"""Bytes of responses in the air; one alone may be larger."""


class Waiting(msgspec.Struct, frozen=True):
    """One in the air. `ending` was sent, is an awaitable of its end, or its end where that is known.

    `tenant` is empty for one that was not admitted.
    """

    number: int
    size: int
    ending: Any
    tenant: str = ""


class Window:
    """The responses of one request; `_tell` hears how each ended, in order."""

    def __init__(self, core: GatewayCore, caller: Caller) -> None:
        self._core = core
        self._intake = core.intake
        self._backlog = core.backlog
        self._bounds = core.bounds
        self._caller = caller
        self._in_flight = core.settings.intake.in_flight
        self._timeout = TIMEOUT
        self._waiting: deque[Waiting] = deque()
        self._held = 0
        self._turned = time.monotonic()
        self.given_up: Refused | None = None
        """Why nothing more is taken: what is put is refused with it."""

    def _tell(self, number: int, ended: Recorded | Refused) -> None:
        raise NotImplementedError

    async def put(self, number: int, size: int, read: Callable[[], Submission]) -> None:
        """Take the response that `read` returns; `size` in bytes. Waits for room, and for the backlog."""
        await self._take_turns()
        try:
            await self._wait()
            submission = read()
            self._core.admission.admit(submission.response.tenant, id=submission.response.id)
        except Refused as error:
            await self.refused(number, error.but())
            return
        while self._waiting and (len(self._waiting) >= self._in_flight or self._held + size > HELD_BYTES):
            await self._make_room()
        self._held += size
        tenant = submission.response.tenant
        self._waiting.append(Waiting(number, size, await self._start(submission), tenant))
        self._added()

    async def refused(self, number: int, refused: Refused) -> None:
        """Take one that is refused already: it is told in its turn."""
        await self._take_turns()
        while len(self._waiting) >= self._in_flight:
            await self._make_room()
        self._waiting.append(Waiting(number, 0, refused))
        self._added()

    async def _take_turns(self) -> None:
        if time.monotonic() - self._turned > TURN_SECONDS:
            await asyncio.sleep(0)
            self._turned = time.monotonic()

    async def drain(self) -> None:
        while self._waiting:
            await self._finish()

    async def _start(self, submission: Submission) -> Any:
        images = submission.images
        if self._intake.blind or submission.earlier_images or not self._intake.attachments.known(images):
            recording = self._intake.record(submission, timeout=self._timeout)
            return asyncio.ensure_future(outcome_of(recording))
        if images:
            response = msgspec.structs.replace(submission.response, images=tuple(map(str, images)))
            submission = msgspec.structs.replace(submission, response=response, images=())
        sent = await outcome_of(self._intake.send(submission))
        if not isinstance(sent, Ready):
            self._give_up(sent)
        return sent

    def _added(self) -> None:
        """For who finishes beside."""

    async def _make_room(self) -> None:
        """Finish the older half: one wait for many, since acknowledgements come in order."""
        half = (len(self._waiting) + 1) // 2
        last = self._waiting[half - 1].ending
        if isinstance(last, Ready) and isinstance(last.receipt, Receipt):
            await wait_acks([last.receipt])
        for _ in range(half):
            await self._finish()

    async def _finish(self) -> None:
        first = self._waiting.popleft()
        self._held -= first.size
        ended = ending = first.ending
        began = time.monotonic()
        try:
            if isinstance(ending, Ready):
                ended = await outcome_of(self._intake.finish(ending, timeout=self._timeout))
            elif not isinstance(ending, Recorded | Refused):
                ended = await asyncio.shield(ending)
        except asyncio.CancelledError:
            # It may be sent: who drains the window after its caller has gone counts it.
            self._waiting.appendleft(first)
            self._held += first.size
            raise
        self._ended(first.number, ended, first.tenant)
        if isinstance(ending, Ready) and (waited := time.monotonic() - began) >= RETRY_SECONDS:
            self._timeout = max(0.0, self._timeout - waited)
            # The stream fails or fails no more: what is in the air tries again side by side, not in turn.
            for place, waiting in enumerate(self._waiting):
                if isinstance(waiting.ending, Ready):
                    again = outcome_of(self._intake.finish(waiting.ending, timeout=self._timeout))
                    ending = asyncio.ensure_future(again)
                    self._waiting[place] = msgspec.structs.replace(waiting, ending=ending)

    async def _wait(self) -> None:
        """For the backlog. Raises `Refused` where nothing more is taken."""
        if self.given_up is None and self._backlog.refusal() is not None:
            began = time.monotonic()
            try:
                await self._backlog.room(began + self._timeout)
            except Refused as error:
                self.given_up = error.but()
            self._timeout = max(0.0, self._timeout - (time.monotonic() - began))
        if self.given_up is not None:
            raise self.given_up.but()

    def _ended(self, number: int, ended: Recorded | Refused, tenant: str) -> None:
        if isinstance(ended, Refused):
            self._intake.count(ended)
        if tenant:
            self._core.ended(ended, tenant)
        self._give_up(ended)
        self._tell(number, ended)

    def _give_up(self, ended: Recorded | Refused) -> None:
        """Take nothing more behind one that could not be recorded: every further one would wait for a timeout
        of its own."""
        if (
            self.given_up is None
            and isinstance(ended, Refused)
            and ended.reason in ("unavailable", "unconfirmed")
        ):
            message = f"not recorded: one before it was {ended.reason}"
            self.given_up = Refused("unavailable", message)


MAX_ERRORS = 100


class Summary(msgspec.Struct, kw_only=True):
    """What became of a bulk request.

    `errors` are the first hundred, and all that are unconfirmed. `retry_from` is the first line that was
    refused for no fault of its own: sending from there again, each line with its id, loses and doubles
    nothing.
    """

    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    retry_from: int | None = None
    errors: list[dict[str, Any]] = []


class Bulk(Window):
    def __init__(self, core: GatewayCore, caller: Caller, hold: Callable[[int], None]) -> None:
        """`hold` is told how many bytes it holds."""
        super().__init__(core, caller)
        self._hold = hold
        self.summary = Summary()
        self.retry_after = 0
        """Seconds after which to send the rest again, where some were beyond a tenant's rate."""

    async def read(self, chunks: AsyncIterator[bytes]) -> Summary:
        """Record every line. However the sending ends, what was sent in full is recorded.

        Raises `Refused`, with the summary in its details, when it did not come to its end.
        """
        lines = Lines(self._bounds.line)
        with self._core.reading():
            try:
                async for chunk in chunks:
                    for number, line in lines.feed(chunk):
                        await self._take(number, line)
                    self._hold(lines.held + self._held)
                for number, line in lines.finish():
                    await self._take(number, line)
            except Refused as error:
                await self.drain()
                if self.summary.retry_from is None:
                    self.summary.retry_from = lines.number + 1
                error.details = msgspec.structs.asdict(self.summary)
                raise
            finally:
                await self.drain()
        return self.summary

    async def _take(self, number: int, line: bytes | Refused) -> None:
        if isinstance(line, Refused):
            await self.refused(number, line)
        else:
            await self.put(number, len(line), partial(read_submission, line, self._bounds, self._caller))

    def _tell(self, number: int, ended: Recorded | Refused) -> None:
        summary = self.summary
        if isinstance(ended, Recorded):
            summary.accepted += ended.status == "recorded"
            summary.duplicates += ended.status == "duplicate"
            return
        summary.refused += 1
        if ended.reason == "rate_limited":
            self.retry_after = max(self.retry_after, ended.retry_after)
        if ended.passing and (summary.retry_from is None or number < summary.retry_from):
            summary.retry_from = number
        # Without its id, one that may be recorded could not be sent again as the same.
        if len(summary.errors) < MAX_ERRORS or ended.unsure:
            summary.errors.append({"line": number, **ended.told()})
