"""Metrics: bounded whatever callers invent, readable whatever they write, counted once."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from prometheus_client import Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.runtime.conftest import response

from groundwatch.errors import DecodeError, InputError, TransientError
from groundwatch.events import Decision, Drawn, Judge, JudgedClaim, OutcomeKind, ResponseScored, Usage
from groundwatch.ledger.ledger import AuditMetrics
from groundwatch.runtime.delivery.dead_letters import _kind
from groundwatch.runtime.telemetry.metrics import ENOUGH, MOMENTS, SCOPES, Metrics
from groundwatch_benchmarks.probing.probe import CanaryMetrics

CLAIM = JudgedClaim(text="x", category="entity", unit=0, decision=Decision.SUPPORTED)


def scored(**changes: Any) -> ResponseScored:
    return ResponseScored(
        **{
            "id": "r",
            "model": "heron-7b",
            "protocol": "faithscore",
            "outcome": OutcomeKind.SCORED,
            "score": 0.5,
            "recorded_at": 10.0,
            "scored_at": 12.0,
        }
        | changes
    )


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Values of one metric by their labels, read as Prometheus reads them."""
    text = generate_latest(metrics.registry).decode()
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_a_caller_cannot_fill_the_memory() -> None:
    metrics = Metrics(max_labels=3)
    for number in range(1_000):
        metrics.response(response("r", model=f"m{number}", tenant=f"t{number}"))
        metrics.outcome(
            scored(
                model=f"m{number}",
                tenant=f"t{number}",
                protocol=f"p{number}",
                reason=f"because {number}",
                claims=(JudgedClaim(text="x", category=f"c{number}", unit=0, decision=Decision.SUPPORTED),),
                tags={"version": f"v{number}"},
            )
        )
        metrics.judgements("extraction", Judge(engine="llm", model=f"m{number}"), [("ok", Usage())], 0.1)
    for name in (
        "groundwatch_responses_total",
        "groundwatch_outcomes_total",
        "groundwatch_claims_total",
        "groundwatch_score_count",
        "groundwatch_engine_calls_total",
    ):
        found = samples(metrics, name)
        assert len(found) == (8 if name == "groundwatch_claims_total" else 4), name
        assert sum(found.values()) == 1_000, name


def test_names_that_are_no_text_do_not_break_the_page() -> None:
    metrics = Metrics()
    for model in ("\ud800", 'quo"te', "new\nline", "back\\slash", "ключ", "😀", "x" * 10_000, ""):
        metrics.response(response("r", model=model, tenant=model))
    found = samples(metrics, "groundwatch_responses_total")
    assert len(found) == 8
    assert max(len(model) for _, model in found) == 128
    assert ("?", "?") in found


def test_no_series_say_when_others_began() -> None:
    metrics = Metrics()
    metrics.outcome(scored())
    assert "_created{" not in generate_latest(metrics.registry).decode()


def test_an_outcome_with_a_score() -> None:
    metrics = Metrics()
    claims = tuple(
        JudgedClaim(text="x", category=category, unit=0, decision=decision)
        for category, decision in (
            ("entity", Decision.SUPPORTED),
            ("entity", Decision.SUPPORTED),
            ("color", Decision.REFUTED),
        )
    )
    metrics.outcome(scored(claims=claims))
    assert samples(metrics, "groundwatch_claims_total") == {
        ("entity", "heron-7b", "faithscore", "default", "supported"): 2.0,
        ("entity", "heron-7b", "faithscore", "default", "refuted"): 0.0,
        ("color", "heron-7b", "faithscore", "default", "supported"): 0.0,
        ("color", "heron-7b", "faithscore", "default", "refuted"): 1.0,
    }
    assert samples(metrics, "groundwatch_score_sum") == {("heron-7b", "faithscore", "default"): 0.5}
    assert samples(metrics, "groundwatch_outcome_delay_seconds_sum") == {("faithscore",): 2.0}


def test_a_scrape_of_many_tenants_models_and_versions_is_bounded() -> None:
    """20 tenants, 10 models with 5 versions each, every verdict in every category of FaithScore's."""
    metrics = Metrics()
    claims = tuple(
        JudgedClaim(text="x", category=category, unit=0, decision=decision)
        for category in ("entity", "relation", "color", "count", "position", "material", "other")
        for decision in Decision
    )
    for number in range(20 * 10 * 5):
        tenant, model, version = f"t{number % 20}", f"m{number // 20 % 10}", f"{number // 200}"
        metrics.response(response("r", model=model, tenant=tenant))
        whose = {"tenant": tenant, "model": model, "tags": {"version": version}}
        metrics.outcome(scored(claims=claims, **whose))
        metrics.outcome(scored(outcome=OutcomeKind.UNSCORED, score=None, reason="refused", **whose))
    lines = generate_latest(metrics.registry).decode().splitlines()
    assert sum(not line.startswith("#") for line in lines) <= 15_000


def judged(*, supported: int = 0, refuted: int = 0, undecided: int = 0) -> tuple[JudgedClaim, ...]:
    decisions = (
        [Decision.SUPPORTED] * supported + [Decision.REFUTED] * refuted + [Decision.UNDECIDED] * undecided
    )
    return tuple(JudgedClaim(text="x", category="entity", unit=0, decision=one) for one in decisions)


def test_moments_are_of_whole_responses() -> None:
    metrics = Metrics()
    metrics.outcome(scored(claims=judged(supported=3, refuted=1, undecided=5)))
    metrics.outcome(scored(claims=judged(supported=2)))
    metrics.outcome(scored(claims=judged(undecided=2)))
    metrics.outcome(scored(outcome=OutcomeKind.UNSCORED, score=None, claims=judged(refuted=2)))
    found = samples(metrics, "groundwatch_fact_moments_total")
    assert {moment: value for (_, moment, *_), value in found.items()} == {
        "responses": 2.0,
        "facts": 6.0,
        "refuted": 1.0,
        "facts_squared": 20.0,
        "refuted_squared": 1.0,
        "product": 4.0,
    }


def test_a_response_weighs_by_how_likely_it_was_to_be_judged() -> None:
    metrics = Metrics()
    metrics.outcome(scored(claims=judged(supported=1, refuted=1), drawn=Drawn(probability=0.25)))
    metrics.outcome(scored(claims=judged(supported=2)))
    found = samples(metrics, "groundwatch_fact_moments_total")
    assert {moment: value for (_, moment, *_), value in found.items()} == {
        "responses": 2.0,
        "facts": 8.0 + 2.0,
        "refuted": 4.0,
        "facts_squared": 64.0 + 4.0,
        "refuted_squared": 16.0,
        "product": 32.0,
    }


def test_moments_begin_together_so_that_none_of_them_misses_a_rise() -> None:
    metrics = Metrics()
    metrics.outcome(scored(claims=judged(supported=1)))
    found = samples(metrics, "groundwatch_fact_moments_total")
    assert sorted(moment for _, moment, *_ in found) == sorted(MOMENTS)


@pytest.mark.parametrize(
    ("tags", "version"),
    (
        ({}, ""),
        ({"release": "1.5"}, "1.5"),
        ({"release": "1.5", "version": "2"}, "2"),
        ({"version": ""}, ""),
        ({"version": "\ud800"}, "?"),
    ),
)
def test_the_version_of_a_model_is_a_tag(tags: dict[str, str], version: str) -> None:
    metrics = Metrics()
    metrics.outcome(scored(claims=judged(supported=1), tags=tags))
    for name in ("groundwatch_outcomes_total", "groundwatch_fact_moments_total"):
        assert all(version == labels[-1] for labels in samples(metrics, name)), name


def test_which_tag_it_is_can_be_set() -> None:
    metrics = Metrics(version_tags=("commit",))
    metrics.outcome(scored(claims=judged(supported=1), tags={"version": "2", "commit": "abc"}))
    assert [labels[-1] for labels in samples(metrics, "groundwatch_outcomes_total")] == ["abc"]


def test_an_outcome_without_a_score_is_in_no_score() -> None:
    metrics = Metrics()
    metrics.outcome(scored(outcome=OutcomeKind.UNSCORED, score=None, reason="nothing_to_verify"))
    assert samples(metrics, "groundwatch_score_count") == {}
    assert list(samples(metrics, "groundwatch_outcomes_total").values()) == [1.0]


def test_a_clock_that_runs_backwards_is_no_negative_delay() -> None:
    metrics = Metrics()
    metrics.outcome(scored(recorded_at=20.0, scored_at=10.0))
    assert samples(metrics, "groundwatch_outcome_delay_seconds_sum") == {("faithscore",): 0.0}


def test_what_rarely_happens_to_a_stage_is_there_before_it_happens() -> None:
    metrics = Metrics()
    metrics.stage("scoring")
    assert samples(metrics, "groundwatch_stage_messages_total") == {
        ("dead", "scoring"): 0.0,
        ("done", "scoring"): 0.0,
        ("handed_back", "scoring"): 0.0,
        ("retried", "scoring"): 0.0,
    }
    assert samples(metrics, "groundwatch_redeliveries_total") == {("scoring",): 0.0}
    letters = samples(metrics, "groundwatch_dead_letters_total")
    reasons = {_kind(error) for error in (DecodeError(""), InputError(""), TransientError(""), ValueError())}
    assert letters == {(reason, "scoring"): 0.0 for reason in reasons}


def test_tokens_and_cost_are_counted() -> None:
    metrics = Metrics()
    usage = Usage(calls=1, input_tokens=100, output_tokens=20, cost=0.25)
    results = [("ok", usage), ("ok", usage), ("error", None)]
    metrics.judgements("verification", Judge(engine="llm", model="judge"), results, 0.6)
    assert sorted(samples(metrics, "groundwatch_engine_tokens_total").values()) == [40.0, 200.0]
    assert list(samples(metrics, "groundwatch_engine_cost_dollars_total").values()) == [0.5]
    assert sorted(samples(metrics, "groundwatch_engine_calls_total").values()) == [1.0, 2.0]
    assert list(samples(metrics, "groundwatch_engine_seconds_count").values()) == [3.0]
    assert list(samples(metrics, "groundwatch_engine_seconds_sum").values()) == [pytest.approx(0.6)]


def test_series_of_a_name_that_lost_its_label_end() -> None:
    metrics = Metrics(max_labels=2)
    for name in ("old", "rare"):
        for _ in range(30 if name == "old" else 1):
            metrics.outcome(scored(model=name, claims=(CLAIM,)))
    for _ in range(ENOUGH + 3):
        metrics.outcome(scored(model="new", claims=(CLAIM,)))
    text = generate_latest(metrics.registry).decode()
    assert 'model="rare"' not in text
    counted = samples(metrics, "groundwatch_outcomes_total")
    by_model = {model: sum(n for labels, n in counted.items() if model in labels) for model in ("old", "new")}
    assert by_model == {"old": 30, "new": 4}
    assert metrics.generation == 1


def test_combinations_of_invented_names_are_bounded() -> None:
    metrics = Metrics(max_labels=5)
    for number in range(3_000):
        metrics.outcome(
            scored(
                tenant=f"t{number % 5}",
                model=f"m{number // 5 % 5}",
                tags={"version": f"v{number // 25 % 5}"},
                claims=(CLAIM,),
            )
        )
    found = samples(metrics, "groundwatch_outcomes_total")
    assert len(found) <= 5 * SCOPES + 10
    assert sum(found.values()) == 3_000


@pytest.mark.parametrize(
    "holder", (Metrics(), Metrics().replay, Metrics().nats, AuditMetrics(), CanaryMetrics())
)
def test_declared_metrics_are_what_their_holders_say(holder: Any) -> None:
    said = get_type_hints(type(holder))
    kinds = (Counter, Gauge, Histogram)
    assert {name: type(one) for name, one in vars(holder).items() if isinstance(one, kinds)} == said
    assert len(said) > 3
