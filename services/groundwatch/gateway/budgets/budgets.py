"""Which responses are judged: decided by hashing below a probability, and by what a budget has left.

The rules, and what was spent, are in one bucket that every gateway follows, so a change is known everywhere
at once and needs no restart. What it lets through each gateway counts by itself, and asks nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from groundwatch.errors import UNDECODED, TransientError
from groundwatch.events import LIVE, Drawn, OutcomeKind, ResponseRecorded, ResponseScored
from groundwatch.gateway.budgets.rules import (
    DAY,
    MINUTE,
    PREFIX,
    STREAM,
    Budget,
    Spent,
    matching,
    spent_key,
    total,
)
from groundwatch.keys import bare_key
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import follow_stream
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.settings.gateway import SamplingRule
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.sampling import pace, uniform
from groundwatch.topology import BUDGETS_BUCKET, number_in


class Pace:
    """What comes to this gateway in a window of `period` seconds, and how many of it are `taken`."""

    def __init__(self, period: int) -> None:
        self._period = period
        self._window = self._seen = 0
        self._before = 0.0
        self.taken = 0

    def turn(self, now: float) -> int:
        """The window of this moment."""
        window = int(now // self._period)
        if window > self._window:
            # After a pause it is likelier to go on as it was than to have ended.
            fade = 0.5 ** min(window - self._window - 1, 50)
            self._before = fade * max(self._seen, 0.5 * self._before)
            self._window, self._seen, self.taken = window, 0, 0
        return self._window

    def probability(self, now: float, left: float) -> float:
        """With which probability to take the next response, so that `left` last until the window ends."""
        window = self.turn(now)
        return pace(left, self._before, self._seen, now / self._period - window)

    def count(self, now: float, *, taken: bool) -> int:
        """Count a response; the window that it counts in."""
        window = self.turn(now)
        self._seen += 1
        self.taken += taken
        return window

    def undo(self, window: int, *, taken: bool) -> None:
        """It had been there before: it neither came nor was taken."""
        if window == self._window:
            self._seen -= 1
            self.taken -= taken


TICK_SECONDS = 1.0
START_SECONDS = 10.0
PROBE = 20
"""Responses that may be in judging at once while nobody knows yet what one costs."""

WITHOUT_END = 10**9
MAX_SCOPES = 10_000

Key = tuple[str, str, str]


class BudgetState:
    """One budget with what was spent of it, and what this gateway has let through."""

    def __init__(self, name: str, budget: Budget, spent: dict[int, Spent]) -> None:
        self.name = name
        self.budget = budget
        self.by_partition = spent
        self.changed = False
        self.minute, self.day = Pace(MINUTE), Pace(DAY)
        self._today = 0
        self.judging: set[tuple[str, str]] = set()
        """What this gateway let through and nobody knows the cost of yet: response and protocol."""

    def probability(self, now: float) -> float:
        """With which probability a response is judged, as far as the budget goes."""
        chance = 1.0
        if (most := self.budget.responses_per_minute) is not None:
            self.minute.turn(now)
            chance = self.minute.probability(now, most - self.minute.taken)
        return min(chance, self.day.probability(now, self._left(now))) if self.budget.by_day else chance

    def count(self, now: float, response: str, protocol: str, *, taken: bool) -> Held:
        """Count a response of which it is not known yet whether it has been there before."""
        name = (bare_key(response), protocol)
        day = self.day.count(now, taken=taken)
        if day != self._today:
            self._today = day
            self.judging.clear()
        new = taken and self.budget.by_day and name not in self.judging
        if new:
            self.judging.add(name)
        return Held(self, taken, self.minute.count(now, taken=taken), day, name if new else None)

    def today(self, now: float) -> Spent:
        day = int(now // DAY)
        return self.spent if self.spent.day >= day else self.spent.turned(day)

    @property
    def spent(self) -> Spent:
        return total(self.by_partition.values())

    def charge(self, event: ResponseScored, sequence: int, partition: int = 0) -> None:
        """Count what an outcome has cost; one that was counted before, by whichever gateway, is left out."""
        self.judging.discard((bare_key(event.key), event.protocol))
        day = int(event.scored_at // DAY)
        spent, usage = self.by_partition.get(partition, Spent()), event.usage
        if sequence <= spent.sequence or day < spent.day:
            return
        if day > spent.day:
            spent = spent.turned(day)
        self.by_partition[partition] = msgspec.structs.replace(
            spent,
            tokens=spent.tokens + usage.input_tokens + usage.output_tokens,
            cost=spent.cost + usage.cost,
            judged=spent.judged + 1,
            sequence=sequence,
        )
        self.changed = True

    def _left(self, now: float) -> float:
        """How many responses more the rest of the day pays for at what one has cost on average, less those in
        judging; 0 for the moment where so many are in judging that their cost must be known first."""
        spent = self.today(now)
        left, known = float(WITHOUT_END), bool(spent.judged)
        for limit, used, usual in (
            (self.budget.tokens_per_day, spent.tokens, spent.usual_tokens),
            (self.budget.cost_per_day, spent.cost, spent.usual_cost),
        ):
            if limit is None:
                continue
            if used >= limit:
                return 0.0
            if each := used / spent.judged if spent.judged else usual:
                left, known = min(left, (limit - used) / each), True
        if not known:
            left = PROBE
        first_day = not (spent.usual_tokens or spent.usual_cost)
        at_once = min(left, max(PROBE, spent.judged)) if first_day else left
        judging = len(self.judging)
        return max(1.0, left - judging) if judging < max(1, int(at_once)) else 0.0


class Held(msgspec.Struct, frozen=True):
    """What a response has used of a budget, until it is known not to have been there before."""

    state: BudgetState
    taken: bool
    minute: int
    day: int
    judging: tuple[str, str] | None

    def undo(self) -> None:
        """The response was there before, or will never be: it used nothing."""
        self.state.minute.undo(self.minute, taken=self.taken)
        self.state.day.undo(self.day, taken=self.taken)
        if self.judging is not None:
            self.state.judging.discard(self.judging)


class Budgets:
    """Follows the bucket, and charges outcomes. `clock` gives seconds since 1970."""

    def __init__(self, bus: Bus, metrics: Metrics, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._bus = bus
        self._metrics = metrics
        self._store = Bucket(bus, BUDGETS_BUCKET, nameless=True)
        self._spent: dict[str, dict[int, Spent]] = {}
        """Of each budget by partition, also of one whose rule has yet to come."""
        self.states: dict[str, BudgetState] = {}
        self._scopes: dict[Key, BudgetState | None] = {}
        self._known = asyncio.Event()
        self._tasks = (
            SupervisedTask("gateway-budgets-follow", self._follow),
            SupervisedTask("gateway-budgets-tick", self._tick),
        )
        self._unwritten = False
        self._unknown = "budgets are not known yet"

    async def start(self) -> None:
        """Read the budgets, then follow them. What cannot be read is a `problem`, not an error."""
        for task in self._tasks:
            task.start()
        await until_set(self._known, START_SECONDS)

    async def stop(self) -> None:
        """Write down what was spent, and follow no more."""
        for task in self._tasks:
            await task.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_SECONDS):
                await self._write_changed()

    @property
    def problem(self) -> str:
        """Why what may be spent, or was, is not known; empty while it is."""
        return self._unknown or next((task.problem for task in self._tasks if task.problem), "")

    def state(self, tenant: str, model: str, protocol: str) -> BudgetState | None:
        key = (tenant, model, protocol)
        if key not in self._scopes:
            if len(self._scopes) >= MAX_SCOPES:
                self._scopes.clear()
            budgets = {name: state.budget for name, state in self.states.items()}
            self._scopes[key] = self.states.get(matching(budgets, *key))
        return self._scopes[key]

    def charge(self, event: ResponseScored, sequence: int, partition: int = 0) -> None:
        """Count what an outcome of live traffic has cost."""
        if not self.states or event.outcome is OutcomeKind.DECLINED or event.run != LIVE:
            return
        state = self.states.get(event.drawn.budget) or self.state(event.tenant, event.model, event.protocol)
        if state is not None and state.budget.by_day:
            state.charge(event, sequence, partition)

    async def settled(self) -> bool:
        """Write down what was spent; whether all that was charged until now is written, by whomever."""
        try:
            for state in [state for state in self.states.values() if state.budget.by_day]:
                await self._write(state)
        except TransientError:
            return False
        return True

    def forget(self) -> None:
        for state in self.states.values():
            for partition, spent in state.by_partition.items():
                state.by_partition[partition] = msgspec.structs.replace(spent, sequence=0)

    async def _follow(self) -> None:
        while True:
            following = follow_stream(self._bus.js, STREAM, subjects=[f"{PREFIX}>"], on_fault=self._fault)
            async for batch in following:
                for read in batch.messages:
                    try:
                        self._learn(read.subject.removeprefix(PREFIX), read.data)
                    except UNDECODED as error:
                        logger.error("budgets.unreadable", key=read.subject, error=str(error))
                if batch.pending == 0:
                    self._unknown = ""
                    self._known.set()
            # The bucket is not the one that was followed so far.
            for name in list(self.states):
                self._set(name, None)
            self._spent.clear()

    def _learn(self, key: str, data: bytes) -> None:
        kind, _, name = key.partition(".")
        if kind == "rule":
            self._set(name, msgspec.json.decode(data, type=Budget) if data else None)
        elif kind.startswith("spent") and data:
            # That of a new budget is there before its rule.
            held = self._spent.setdefault(name, {})
            written = msgspec.json.decode(data, type=Spent)
            partition = number_in(kind.removeprefix("spent").removeprefix("-p"))
            if written.sequence >= held.get(partition, Spent()).sequence:
                held[partition] = written

    def _set(self, name: str, budget: Budget | None) -> None:
        """Begin, change or end a budget."""
        self._metrics.forget_budget(name)
        if budget is None:
            self.states.pop(name, None)
            self._spent.pop(name, None)
        elif (state := self.states.get(name)) is not None:
            state.budget = budget
        else:
            self.states[name] = BudgetState(name, budget, self._spent.setdefault(name, {}))
        self._scopes.clear()
        logger.info("budgets.changed", budget=name, removed=budget is None)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await self._write_changed()
            self._show()

    async def _write_changed(self) -> None:
        """Write down what was spent. Faults are told once until it works again."""
        try:
            for state in [state for state in self.states.values() if state.changed]:
                await self._write(state)
            self._unwritten = False
        except TransientError as error:
            if not self._unwritten:
                logger.warning("budgets.unavailable", error=str(error))
            self._unwritten = True

    async def _write(self, state: BudgetState) -> None:
        """Of several gateways the one that has read furthest is right: all count the same outcomes."""
        state.changed = False
        try:
            for partition, spent in [*state.by_partition.items()]:

                def further(written: Spent | None, partition: int = partition, spent: Spent = spent) -> Any:
                    if written is None and (not partition or state.name not in self.states):
                        # Removed by somebody, and the budget with it: that will be heard of. Else the
                        # partition came after the budget.
                        return None
                    return written if written and written.sequence >= spent.sequence else spent

                await self._store.change(spent_key(state.name, partition), _read_spent, further)
        except BaseException:
            state.changed = True
            raise

    def _show(self) -> None:
        now = self.clock()
        for state in self.states.values():
            state.minute.turn(now)
            budget, today = state.budget, state.today(now)
            for resource, limit, used in (
                ("responses_per_minute", budget.responses_per_minute, state.minute.taken),
                ("tokens_per_day", budget.tokens_per_day, today.tokens),
                ("cost_per_day", budget.cost_per_day, today.cost),
            ):
                if limit is not None:
                    self._metrics.budget(state.name, resource, limit, used)

    def _fault(self, problem: str) -> None:
        if problem:
            if not self._unknown:
                logger.warning("budgets.unknown", problem=problem)
            hint = "run groundwatch admin provision if the bucket does not exist"
            self._unknown = f"budgets: {problem}: {hint}"
            self._known.set()
        elif self._known.is_set():
            self._unknown = ""


def _read_spent(data: bytes | None) -> Spent | None:
    return msgspec.json.decode(data, type=Spent) if data else None


SAMPLED_OUT = "sampled_out"
OVER_BUDGET = "over_budget"


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What is not judged and why, by protocol; how it was drawn; and what that has used of budgets."""

    declined: dict[str, str] = {}
    drawn: dict[str, Drawn] = {}
    held: tuple[Held, ...] = ()


def rule_for(rules: Sequence[SamplingRule], tenant: str, model: str, protocol: str) -> SamplingRule | None:
    """The first rule whose fields all match; None: everything is judged."""
    for rule in rules:
        if rule.tenant in ("", tenant) and rule.model in ("", model) and rule.protocol in ("", protocol):
            return rule
    return None


def decide(
    rules: Sequence[SamplingRule],
    budgets: Budgets | None,
    response: ResponseRecorded,
    protocols: Sequence[str],
    now: float,
) -> Decided:
    """Which of the protocols are judged for a response that comes at `now`, in seconds since 1970.

    The most precise budget decides, the settings' rules where it has no rate of its own; without a budget
    they decide alone. Every probability is fixed before the response's place in [0, 1) is looked at, which is
    uniform over ids and for ever: what a rate chooses, every higher rate under the same salt chooses too.
    """
    declined: dict[str, str] = {}
    drawn: dict[str, Drawn] = {}
    held: list[Held] = []
    tenant, model = response.tenant, response.model
    for protocol in protocols:
        rule = rule_for(rules, tenant, model, protocol) if rules else None
        state = budgets.state(tenant, model, protocol) if budgets is not None else None
        rate, salt = (1.0, "") if rule is None else (rule.rate, rule.salt)
        if state is not None:
            rate = rate if state.budget.rate is None else state.budget.rate
            salt = state.budget.salt or salt
        elif rate >= 1.0:
            continue
        place = uniform(salt, tenant, model, protocol, response.id)
        if state is None:
            drawn[protocol] = Drawn(probability=rate, lowest=rate)
            if place >= rate:
                declined[protocol] = SAMPLED_OUT
            continue
        chance = min(rate, state.probability(now))
        drawn[protocol] = Drawn(probability=chance, lowest=chance, budget=state.name)
        taken = place < chance
        if not taken:
            declined[protocol] = SAMPLED_OUT if place >= rate else OVER_BUDGET
        held.append(state.count(now, response.key, protocol, taken=taken))
    return Decided(declined=declined, drawn=drawn, held=tuple(held))
