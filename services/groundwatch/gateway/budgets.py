"""Which responses are judged: decided by hashing below a probability, and by what a budget has left.

Budgets as people set them, and what was spent, are in one bucket that every gateway follows, so a change is
known everywhere at once and needs no restart. What it lets through each gateway counts by itself, and asks
nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import nats.js.errors

from groundwatch.errors import UNDECODED, TransientError, UsageError
from groundwatch.events import LIVE, Drawn, OutcomeKind, ResponseRecorded, ResponseScored
from groundwatch.gateway.auth import Filter
from groundwatch.keys import bare_key
from groundwatch.protocols import registry
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import follow_stream, read_newest
from groundwatch.runtime.services.tasks import SupervisedTask, until_set
from groundwatch.runtime.settings.gateway import SamplingRule
from groundwatch.runtime.stores.buckets import Bucket
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.sampling import pace, uniform
from groundwatch.topology import BUDGETS_BUCKET, OUTCOMES, is_token, number_in
from groundwatch.topology.partitions import streams_of_kind

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

STREAM = f"KV_{BUDGETS_BUCKET}"
PREFIX = f"$KV.{BUDGETS_BUCKET}."
MINUTE, DAY = 60, 86_400
MAX_NAME = 64


class Budget(Filter, frozen=True, kw_only=True, omit_defaults=True):
    """What may be spent on judging some responses.

    A limit that is None is none. Minutes and days are those of the clock, in UTC; cost is in US dollars. Each
    gateway may let through `responses_per_minute`.
    `rate` takes the place of `gateway.sampling`'s.
    """

    responses_per_minute: int | None = None
    tokens_per_day: int | None = None
    cost_per_day: float | None = None
    rate: float | None = None
    salt: str = ""

    @property
    def scope(self) -> tuple[str, str, str]:
        return self.tenant, self.model, self.protocol

    @property
    def by_day(self) -> bool:
        return self.tokens_per_day is not None or self.cost_per_day is not None


class Spent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What judging has cost in one day (UTC), by the outcomes of one partition up to `sequence`.

    `judged` counts outcomes that were not declined.
    `usual_tokens` and `usual_cost` are what one cost on average on the day before, 0 where nobody knows.
    """

    day: int = 0
    tokens: int = 0
    cost: float = 0.0
    judged: int = 0
    usual_tokens: float = 0.0
    usual_cost: float = 0.0
    sequence: int = 0

    def turned(self, day: int) -> Spent:
        return Spent(
            day=day,
            usual_tokens=self.tokens / self.judged if self.judged else self.usual_tokens,
            usual_cost=self.cost / self.judged if self.judged else self.usual_cost,
            sequence=self.sequence,
        )


def total(several: Iterable[Spent]) -> Spent:
    """What outcomes of all partitions have cost, on the latest day of theirs."""
    parts = list(several)
    day = max((one.day for one in parts), default=0)
    parts = [one if one.day == day else one.turned(day) for one in parts]

    def usual(what: str) -> float:
        known = [value for one in parts if (value := getattr(one, what))]
        return sum(known) / len(known) if known else 0.0

    return Spent(
        day=day,
        tokens=sum(one.tokens for one in parts),
        cost=sum(one.cost for one in parts),
        judged=sum(one.judged for one in parts),
        usual_tokens=usual("usual_tokens"),
        usual_cost=usual("usual_cost"),
        sequence=sum(one.sequence for one in parts),
    )


def spent_key(name: str, partition: int) -> str:
    """Where it stands what a partition's outcomes have cost."""
    return f"spent-p{partition}.{name}" if partition else f"spent.{name}"


class BudgetUse(msgspec.Struct, kw_only=True):
    """A budget with what is used of it today: tokens and US dollars."""

    name: str
    budget: Budget
    tokens: int = 0
    cost: float = 0.0


def check(name: str, budget: Budget) -> None:
    if not is_token(name) or len(name) > MAX_NAME:
        raise UsageError(f"budget '{name}': a name is of letters, digits, - and _, at most {MAX_NAME}")
    per_minute, tokens, cost = budget.responses_per_minute, budget.tokens_per_day, budget.cost_per_day
    if per_minute is None and budget.rate is None and not budget.by_day:
        message = f"budget '{name}' limits nothing: give responses a minute, tokens or cost a day, or a rate"
        raise UsageError(message, "responses_per_minute", "tokens_per_day", "cost_per_day", "rate")
    if budget.protocol and budget.protocol not in registry.names():
        raise UsageError(registry.unknown(budget.protocol))
    for option, limit in (("responses_per_minute", per_minute), ("tokens_per_day", tokens)):
        if limit is not None and limit < 0:
            raise UsageError(f"limit {limit}: must not be negative; 0 judges nothing", option)
    if cost is not None and not (math.isfinite(cost) and cost >= 0):
        raise UsageError(f"cost {cost}: must be a number of US dollars, not negative", "cost_per_day")
    if budget.rate is not None and not 0 <= budget.rate <= 1:
        raise UsageError(f"rate {budget.rate}: must be from 0 to 1", "rate")


def matching(budgets: dict[str, Budget], tenant: str, model: str, protocol: str) -> str:
    """The name of the one budget that decides: the one that names most of the three, then tenant, model.

    Empty where none covers these.
    """

    def precision(name: str) -> tuple[int, bool, bool, str]:
        one = budgets[name]
        return sum(map(bool, one.scope)), bool(one.tenant), bool(one.model), name

    found = (name for name, budget in budgets.items() if budget.covers(tenant, model, protocol))
    return max(found, key=precision, default="")


async def bucket(js: JetStreamContext) -> KeyValue:
    """The bucket. Raises `UsageError` where it was never provisioned."""
    try:
        return await js.key_value(BUDGETS_BUCKET)
    except nats.js.errors.BucketNotFoundError as error:
        raise UsageError(
            f"bucket {BUDGETS_BUCKET} is missing on this server: run groundwatch admin provision first"
        ) from error


async def in_use(js: JetStreamContext, now: float | None = None) -> list[BudgetUse]:
    moment = time.time() if now is None else now
    await bucket(js)
    newest = await read_newest(js, STREAM, f"{PREFIX}>")
    held = {subject.removeprefix(PREFIX): data for subject, data in newest.items()}
    rows = []
    for key in sorted(held):
        kind, _, name = key.partition(".")
        if kind != "rule" or not held[key]:
            continue
        row = BudgetUse(name=name, budget=msgspec.json.decode(held[key], type=Budget))
        spent = total(
            msgspec.json.decode(data, type=Spent)
            for key, data in held.items()
            if data and key.startswith("spent") and key.partition(".")[2] == name
        )
        if spent.day == int(moment // DAY):
            row.tokens, row.cost = spent.tokens, spent.cost
        rows.append(row)
    return rows


async def put(js: JetStreamContext, name: str, budget: Budget, partitions: int = 1) -> bool:
    """Set a budget, of a new name or in place of the old; whether it is new. Raises `UsageError`.

    What was spent before a new one was set does not count against it.
    """
    check(name, budget)
    store = await bucket(js)
    known = await in_use(js)
    for one in known:
        if one.name != name and one.budget.scope == budget.scope:
            raise UsageError(f"budget '{one.name}' has the same tenant, model and protocol: change that one")
    if new := all(one.name != name for one in known):
        for partition, stream in enumerate(streams_of_kind(OUTCOMES, partitions)):
            last = (await js.stream_info(stream)).state.last_seq
            spent = Spent(day=int(time.time() // DAY), sequence=last)
            await store.put(spent_key(name, partition), msgspec.json.encode(spent))
    await store.put(f"rule.{name}", msgspec.json.encode(budget))
    return new


async def remove(js: JetStreamContext, name: str, partitions: int = 1) -> None:
    """Remove a budget and what was spent of it. Raises `UsageError` where there is none of this name."""
    store = await bucket(js)
    names = [one.name for one in await in_use(js)]
    if name not in names:
        known = f"; there are {', '.join(names)}" if names else ": there is none"
        raise UsageError(f"no budget '{name}'{known}")
    spent = [spent_key(name, partition) for partition in range(partitions)]
    for key in (f"rule.{name}", *spent):
        await store.purge(key)


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
