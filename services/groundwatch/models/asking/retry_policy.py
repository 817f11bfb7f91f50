"""How long a call to somebody else's server is tried before its event is handed back.

Waiting inside a call is bounded: the event is still unacknowledged while it lasts. What outlasts the bound
goes to the runtime, which can wait for hours.
"""

import asyncio
import math
import random
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

import msgspec

from groundwatch.errors import GroundwatchError, RateLimited, TransientError

MAX_RETRY_AFTER = 600.0
"""Longest wait a server may ask of us, in seconds: one absurd header must not stop judging for a day."""


class CallKind(StrEnum):
    """How one request to a judge ended. Bounded: it becomes a metric label.

    Those that make a response unscored are named as the reason is.
    """

    OK = "ok"
    UNPARSABLE_REPLY = "unparsable_reply"
    CUT_OFF = "cut_off"
    REFUSED = "refused"
    EMPTY_REPLY = "empty_reply"
    JUDGE_REJECTED_REQUEST = "judge_rejected_request"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    SERVER_ERROR = "server_error"
    NOT_A_COMPLETION = "not_a_completion"
    MISCONFIGURED = "misconfigured"
    UNREADABLE_IMAGE = "unreadable_image"
    PROMPT_TOO_LONG = "prompt_too_long"
    NOT_FINITE = "not_finite"
    BAD_REPLY = "bad_reply"
    LEFT_ALONE = "left_alone"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A request that got no answer: what to raise when retries end, and whether to try before.

    `retry_after` is in seconds, where the server said so. `away`: whatever had been asked, there would have
    been no answer; any other fault may be due to what was asked.
    """

    kind: CallKind
    error: GroundwatchError
    passes: bool = False
    away: bool = False
    retry_after: float | None = None


class Gate:
    """A server's wish to be left alone, shared by every call to it.

    Without it, each waiting call would find out by itself, with one more request to an endpoint that has
    just asked for fewer.
    """

    def __init__(self) -> None:
        self._opens_at = 0.0

    def close_for(self, seconds: float) -> None:
        """Keep everybody out for `seconds` from now, or longer if they already are."""
        self._opens_at = max(self._opens_at, time.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds until it opens; 0 when it is open."""
        return max(0.0, self._opens_at - time.monotonic())


class RetryPolicy:
    """What one judgement may spend on waiting and trying again.

    `seconds` bounds all its waits together, `retries` its second tries after faults; a rate limit costs
    only time. Waits double from `first_wait` and are jittered, so that callers do not come back together.
    """

    def __init__(self, *, retries: int, seconds: float, first_wait: float) -> None:
        self._retries = retries
        self._seconds = seconds
        self._wait = first_wait

    async def wait_out(self, fault: Fault) -> None:
        """Sleep before the next try. Raises the fault's error when there is to be none."""
        if isinstance(fault.error, TransientError):
            fault.error.kind = fault.kind.value
        if not fault.passes:
            raise fault.error
        if fault.kind is not CallKind.RATE_LIMITED:
            self._retries -= 1
            if self._retries < 0:
                raise fault.error
        backoff = self._wait * random.uniform(0.5, 1.0)
        self._wait *= 2
        if not await self._sleep(max(fault.retry_after or 0.0, 0.0) + backoff):
            raise fault.error

    async def pass_through(self, gate: Gate) -> None:
        """Wait until `gate` is open. Raises `RateLimited` when that takes longer than is allowed."""
        while (remaining := gate.remaining) > 0:
            if not await self._sleep(remaining + self._wait * random.uniform(0.0, 0.5)):
                raise RateLimited("the judge's endpoint asked for a pause", retry_after=remaining)

    async def _sleep(self, seconds: float) -> bool:
        if seconds > self._seconds:
            return False
        self._seconds -= seconds
        await asyncio.sleep(seconds)
        return True


def retry_after(headers: dict[str, str]) -> float | None:
    """Seconds that a server asks us to wait, from `Retry-After` (seconds or a date) or `retry-after-ms`.

    None when it does not say or what it says is no time. Header names are in lower case.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return min(seconds, MAX_RETRY_AFTER)
    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return min(max(0.0, (when - datetime.now(UTC)).total_seconds()), MAX_RETRY_AFTER)
