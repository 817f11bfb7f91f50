"""Which responses are judged: decided by hashing below a probability, and by what a budget has left.

The rules and all counts are in one bucket that every gateway follows, so a change is known everywhere at
once and needs no restart. Nothing here is asked of the server response by response: see `LeasedCounter`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from groundwatch.errors import UNDECODED, TransientError
from groundwatch.events import LIVE, Drawn, OutcomeKind, ResponseRecorded, ResponseScored
from groundwatch.gateway.budgets.rules import (
    DAY,
    MINUTE,
    PREFIX,
    STREAM,
    Budget,
    Count,
    Spent,
    matching,
    read_count,
    spent_key,
    total,
)
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import follow_stream
from groundwatch.runtime.services.tasks import SupervisedTask, cancelled, until_set
from groundwatch.runtime.settings.gateway import SamplingRule
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.sampling import pace, uniform
from groundwatch.topology import BUDGETS_BUCKET, number_in

LEASES = 50
"""A lease is about so small a part of the limit."""

MAX_LEASE = 1_000


class Limit(NamedTuple):
    """How many responses may be leased in all, and how many to reckon with in the end.

    The two differ where what a response costs is not known yet: then few are let through at first.
    """

    most: int
    aim: float


class LeasedCounter:
    """Takes leases, paces what is judged, and counts what comes. `period` in seconds.

    A lease is taken by compare-and-set, so what all gateways hold and have used never sums to more than the
    limit, whoever dies: a lease that is not given back is lost until its window ends, and no more than that.
    """

    def __init__(self, key: str, period: int, store: Bucket, limit: Callable[[], Limit]) -> None:
        self.key = key
        self._period = period
        self._store = store
        self._limit = limit
        self._shared = Count()
        self._revision = 0
        self._window = 0
        self._held = self._fresh = self._late = 0
        self._changing = asyncio.Lock()

    def learn(self, data: bytes, revision: int) -> None:
        """Take in what stands in the bucket."""
        if revision > self._revision:
            self._shared, self._revision = read_count(data), revision

    def turn(self, now: float) -> int:
        """The window of this moment. What was leased for an earlier one is worth nothing any more."""
        window = int(now // self._period)
        if window > self._window:
            self._late = self._fresh if window == self._window + 1 else 0
            self._window, self._held, self._fresh = window, 0, 0
        return self._window

    def used(self, now: float) -> int:
        """Responses that all gateways have leased in this window, less what this one still holds."""
        self.turn(now)
        return self._now().leased - self._held

    def dry(self, now: float) -> bool:
        """Whether nothing is left here while there is more to be leased."""
        self.turn(now)
        count = self._now()
        return count.window == self._window and self._held <= 0 and count.leased < self._limit().most

    def probability(self, now: float) -> float:
        """With which probability the next response is judged: 0 where nothing is left here."""
        window = self.turn(now)
        count, aim = self._now(), self._limit().aim
        if self._held <= 0 or aim <= 0:
            return 0.0
        left = max(1.0, aim - count.leased + self._held)
        return pace(left, count.before, count.seen + self._fresh, now / self._period - window)

    def count(self, now: float, *, taken: bool) -> int:
        """Count a response, and with `taken` use one of what is held; the window that it counts in."""
        window = self.turn(now)
        self._fresh += 1
        self._held -= taken
        return window

    def undo(self, window: int, *, taken: bool) -> None:
        """The response had been there before: it neither came nor used anything."""
        if window == self._window:
            self._fresh -= self._fresh > 0
            self._held += taken

    async def lease(self, now: float) -> None:
        """Lease some where nothing is held. Raises `TransientError` when nobody answers."""
        self.turn(now)

        def wanted(count: Count) -> int:
            most = self._limit().most
            left = most - count.leased
            return min(left, max(1, min(most // LEASES, MAX_LEASE))) if self._held <= 0 and left > 0 else 0

        window, granted = await self._change(wanted)
        if window == self._window:
            self._held += granted

    async def publish(self) -> None:
        if self._fresh or self._late:
            await self._change(lambda count: 0)

    def give_back(self) -> Coroutine[Any, Any, None]:
        """Hold nothing from now on. Awaited, others can use what was held; when that fails it is lost."""
        held, self._held = self._held, 0
        return self._return(self._window, held)

    async def _return(self, window: int, held: int) -> None:
        if window == self._window and held:
            await self._change(lambda count: -held)

    def _now(self) -> Count:
        """The shared count as of this window: the beginning of one that nobody has written about yet.

        One that is ahead of this gateway's clock comes as it is, and nothing can be leased of it.
        """
        shared = self._shared
        if shared.window >= self._window:
            return shared
        # After a pause it is likelier to go on as it was than to have ended.
        fade = 0.5 ** min(self._window - shared.window - 1, 50)
        return Count(window=self._window, before=fade * max(shared.seen, 0.5 * shared.before))

    async def _change(self, wanted: Callable[[Count], int]) -> tuple[int, int]:
        """Add to what is leased, and tell what was seen: the window that it was for, and what was granted."""
        async with self._changing:
            window, fresh, late, grant = self._window, self._fresh, self._late, 0

            def changed(shared: Count) -> Count:
                nonlocal grant
                self._shared, grant = shared, 0
                count = self._now()
                if count.window != window or self._window != window:
                    return shared
                grant = wanted(count)
                if not (grant or fresh or late):
                    return shared
                return Count(
                    window=window,
                    leased=count.leased + grant,
                    seen=count.seen + fresh,
                    before=count.before + late,
                )

            # Where an error leaves open whether it was written, nothing is held of it: at worst it is lost.
            self._shared = await self._store.change(self.key, read_count, changed)
            if self._shared.window == window == self._window:
                self._fresh -= fresh
                self._late -= late
        return window, grant


TICK_SECONDS = 1.0
START_SECONDS = 10.0
PROBE = 20
"""Responses that may be in judging at once while nobody knows yet what one costs."""

WITHOUT_END = 10**9
MAX_SCOPES = 10_000

Key = tuple[str, str, str]


class BudgetState:
    """One budget with its counters and what was spent of it."""

    def __init__(self, name: str, budget: Budget, store: Bucket, of: Budgets) -> None:
        self.name = name
        self.budget = budget
        self.by_partition: dict[int, Spent] = {}
        self.changed = False
        self._of = of
        self.minute = LeasedCounter(f"minute.{name}", MINUTE, store, self._of_minute)
        self.day = LeasedCounter(f"day.{name}", DAY, store, self._of_day)

    @property
    def counters(self) -> list[LeasedCounter]:
        counters = [self.minute] if self.budget.responses_per_minute is not None else []
        return [*counters, self.day] if self.budget.by_day else counters

    def probability(self, now: float) -> float:
        """With which probability a response is judged, as far as the budget goes."""
        return min((counter.probability(now) for counter in self.counters), default=1.0)

    def today(self, now: float) -> Spent:
        day = int(now // DAY)
        return self.spent if self.spent.day >= day else self.spent.turned(day)

    @property
    def spent(self) -> Spent:
        return total(self.by_partition.values())

    def charge(self, event: ResponseScored, sequence: int, partition: int = 0) -> None:
        """Count what an outcome has cost; one that was counted before, by whichever gateway, is left out."""
        day = int(event.scored_at // DAY)
        spent, usage = self.by_partition.get(partition, Spent()), event.usage
        if sequence <= spent.sequence or day < spent.day:
            return
        if day > spent.day:
            spent = spent.turned(day)
        own = event.drawn.budget == self.name and int(event.recorded_at // DAY) == day
        self.by_partition[partition] = msgspec.structs.replace(
            spent,
            tokens=spent.tokens + usage.input_tokens + usage.output_tokens,
            cost=spent.cost + usage.cost,
            judged=spent.judged + 1,
            drawn=spent.drawn + own,
            sequence=sequence,
        )
        self.changed = True

    def _of_minute(self) -> Limit:
        most = self.budget.responses_per_minute or 0
        return Limit(most, float(most))

    def _of_day(self) -> Limit:
        """What is left in money, as responses at what one has cost on average."""
        spent = self.today(self._of.clock())
        left, known = float(WITHOUT_END), bool(spent.judged)
        for limit, used, usual in (
            (self.budget.tokens_per_day, spent.tokens, spent.usual_tokens),
            (self.budget.cost_per_day, spent.cost, spent.usual_cost),
        ):
            if limit is None:
                continue
            if used >= limit:
                return Limit(0, 0.0)
            if each := used / spent.judged if spent.judged else usual:
                left, known = min(left, (limit - used) / each), True
        if not known:
            left = PROBE
        first_day = not (spent.usual_tokens or spent.usual_cost)
        at_once = min(left, max(PROBE, spent.judged)) if first_day else left
        return Limit(spent.drawn + max(1, int(at_once)), spent.drawn + left)


class Budgets:
    """Follows the bucket, leases ahead of need, and charges outcomes. `clock` gives seconds since 1970."""

    def __init__(self, bus: Bus, metrics: Metrics, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._bus = bus
        self._metrics = metrics
        self._store = Bucket(bus, BUDGETS_BUCKET, nameless=True)
        self._raw: dict[str, tuple[bytes, int]] = {}
        self.states: dict[str, BudgetState] = {}
        self._scopes: dict[Key, BudgetState | None] = {}
        self._known = asyncio.Event()
        self._tasks = (
            SupervisedTask("gateway-budgets-follow", self._follow),
            SupervisedTask("gateway-budgets-tick", self._tick),
        )
        self._returning: set[asyncio.Task[None]] = set()
        self._leasing = ""
        self._unknown = "budgets are not known yet"

    async def start(self) -> None:
        """Read the budgets, then follow them. What cannot be read is a `problem`, not an error."""
        for task in self._tasks:
            task.start()
        await until_set(self._known, START_SECONDS)

    async def stop(self) -> None:
        """Give back what is leased, and follow no more."""
        for task in self._tasks:
            await task.stop()
        await cancelled(self._returning)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_SECONDS):
                await self._synchronise()
                for state in self.states.values():
                    for counter in state.counters:
                        await self._tried(counter.give_back())

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

    def dry(self, tenant: str, model: str, protocols: tuple[str, ...]) -> list[LeasedCounter]:
        """What should be leased before a response of these is decided."""
        now = self.clock()
        states = (self.state(tenant, model, protocol) for protocol in protocols)
        counters = (counter for state in states if state is not None for counter in state.counters)
        return [counter for counter in counters if counter.dry(now)]

    async def lease(self, dry: Iterable[LeasedCounter]) -> None:
        """Lease for many responses at once. Where that fails nothing more is judged for now."""
        for counter in dry:
            if counter.dry(self.clock()):
                await self._tried(counter.lease(self.clock()))

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
                        self._learn(read.subject.removeprefix(PREFIX), read.data, read.sequence)
                    except UNDECODED as error:
                        logger.error("budgets.unreadable", key=read.subject, error=str(error))
                if batch.pending == 0:
                    self._unknown = ""
                    self._known.set()
            # The bucket is not the one that was followed so far.
            self._raw.clear()
            for name in list(self.states):
                self._set(name, None)

    def _learn(self, key: str, data: bytes, sequence: int) -> None:
        self._raw[key] = (data, sequence)
        kind, _, name = key.partition(".")
        if kind == "rule":
            self._set(name, msgspec.json.decode(data, type=Budget) if data else None)
        elif (state := self.states.get(name)) is not None:
            self._inform(state, kind)

    def _inform(self, state: BudgetState, kind: str) -> None:
        data, sequence = self._raw.get(f"{kind}.{state.name}", (b"", 0))
        match kind:
            case "minute":
                state.minute.learn(data, sequence)
            case "day":
                state.day.learn(data, sequence)
            case _ if kind.startswith("spent") and data:
                written = msgspec.json.decode(data, type=Spent)
                partition = number_in(kind.removeprefix("spent").removeprefix("-p"))
                held = state.by_partition.get(partition, Spent())
                if written.sequence >= held.sequence:
                    state.by_partition[partition] = written

    def _set(self, name: str, budget: Budget | None) -> None:
        """Begin, change or end a budget. What was leased under the old one is given back at once."""
        state = self.states.get(name)
        if state is not None and state.budget != budget:
            for counter in state.counters:
                task = asyncio.ensure_future(self._tried(counter.give_back()))
                self._returning.add(task)
                task.add_done_callback(self._returning.discard)
        if budget is not None and state is None:
            state = self.states[name] = BudgetState(name, budget, self._store, self)
            kinds = {key.partition(".")[0] for key in self._raw if key.partition(".")[2] == name}
            for kind in kinds:
                self._inform(state, kind)
        else:
            self._metrics.forget_budget(name)
        if budget is None:
            self.states.pop(name, None)
        elif state is not None:
            state.budget = budget
        self._scopes.clear()
        logger.info("budgets.changed", budget=name, removed=budget is None)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await self._synchronise()
            self._show()

    async def _synchronise(self) -> None:
        """Tell the others what came here, and write down what was spent."""
        for state in list(self.states.values()):
            for counter in state.counters:
                counter.turn(self.clock())
                await self._tried(counter.publish())
            if state.changed:
                await self._tried(self._write(state))

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

    async def _tried(self, work: Coroutine[Any, Any, object]) -> None:
        """Faults are told once until it works again; meanwhile nothing is leased, so nothing goes over."""
        try:
            await work
            self._leasing = ""
        except TransientError as error:
            if not self._leasing:
                logger.warning("budgets.unavailable", error=str(error))
            self._leasing = str(error)

    def _show(self) -> None:
        now = self.clock()
        for state in self.states.values():
            budget, today = state.budget, state.today(now)
            for resource, limit, used in (
                ("responses_per_minute", budget.responses_per_minute, state.minute.used(now)),
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


class Held(msgspec.Struct, frozen=True):
    """What a response has used of a budget, until it is known not to have been there before."""

    taken: bool
    windows: tuple[tuple[LeasedCounter, int], ...]

    def undo(self) -> None:
        """The response was there before, or will never be: it used nothing."""
        for counter, window in self.windows:
            counter.undo(window, taken=self.taken)


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
        windows = ((counter, counter.count(now, taken=taken)) for counter in state.counters)
        held.append(Held(taken, tuple(windows)))
    return Decided(declined=declined, drawn=drawn, held=tuple(held))
