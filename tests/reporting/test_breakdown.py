"""Rates by anything: with the weights of sampling they are those of the report."""

from __future__ import annotations

import pytest
from tests.support.breakdown import break_down_events

from groundwatch.events import Drawn, OutcomeKind
from groundwatch.reporting.report import Report

SURE, LIKELY, RARE = Drawn(), Drawn(probability=0.8, lowest=0.1), Drawn(probability=0.1, lowest=0.1)


def events(make, *drawn: Drawn):
    for number in range(40):
        each = drawn[number % len(drawn)]
        # What is suspicious is judged more often, and is worse.
        refuted = 3 if each is LIKELY else number % 2
        yield make.scored(number, refuted, 4 - refuted, drawn=each)
    yield make.ended(OutcomeKind.UNSCORED, "refused", 50)
    yield make.ended(OutcomeKind.DECLINED, "sampled_out", 51, drawn=Drawn(probability=0.0))


@pytest.mark.parametrize("drawn", [(SURE,), (RARE,), (LIKELY, RARE), (SURE, LIKELY, RARE)])
def test_a_breakdown_by_model_is_the_report(make, drawn):
    report = Report()
    for event in events(make, *drawn):
        report.add(event)
    breakdown = break_down_events(("model",), events(make, *drawn))
    (one,) = report.models()
    scored = next(row for row in breakdown.rows() if row.scored)
    assert scored.hallucination_rate == one.hallucination_rate
    assert scored.score == one.score


def test_what_was_judged_more_often_does_not_count_for_more(make):
    for by in ("model", "category"):
        breakdown = break_down_events((by,), events(make, LIKELY, RARE))
        (row,) = (row for row in breakdown.rows() if row.scored)
        # 20 answers at 3 of 4 stand for 25, 20 at 1 of 4 for 200; unweighted it would be a half.
        assert row.hallucination_rate is not None and row.score is not None
        assert row.hallucination_rate.value == pytest.approx((25 * 3 + 200 * 1) / (225 * 4))
        assert row.score.value == pytest.approx((25 * 0.25 + 200 * 0.75) / 225)
        assert row.responses - row.unscored - row.declined == row.scored == 40
        assert row.hallucination_rate.low < row.hallucination_rate.value < row.hallucination_rate.high
