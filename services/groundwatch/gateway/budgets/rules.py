"""Budgets as people set them: what may be spent on judging whom, in a bucket that all gateways watch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import nats.js.errors

from groundwatch.errors import UsageError
from groundwatch.gateway.auth import Filter
from groundwatch.protocols import registry
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.topology import BUDGETS_BUCKET, OUTCOMES, is_token
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
        raise UsageError(f"no protocol '{budget.protocol}'; known are {', '.join(registry.names())}")
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
    held: dict[str, bytes] = {}
    await bucket(js)
    async for read in read_stream(js, STREAM, subjects=[f"{PREFIX}>"]):
        held[read.subject.removeprefix(PREFIX)] = read.data
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
