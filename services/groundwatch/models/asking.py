"""How a model on somebody else's server is asked: in a slot, behind its circuit breaker, again within bounds.

Waiting inside a call is bounded: the event is still unacknowledged while it lasts. What outlasts the bound
goes to the runtime, which can wait for hours.
"""

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

from groundwatch.errors import GroundwatchError, RateLimited, TransientError, Unavailable, Unscorable
from groundwatch.events import Usage
from groundwatch.models.settings import AskingSettings, OnCall

T = TypeVar("T")

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


class RetryPolicy:
    """What one judgement may spend on waiting and trying again.

    `patience` bounds all its waits together, `retries` its second tries after faults; a rate limit costs
    only time. Waits double from `first_wait` and are jittered, so that callers do not come back together.
    """

    def __init__(self, settings: AskingSettings) -> None:
        self._retries = settings.retries
        self._seconds = settings.patience
        self._wait = settings.first_wait

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

    async def pause(self, seconds: float) -> bool:
        """Sleep for `seconds` and a little more; False when that is more than is left to spend."""
        return await self._sleep(seconds + self._wait * random.uniform(0.0, 0.5))

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


FACTOR = 10

ASKED_FOR: ContextVar[str] = ContextVar("asked_for", default="")
"""The event that a model is asked for; empty where nobody says, and each call is then its own."""


class Tracing(Protocol):
    """Who makes spans of requests."""

    def call(self, whom: str, attribute: str) -> AbstractContextManager[list[CallKind]]:
        """A span of one request while the block runs; a fault that is added to the list is its error."""
        ...


TRACING: ContextVar[Tracing | None] = ContextVar("tracing", default=None)
"""Set where the event that a model is asked for is traced."""

CALL_HEADERS: ContextVar[Mapping[str, str]] = ContextVar("call_headers", default={})  # noqa: B039
"""What a request that is traced carries, so that its server's spans are of the same trace."""

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
        self.is_open = False
        """Whether the model is away, as far as is known."""
        self._opens_until = 0.0
        self._trial = 0.0
        self._why = ""

    @property
    def why(self) -> str:
        """The last fault while the breaker is open; empty when it is closed."""
        return self._why if self.is_open else ""

    @property
    def remaining(self) -> float:
        """Seconds until it is worth asking again; 0 when a call may be made."""
        if not self.is_open:
            return 0.0
        left = self._opens_until - self._clock()
        return left if left > 0 else self._first if self._trial else 0.0

    def enter(self) -> float:
        """0 when a call may be made; else seconds until it is worth asking again.

        A call that was let in must report `succeeded`, `failed` or `left`.
        """
        wait = self.remaining
        if self.is_open and wait == 0.0:
            self._trial = self._clock() or 1.0
        return wait

    def succeeded(self) -> None:
        """The model answered: closed again."""
        self._faults, self._trial, self._pause, self._why = 0, 0.0, self._first, ""
        self.is_open = False
        self._failed.clear()

    def left(self) -> None:
        """The call ended without telling anything about the model: it was cancelled."""
        self._trial = 0.0

    def failed(self, why: str) -> None:
        self._faults += 1
        self._why = why
        if len(self._failed) < EVENTS:
            self._failed.add(ASKED_FOR.get() or object())
        if self.is_open or (self._faults >= self._limit and len(self._failed) >= min(EVENTS, self._limit)):
            self._open()

    def away(self, why: str) -> None:
        """The model is away for certain, whatever it was asked: nobody was there to be asked."""
        self._why = why
        if not self.is_open:
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
        self.is_open = True


class Calls:
    """All calls to one model, for any number of tasks. `slots` may be shared with other models.

    A fault is that of the call (`TransientError`) while the model answers others, and nobody's
    (`Unavailable`) while it is away: see `Breaker`. A server's wish to be left alone is shared by every call:
    each would else find out by itself, with one more request to an endpoint that has just asked for fewer.
    """

    def __init__(
        self,
        model: str,
        settings: AskingSettings,
        *,
        slots: asyncio.Semaphore,
        on_call: OnCall | None,
        attribute: str = "gen_ai.request.model",
    ) -> None:
        """`attribute` is what a span calls the model, or whoever else is asked."""
        self.model = model
        self._attribute = attribute
        self.breaker = Breaker(failures=settings.breaker_failures, pause=settings.breaker_pause)
        self._slots = slots
        self._on_call = on_call
        self._closed_until = 0.0

    def record(self, kind: CallKind, seconds: float, usage: Usage) -> None:
        if self._on_call is not None:
            self._on_call(kind.value, seconds, usage)

    async def persist(
        self, request: Callable[[], Awaitable[T | Fault]], policy: RetryPolicy
    ) -> tuple[T, float]:
        """What `request` brings and the seconds it took, after as many requests as `policy` allows.

        Raises `Unscorable`, `RateLimited` with the wait asked for, `Unavailable` or `TransientError`. Faults
        are recorded; an answer is still to be.
        """
        trial = False
        while True:
            async with self._slots:
                await self._pass_gate(policy)
                if (wait := self.breaker.enter()) > 0:
                    self.record(CallKind.LEFT_ALONE, 0.0, Usage())
                    left = self._unavailable(self._left_alone, trial, CallKind.LEFT_ALONE)
                    left.retry_after = wait
                    raise left
                trial = trial or self.breaker.is_open
                started = time.perf_counter()
                try:
                    outcome = await self._traced(request)
                except BaseException:
                    self.breaker.left()
                    raise
                seconds = time.perf_counter() - started
            if not isinstance(outcome, Fault):
                self.breaker.succeeded()
                return outcome, seconds
            self.record(outcome.kind, seconds, Usage())
            self._note(outcome)
            try:
                await policy.wait_out(outcome)
            except RateLimited as error:
                error.judge = self.model
                raise
            except TransientError as error:
                if outcome.away:
                    self.breaker.away(str(error))
                if self.breaker.is_open:
                    raise self._unavailable(str(error), trial, outcome.kind) from error
                raise

    async def _traced(self, request: Callable[[], Awaitable[T | Fault]]) -> T | Fault:
        if (tracing := TRACING.get()) is None:
            return await request()
        with tracing.call(self.model, self._attribute) as ended:
            outcome = await request()
            if isinstance(outcome, Fault):
                ended.append(outcome.kind)
        return outcome

    def answered(self) -> None:
        if self.breaker.remaining > 0:
            raise self._unavailable(self._left_alone, False, CallKind.LEFT_ALONE)

    def away(self, error: Exception) -> Unavailable:
        """What to raise when a question that no event can be to blame for was not answered."""
        self.breaker.away(str(error))
        return self._unavailable(str(error), True, CallKind.UNREACHABLE)

    async def _pass_gate(self, policy: RetryPolicy) -> None:
        while (wait := self._closed_until - time.monotonic()) > 0:
            if not await policy.pause(wait):
                why = "the judge's endpoint asked for a pause"
                raise RateLimited(why, judge=self.model, retry_after=wait)

    def _note(self, fault: Fault) -> None:
        if isinstance(fault.error, Unscorable):
            # It answered, if only that it will not judge this.
            self.breaker.succeeded()
            return
        if fault.kind is CallKind.RATE_LIMITED:
            self.breaker.left()
        else:
            self.breaker.failed(str(fault.error))
        if fault.retry_after is not None:
            self._closed_until = max(self._closed_until, time.monotonic() + fault.retry_after)

    @property
    def _left_alone(self) -> str:
        return f"left alone after faults: {self.breaker.why}"

    def _unavailable(self, why: str, trial: bool, kind: CallKind) -> Unavailable:
        error = Unavailable(why, judge=self.model, retry_after=self.breaker.remaining, trial=trial)
        error.kind = kind.value
        return error
