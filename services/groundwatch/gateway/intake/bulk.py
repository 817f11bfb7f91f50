"""Many responses in one request, each line on its own."""

from collections.abc import AsyncIterator, Callable

import msgspec

from groundwatch.gateway.auth.callers import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.http.bodies import Lines, TooLarge
from groundwatch.gateway.http.receiving import SlowSender, TooMuchHeld
from groundwatch.gateway.intake.parsing import Submission, read_submission
from groundwatch.gateway.intake.results import Recorded, Refused
from groundwatch.gateway.intake.window import TIMEOUT, Window

__all__ = ["TIMEOUT", "Bulk", "CutShort", "LineError", "Summary"]

MAX_ERRORS = 100


class LineError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why one line was refused. Lines count from 1."""

    line: int
    error: str
    reason: str
    field: str = ""
    id: str = ""


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
    errors: list[LineError] = []


class CutShort(Exception):
    """A bulk request that was not read to its end, and why; what was read is counted in `summary`."""

    def __init__(self, summary: Summary, why: Exception) -> None:
        super().__init__(str(why))
        self.summary = summary
        self.why = why


class Bulk:
    """One bulk request."""

    def __init__(self, core: GatewayCore, caller: Caller, hold: Callable[[int], None]) -> None:
        """`hold` is told how many bytes it holds."""
        self._bounds = core.bounds
        self._hold = hold
        self._caller = caller
        self._window = Window(core, self._ended, timeout=TIMEOUT)
        self.summary = Summary()

    async def read(self, chunks: AsyncIterator[bytes]) -> Summary:
        """Record every line. However the sending ends, what was sent in full is recorded.

        Raises `CutShort` when it did not come to its end.
        """
        lines = Lines(self._bounds.line)
        try:
            async for chunk in chunks:
                for number, line in lines.feed(chunk):
                    await self._take(number, line)
                self._hold(lines.held + self._window.held)
            for number, line in lines.finish():
                await self._take(number, line)
        except (SlowSender, TooMuchHeld) as error:
            await self._window.drain()
            if self.summary.retry_from is None:
                self.summary.retry_from = lines.number + 1
            raise CutShort(self.summary, error) from error
        finally:
            await self._window.drain()
        return self.summary

    async def _take(self, number: int, line: bytes | TooLarge) -> None:
        if isinstance(line, TooLarge):
            message = f"the line has more than {line.limit} bytes"
            await self._window.refused(number, Refused(reason="too_large", message=message))
            return

        def read() -> Submission | Refused:
            return read_submission(line, self._bounds, self._caller)

        await self._window.put(number, len(line), read)

    def _ended(self, number: int, ended: Recorded | Refused) -> None:
        summary = self.summary
        if isinstance(ended, Recorded):
            if ended.status == "recorded":
                summary.accepted += 1
            else:
                summary.duplicates += 1
            return
        summary.refused += 1
        if ended.passing and (summary.retry_from is None or number < summary.retry_from):
            summary.retry_from = number
        # Without its id, one that may be recorded could not be sent again as the same.
        if len(summary.errors) < MAX_ERRORS or ended.unsure:
            summary.errors.append(
                LineError(
                    line=number, error=ended.message, reason=ended.reason, field=ended.field, id=ended.id
                )
            )
