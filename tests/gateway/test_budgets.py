"""Budgets over a real NATS server: never exceeded, changed while everything runs, days shared."""

from __future__ import annotations

import asyncio
import itertools
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import UsageError
from groundwatch.events import Drawn, OutcomeKind, ResponseRecorded, Usage
from groundwatch.gateway import budgets
from groundwatch.gateway.budgets import DAY, Budget, Budgets, Spent, decide, rule_for
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.settings.gateway import SamplingRule
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.statistics.sampling import uniform

NOON = (int(time.time() // DAY) * DAY) + 1.5 * DAY
"""Half past nothing, tomorrow: no test of windows may depend on when it runs, or on what was counted before
its clock was set."""


async def until(holds, *, within: float = 30.0):
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.01)


class Clock:
    """Stands still unless it is told to go on."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Replica:
    """The part of a gateway that decides, with a connection of its own."""

    def __init__(self, budgets: Budgets, bus) -> None:
        self.budgets = budgets
        self.bus = bus
        self.static: list[SamplingRule] = []
        self.judged = 0

    async def decide(self, name: str, *, protocols=("faithscore",), **fields):
        response = ResponseRecorded(**{"id": name, "model": "heron-7b", "answer": "A dog."} | fields)
        decided = decide(self.static, self.budgets, response, protocols, self.budgets.clock())
        self.judged += len(protocols) - len(decided.declined)
        return decided


@pytest.fixture
async def replica(bus_factory, clean_streams):
    """Starts replicas; they know the budgets that are set by then."""
    started = []

    async def make(clock=None) -> Replica:
        bus = await bus_factory("gateway")
        budgets = Budgets(bus, Metrics(), clock=clock or Clock())
        await budgets.start()
        assert budgets.problem == ""
        started.append(budgets)
        return Replica(budgets, bus)

    yield make
    for made in started:
        await made.stop()


async def test_no_gateway_goes_over(replica, bus):
    await budgets.put(bus.js, "all", Budget(responses_per_minute=97))
    replicas = [await replica(), await replica(), await replica()]
    for place, one in enumerate(replicas):
        for number in range(200):
            await one.decide(f"{place}-{number}")
    assert all(35 <= one.judged <= 97 for one in replicas), [one.judged for one in replicas]


async def test_a_new_minute_is_a_new_budget_and_knows_how_much_came_in_the_last(replica, bus):
    await budgets.put(bus.js, "all", Budget(responses_per_minute=50))
    clock = Clock(NOON)
    one = await replica(clock)
    judged = []
    for minute in range(3):
        before = one.judged
        for number in range(400):
            clock.now = NOON + 60 * minute + 60 * number / 400
            decided = await one.decide(f"{minute}-{number}")
            if minute >= 1:
                drawn = decided.drawn["faithscore"]
                assert drawn.probability <= 0.5 or number > 300
        judged.append(one.judged - before)
    assert all(number <= 50 for number in judged)
    assert all(number >= 40 for number in judged[1:]), judged


async def test_a_change_holds_within_a_second_and_without_restart(replica, bus):
    await budgets.put(bus.js, "all", Budget(responses_per_minute=10_000))
    one, other = await replica(), await replica()
    for number in range(50):
        await one.decide(str(number))
        await other.decide(f"o{number}")
    assert one.judged + other.judged == 100
    assert await budgets.put(bus.js, "all", Budget(responses_per_minute=0)) is False
    await until(
        lambda: all(r.budgets.state("", "", "").budget.responses_per_minute == 0 for r in (one, other))
    )
    for number in range(50, 100):
        for each in (one, other):
            decided = await each.decide(str(number))
            assert decided.declined == {"faithscore": "over_budget"}
            assert decided.drawn["faithscore"] == Drawn(probability=0.0, lowest=0.0, budget="all")
    await budgets.remove(bus.js, "all")
    await until(lambda: one.budgets.state("", "", "") is None)
    assert (await one.decide("free")).drawn == {}


async def test_a_lowered_limit_counts_what_was_let_through_before(replica, bus):
    await budgets.put(bus.js, "all", Budget(responses_per_minute=1_000))
    one = await replica()
    for number in range(10):
        await one.decide(f"before-{number}")
    assert one.judged == 10
    await budgets.put(bus.js, "all", Budget(responses_per_minute=15))
    await until(lambda: one.budgets.state("", "", "").budget.responses_per_minute == 15)
    for number in range(100):
        await one.decide(str(number))
    assert 10 <= one.judged <= 15


async def test_the_most_precise_budget_decides_and_settings_fill_in(replica, bus):
    await budgets.put(bus.js, "all", Budget(responses_per_minute=0))
    await budgets.put(bus.js, "acme", Budget(tenant="acme", responses_per_minute=1_000))
    await budgets.put(bus.js, "acme-chair", Budget(tenant="acme", protocol="chair", rate=0.0))
    one = await replica()
    one.static = [SamplingRule(rate=0.5)]
    found = [
        await one.decide(str(place), tenant="acme", protocols=("faithscore", "chair")) for place in range(40)
    ]
    assert all(each.declined["chair"] == "sampled_out" for each in found)
    assert all(each.drawn["faithscore"].budget == "acme" for each in found)
    assert all(each.drawn["faithscore"].probability == 0.5 for each in found)
    assert {each.declined.get("faithscore") for each in found} == {None, "sampled_out"}
    assert (await one.decide("x", tenant="b")).drawn["faithscore"].budget == "all"


async def test_no_more_is_judged_once_the_day_has_cost_what_it_may(replica, bus, publish):
    await budgets.put(bus.js, "all", Budget(cost_per_day=1.0))
    clock = Clock(time.time())
    one, other = await replica(clock), await replica(clock)
    numbers = itertools.count(1)

    async def judge(name: str, replica: Replica, cost: float) -> bool:
        decided = await replica.decide(name)
        if decided.declined:
            return False
        event = _outcome(name, clock.now, decided.drawn["faithscore"], Usage(cost=cost))
        sequence = next(numbers)
        for each in (one, other):
            each.budgets.charge(event, sequence)
        return True

    judged = [await judge(str(number), (one, other)[number % 2], 0.04) for number in range(400)]
    # 25 of 4 cents are a dollar; pacing may leave some of it for the rest of the day.
    assert 5 <= sum(judged) <= 25
    assert one.budgets.state("", "", "").spent.cost == pytest.approx(0.04 * sum(judged))
    one.budgets.charge(_outcome("big", clock.now, Drawn(budget="all"), Usage(cost=5.0)), next(numbers))
    assert (await one.decide("late")).declined == {"faithscore": "over_budget"}
    # The other has not heard of it by its own reading: it does by the bucket.
    await until(lambda: other.budgets.state("", "", "").spent.cost > 5)
    assert (await other.decide("later")).declined == {"faithscore": "over_budget"}
    clock.now += DAY
    assert (await other.decide("tomorrow")).drawn["faithscore"].probability > 0


async def test_few_are_judged_at_once_while_nobody_knows_the_cost(replica, bus):
    await budgets.put(bus.js, "all", Budget(tokens_per_day=1_000_000))
    one, other = await replica(), await replica()
    for number in range(600):
        await (one, other)[number % 2].decide(str(number))
    assert 0 < one.judged <= 20 and 0 < other.judged <= 20


async def test_what_is_in_judging_is_reckoned_with_until_its_cost_is_known(replica, bus):
    await budgets.put(bus.js, "all", Budget(tokens_per_day=1_000_000))
    one = await replica()
    numbers = itertools.count(1)
    judged = [name for name in map(str, range(100)) if not (await one.decide(name)).declined]
    assert len(judged) <= 20
    for name in judged:
        event = _outcome(name, NOON, Drawn(budget="all"), Usage(input_tokens=100))
        one.budgets.charge(event, next(numbers))
    assert not (await one.decide("next")).declined


async def test_an_outcome_that_is_read_again_costs_nothing_again(replica, bus):
    await budgets.put(bus.js, "all", Budget(tokens_per_day=1_000))
    one = await replica()
    event = _outcome("a", NOON, Drawn(budget="all"), Usage(input_tokens=300, output_tokens=100))
    for sequence in (7, 7, 3):
        one.budgets.charge(event, sequence)
    one.budgets.charge(msgspec.structs.replace(event, outcome=OutcomeKind.DECLINED), 8)
    one.budgets.charge(msgspec.structs.replace(event, run="replay"), 9)
    assert one.budgets.state("", "", "").spent.tokens == 400
    await until(lambda: not one.budgets.state("", "", "").changed)
    later = await replica()
    await until(lambda: later.budgets.state("", "", "").spent.sequence == 7)
    later.budgets.charge(event, 7)
    assert later.budgets.state("", "", "").spent == Spent(
        day=int(NOON // DAY), tokens=400, judged=1, sequence=7
    )


async def test_what_is_recorded_says_all_and_repeats_cost_nothing(gateway_factory, bus, response):
    await budgets.put(bus.js, "all", Budget(responses_per_minute=30))
    first, second = await gateway_factory(), await gateway_factory()
    clock = Clock()
    for one in (first, second):
        one.service.core.budgets.clock = clock
    bodies = [response(id=f"r{number}") for number in range(200)]
    lines = b"".join(msgspec.json.encode(body) + b"\n" for body in bodies)
    # The same lines through both doors at once: whoever is first decides.
    await asyncio.gather(first.post(lines, bulk=True), second.post(lines, bulk=True))
    events = {event.id: event for event in await first.events()}
    assert len(events) == 200
    judged = [event for event in events.values() if not event.declined]
    assert 10 <= len(judged) <= 60
    assert all(event.drawn["faithscore"].budget == "all" for event in events.values())
    for one in (first, second):
        again = (await one.post(lines, bulk=True)).json()
        assert again["duplicates"] == 200
    assert {event.id: event for event in await first.events()} == events
    # A repeat uses nothing: each has taken what is recorded as judged by it, and no more.
    taken = [
        one.service.core.budgets.state("default", "heron-7b", "faithscore").minute.taken
        for one in (first, second)
    ]
    assert sum(taken) == len(judged) and all(number <= 30 for number in taken)
    over = sum(
        one.count("groundwatch_budget_declined_total", budget="all", stratum="") for one in (first, second)
    )
    assert over == 200 - len(judged)
    ledger = await audit(bus.js)
    assert ledger.recorded == 200


async def test_what_is_left_of_a_budget_is_shown(gateway_factory, bus, response):
    await budgets.put(bus.js, "all", Budget(responses_per_minute=30, cost_per_day=2.5))
    one = await gateway_factory()
    one.service.core.budgets.clock = Clock()
    await one.post(response())
    labels = {"budget": "all", "resource": "responses_per_minute"}
    await until(lambda: one.count("groundwatch_budget_limit", **labels) == 30)
    await until(lambda: one.count("groundwatch_budget_used", **labels) == 1)
    assert one.count("groundwatch_budget_limit", budget="all", resource="cost_per_day") == 2.5
    shown = await budgets.in_use(bus.js, NOON)
    assert [(row.name, row.cost, row.budget.cost_per_day) for row in shown] == [("all", 0.0, 2.5)]
    await budgets.remove(bus.js, "all")
    await until(lambda: one.metrics.registry.get_sample_value("groundwatch_budget_limit", labels) is None)


async def test_outcomes_of_the_stream_are_charged(gateway_factory, bus, publish):
    await publish("before", usage=Usage(input_tokens=1_000))
    await budgets.put(bus.js, "all", Budget(tokens_per_day=10_000))
    one = await gateway_factory()
    await publish("after", usage=Usage(input_tokens=70, output_tokens=7))
    await until(
        lambda: one.service.core.budgets.state("default", "heron-7b", "faithscore").spent.tokens == 77
    )
    # A gateway that starts later reads all outcomes again, and counts none twice.
    await until(lambda: not one.service.core.budgets.state("", "", "").changed)
    await asyncio.sleep(0.1)
    later = await gateway_factory()
    await until(lambda: later.service.core.live._caught_up.is_set())
    assert later.service.core.budgets.state("default", "heron-7b", "faithscore").spent.tokens == 77


async def test_without_its_bucket_a_gateway_says_so(gateway_factory, bus):
    await bus.js.delete_stream(budgets.STREAM)
    one = await gateway_factory()
    assert any("gw-budgets" in why and "groundwatch admin provision" in why for why in one.service.notes())
    with pytest.raises(UsageError, match="groundwatch admin provision"):
        await budgets.put(bus.js, "all", Budget(responses_per_minute=1))


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(), "limits nothing"),
        (Budget(responses_per_minute=-1), "must not be negative"),
        (Budget(tokens_per_day=-1), "must not be negative"),
        (Budget(cost_per_day=float("nan")), "US dollars"),
        (Budget(rate=1.5), "from 0 to 1"),
        (Budget(rate=0.5, protocol="gossip"), "known are"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_in_one_line(budget, message):
    with pytest.raises(UsageError, match=message) as refused:
        budgets.check("all", budget)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "x" * 65])
def test_names_that_are_no_keys_are_refused(name):
    with pytest.raises(UsageError, match="a name is of letters"):
        budgets.check(name, Budget(rate=0.5))


async def test_two_budgets_of_one_scope_are_refused(clean_streams, bus):
    await budgets.put(bus.js, "a", Budget(tenant="acme", rate=0.5))
    with pytest.raises(UsageError, match="budget 'a' has the same"):
        await budgets.put(bus.js, "b", Budget(tenant="acme", responses_per_minute=5))
    with pytest.raises(UsageError, match="no budget 'b'; there are a"):
        await budgets.remove(bus.js, "b")


def _outcome(name: str, now: float, drawn: Drawn, usage: Usage):
    from groundwatch.runtime.delivery import outcomes

    response = ResponseRecorded(
        id=name, model="heron-7b", answer="", drawn={"faithscore": drawn}, recorded_at=now
    )
    made = outcomes.without_score(response, "faithscore", OutcomeKind.UNSCORED, "refused", usage=usage)
    return msgspec.structs.replace(made, scored_at=now)


texts = st.text(max_size=20)


def declined(rules, tenant, model, protocols, name):
    response = ResponseRecorded(id=name, model=model, tenant=tenant, answer="")
    return decide(rules, None, response, protocols, 0.0).declined


@given(texts, texts, texts, texts, texts)
def test_a_position_is_always_the_same(salt, tenant, model, protocol, name):
    first = uniform(salt, tenant, model, protocol, name)
    assert 0 <= first < 1
    assert first == uniform(salt, tenant, model, protocol, name)


def test_the_hash_never_changes():
    assert uniform("", "default", "heron-7b", "faithscore", "r1") == 0.6625142543840776


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), texts, texts)
def test_what_a_rate_chooses_every_higher_one_chooses(rates, tenant, name):
    chosen = [
        not declined([SamplingRule(rate=rate)], tenant, "m", ["faithscore"], name) for rate in sorted(rates)
    ]
    assert chosen == sorted(chosen)


@given(st.floats(0.01, 0.99), st.text(max_size=8))
def test_the_share_is_the_rate(rate, salt):
    rules = [SamplingRule(rate=rate, salt=salt)]
    kept = sum(not declined(rules, "t", "m", ["p"], str(number)) for number in range(2_000))
    assert abs(kept / 2_000 - rate) < 5 * (rate * (1 - rate) / 2_000) ** 0.5


@given(texts, texts)
def test_the_ends_are_exact(tenant, name):
    assert declined([SamplingRule(rate=0.0)], tenant, "m", ["p"], name) == {"p": "sampled_out"}
    assert declined([SamplingRule(rate=1.0)], tenant, "m", ["p"], name) == {}
    assert declined([], tenant, "m", ["p"], name) == {}


def test_salt_tenant_model_and_protocol_choose_independently():
    def chosen(salt: str, tenant: str, model: str, protocol: str) -> set[int]:
        return {n for n in range(2_000) if uniform(salt, tenant, model, protocol, str(n)) < 0.5}

    base = chosen("", "t", "m", "p")
    for other in (
        chosen("s", "t", "m", "p"),
        chosen("", "u", "m", "p"),
        chosen("", "t", "n", "p"),
        chosen("", "t", "m", "q"),
    ):
        assert 400 < len(base & other) < 600


def test_borders_between_parts_are_unambiguous():
    assert uniform("a", "b", "", "", "") != uniform("ab", "", "", "", "")


def test_the_first_matching_rule_decides():
    rules = [
        SamplingRule(rate=0.1, tenant="a", model="m"),
        SamplingRule(rate=0.2, model="m", protocol="faithscore"),
        SamplingRule(rate=0.3, protocol="pope"),
        SamplingRule(rate=0.4),
    ]

    def rate(tenant: str, model: str, protocol: str) -> float:
        found = rule_for(rules, tenant, model, protocol)
        assert found is not None
        return found.rate

    assert rate("a", "m", "faithscore") == 0.1
    assert rate("b", "m", "faithscore") == 0.2
    assert rate("b", "n", "pope") == 0.3
    assert rate("b", "n", "faithscore") == 0.4
    assert rule_for(rules[:1], "b", "m", "faithscore") is None


def test_how_likely_it_was_is_told_of_what_is_judged_and_what_is_not():
    rules = [SamplingRule(rate=0.25, protocol="faithscore"), SamplingRule(rate=1.0)]
    for number in range(20):
        response = ResponseRecorded(id=str(number), model="m", answer="")
        assert decide(rules, None, response, ["faithscore", "pope"], 0.0).drawn == {
            "faithscore": Drawn(probability=0.25, lowest=0.25)
        }


def test_protocols_are_decided_one_by_one():
    rules = [SamplingRule(rate=0.0, protocol="faithscore"), SamplingRule(rate=1.0)]
    assert declined(rules, "t", "m", ["faithscore", "pope"], "1") == {"faithscore": "sampled_out"}
