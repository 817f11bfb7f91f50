"""Which responses are judged: decided by hashing below a probability, and by what a budget has left."""

from collections.abc import Sequence

import msgspec

from groundwatch.events import Drawn, ResponseRecorded
from groundwatch.gateway.budgets.budgets import Budgets
from groundwatch.gateway.budgets.counters import LeasedCounter
from groundwatch.runtime.settings import SamplingRule
from groundwatch.statistics.sampling import uniform

SAMPLED_OUT = "sampled_out"
OVER_BUDGET = "over_budget"


class Held(msgspec.Struct, frozen=True):
    """What a response has used of a budget, until it is known not to have been there before."""

    stratum: str
    taken: bool
    windows: tuple[tuple[LeasedCounter, int], ...]

    def undo(self) -> None:
        """The response was there before, or will never be: it used nothing."""
        for counter, window in self.windows:
            counter.undo(self.stratum, window, taken=self.taken)


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
        rule = rule_for(rules, tenant, model, protocol)
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
        stratum = state.stratum(response)
        chances = {one: min(rate, state.probability(one, now)) for one in state.shares}
        chance = chances[stratum]
        drawn[protocol] = Drawn(
            probability=chance, lowest=min(chances.values()), stratum=stratum, budget=state.name
        )
        taken = place < chance
        if not taken:
            declined[protocol] = SAMPLED_OUT if place >= rate else OVER_BUDGET
        windows = ((counter, counter.count(stratum, now, taken=taken)) for counter in state.counters)
        held.append(Held(stratum, taken, tuple(windows)))
    return Decided(declined=declined, drawn=drawn, held=tuple(held))
