"""How a model on somebody else's server is asked: in a slot, behind its breaker, again within bounds."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from groundwatch.errors import RateLimited, TransientError, Unavailable, Unscorable
from groundwatch.events import Usage
from groundwatch.models.asking.breaker import Breaker
from groundwatch.models.asking.retry_policy import CallKind, Fault, Gate, RetryPolicy

T = TypeVar("T")

Record = Callable[[CallKind, float, Usage], None]


class Calls:
    """All calls to one model, for any number of tasks. `slots` may be shared with other models.

    A fault is that of the call (`TransientError`) while the model answers others, and nobody's
    (`Unavailable`) while it is away: see `Breaker`.
    """

    def __init__(self, model: str, *, slots: asyncio.Semaphore, breaker: Breaker, record: Record) -> None:
        self.model = model
        self.breaker = breaker
        self._slots = slots
        self._gate = Gate()
        self._record = record

    async def persist(
        self, request: Callable[[], Awaitable[T | Fault]], policy: RetryPolicy
    ) -> tuple[T, float]:
        """What `request` brings and the seconds it took, after as many requests as `policy` allows.

        Raises `Unscorable`, `RateLimited` with the wait asked for, `Unavailable` or `TransientError`. Faults
        are recorded; an answer is still to be.
        """
        try:
            return await self._persist(request, policy)
        except RateLimited as error:
            error.judge = self.model
            raise

    async def _persist(
        self, request: Callable[[], Awaitable[T | Fault]], policy: RetryPolicy
    ) -> tuple[T, float]:
        trial = False
        while True:
            async with self._slots:
                await policy.pass_through(self._gate)
                self._refuse_while_away(trial)
                trial = trial or self.breaker.is_open
                started = time.perf_counter()
                try:
                    outcome = await request()
                except BaseException:
                    self.breaker.left()
                    raise
                seconds = time.perf_counter() - started
            if not isinstance(outcome, Fault):
                self.breaker.succeeded()
                return outcome, seconds
            self._record(outcome.kind, seconds, Usage())
            self._note(outcome)
            try:
                await policy.wait_out(outcome)
            except RateLimited:
                raise
            except TransientError as error:
                if outcome.away:
                    self.breaker.away(str(error))
                if self.breaker.is_open:
                    raise self._unavailable(str(error), trial, outcome.kind) from error
                raise

    def answered(self) -> None:
        """Raise `Unavailable` while nobody answers, without asking."""
        if self.breaker.remaining > 0:
            raise self._unavailable(self._left_alone, False, CallKind.LEFT_ALONE)

    def away(self, error: Exception) -> Unavailable:
        """What to raise when a question that no event can be to blame for was not answered."""
        self.breaker.away(str(error))
        return self._unavailable(str(error), True, CallKind.UNREACHABLE)

    def _refuse_while_away(self, trial: bool) -> None:
        if (wait := self.breaker.enter()) > 0:
            self._record(CallKind.LEFT_ALONE, 0.0, Usage())
            error = self._unavailable(self._left_alone, trial, CallKind.LEFT_ALONE)
            error.retry_after = wait
            raise error

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
            self._gate.close_for(fault.retry_after)

    @property
    def _left_alone(self) -> str:
        return f"left alone after faults: {self.breaker.why}"

    def _unavailable(self, why: str, trial: bool, kind: CallKind) -> Unavailable:
        error = Unavailable(why, judge=self.model, retry_after=self.breaker.remaining, trial=trial)
        error.kind = kind.value
        return error
