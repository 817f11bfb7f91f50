"""Metrics: bounded whatever callers invent, readable whatever they write, counted once."""

from __future__ import annotations

from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.runtime.conftest import response

from groundwatch.events import Decision, JudgedClaim, OutcomeKind, ResponseScored, Usage
from groundwatch.runtime.metrics import OTHER, BoundedLabel, Metrics


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


def test_names_beyond_the_limit_are_other() -> None:
    label = BoundedLabel(2)
    assert [label(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


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
            )
        )
        metrics.engine_call("extraction", "llm", f"m{number}", result="ok", seconds=0.1, usage=Usage())
    for name in (
        "groundwatch_responses_total",
        "groundwatch_outcomes_total",
        "groundwatch_claims_total",
        "groundwatch_score_count",
        "groundwatch_engine_calls_total",
    ):
        found = samples(metrics, name)
        assert len(found) == 4, name
        assert sum(found.values()) == 1_000, name


def test_names_that_are_no_text_do_not_break_the_page() -> None:
    metrics = Metrics()
    for model in ("\ud800", 'quo"te', "new\nline", "back\\slash", "ключ", "😀", "x" * 10_000, ""):
        metrics.response(response("r", model=model, tenant=model))
    found = samples(metrics, "groundwatch_responses_total")
    assert len(found) == 8
    assert max(len(model) for _, model in found) == 128
    assert ("?", "?") in found


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
        ("color", "heron-7b", "faithscore", "default", "refuted"): 1.0,
    }
    assert samples(metrics, "groundwatch_score_sum") == {("heron-7b", "faithscore", "default"): 0.5}
    assert samples(metrics, "groundwatch_outcome_delay_seconds_sum") == {("faithscore",): 2.0}


def test_an_outcome_without_a_score_is_in_no_score() -> None:
    metrics = Metrics()
    metrics.outcome(scored(outcome=OutcomeKind.UNSCORED, score=None, reason="nothing_to_verify"))
    assert samples(metrics, "groundwatch_score_count") == {}
    assert list(samples(metrics, "groundwatch_outcomes_total").values()) == [1.0]


def test_a_clock_that_runs_backwards_is_no_negative_delay() -> None:
    metrics = Metrics()
    metrics.outcome(scored(recorded_at=20.0, scored_at=10.0))
    assert samples(metrics, "groundwatch_outcome_delay_seconds_sum") == {("faithscore",): 0.0}


def test_tokens_and_cost_are_counted() -> None:
    metrics = Metrics()
    usage = Usage(calls=1, input_tokens=100, output_tokens=20, cost=0.25)
    metrics.engine_call("verification", "llm", "judge", result="ok", seconds=0.5, usage=usage)
    assert sorted(samples(metrics, "groundwatch_engine_tokens_total").values()) == [20.0, 100.0]
    assert list(samples(metrics, "groundwatch_engine_cost_dollars_total").values()) == [0.25]
