"""Sampling: pure, deterministic, nested, at the rate that was asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groundwatch.events import Drawn, ResponseRecorded
from groundwatch.gateway.budgets.sampling import decide, rule_for
from groundwatch.runtime.settings import SamplingRule
from groundwatch.statistics.sampling import uniform

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
