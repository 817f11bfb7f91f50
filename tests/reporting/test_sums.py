"""Sums are the same however they are added; which models are told apart, however many there are."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reporting.test_state import outcome

from groundwatch.events import Decision, JudgedClaim, OutcomeKind, ResponseScored, Usage
from groundwatch.reporting.alarms import Alarms
from groundwatch.reporting.figures import Headline
from groundwatch.reporting.report import Report
from groundwatch.reporting.sums import CATEGORIES, Names, Sums, Tally
from groundwatch.statistics.alarm import Rule
from groundwatch.statistics.sampling import weighted_mean_interval, weighted_rate


def test_the_names_that_come_most_often_stay_whichever_came_first():
    names = Names(8)
    folded: list[str] = []
    for number in range(1_000):
        folded += names.add(f"invented-{number}")
        if number >= 500:
            folded += names.add("in use")
            folded += names.add("asked rarely" if number % 100 == 0 else "in use too")
    assert "in use" not in folded
    assert "in use too" not in folded
    assert names.folded > 900
    assert not names.partial("in use")
    assert names.partial("invented-3")
    assert len(names._counts) <= 8


def test_a_name_that_is_kept_is_not_folded():
    names = Names(4, lambda: {"kept"})
    assert not names.add("kept")
    for number in range(100):
        assert "kept" not in names.add(str(number % 30)) or number % 30 == 0


def test_without_a_limit_all_are_told_apart():
    names = Names()
    assert not any(names.add(str(number)) for number in range(1_000))
    assert names.folded == 0


def test_a_report_folds_invented_models_and_counts_every_outcome(make):
    report = Report(most=10)
    for number in range(500):
        report.add(make.scored(number, 1, 3, model="in use"))
        report.add(make.scored(number, 2, 2, model=f"invented-{number}"))
        if number % 7 == 0:
            report.add(make.ended(OutcomeKind.UNSCORED, "refused", number, model=f"invented-{number}"))
    told = report.to_dict()
    rows = {row["model"]: row for row in told["models"]}
    assert len(rows) <= 11
    assert sum(row["responses"] for row in told["models"]) == 1_000 + 72
    assert rows["in use"]["responses"] == 500
    assert rows["other"]["unscored"]["refused"] > 60
    assert rows["other"]["hallucination_rate"]["value"] == 0.5
    assert told["folded"] > 480
    assert (rows["in use"]["partial"], rows["other"]["partial"]) == (False, False)


def test_a_model_that_comes_again_is_partial(make):
    report = Report(most=4)
    for number in range(20):
        report.add(make.scored(number, 1, 3, model=f"invented-{number}"))
    report.add(make.scored(99, 1, 3, model="invented-0"))
    rows = {row["model"]: row for row in report.to_dict()["models"]}
    assert (rows["invented-0"]["responses"], rows["invented-0"]["partial"]) == (1, True)


def test_the_dead_letter_of_a_folded_model_is_taken_back_from_the_others(make):
    report = Report(most=4)
    dead = make.ended(OutcomeKind.UNSCORED, "dead_letter", 1, model="unlucky")
    report.add(dead)
    for number in range(20):
        report.add(make.scored(number, 1, 3, model=f"invented-{number}"))
    report.remove(dead)
    report.add(make.scored(1, 1, 3, model="unlucky"))
    told = report.to_dict()["models"]
    assert sum(row["responses"] for row in told) == 21
    assert not any(row["unscored"] for row in told)


def test_categories_are_bounded_too(make):
    report, alarms = Report(), Alarms(Rule(objective=0.05))
    for number in range(200):
        claim = JudgedClaim(text="a", category=f"c{number}", unit=0, decision=Decision.SUPPORTED)
        event = make.scored(number, 0, 1, claims=(claim,))
        report.add(event)
        alarms.add(event)
    [row] = report.to_dict()["models"]
    assert len(row["categories"]) == CATEGORIES + 1
    assert {one["name"]: one["responses"] for one in row["categories"]}["other"] == 200 - CATEGORIES
    assert len(alarms.to_dict()["watched"]) <= CATEGORIES + 1


def test_a_model_with_an_alarm_is_watched_however_many_are_invented(make):
    alarms = Alarms(Rule(responses=1_000, objective=0.05), most=5)
    for number in range(30):
        alarms.add(make.scored(number, 3, 1, model="bad"))
    assert alarms.raised_now("bad", "faithscore")["all"] == 1
    for number in range(2_000):
        alarms.add(make.scored(number, 0, 4, model=f"busy-{number % 40}"))
    told = alarms.to_dict()
    assert alarms.raised_now("bad", "faithscore")["all"] == 1
    assert len({one["model"] for one in told["watched"]}) <= 5
    assert told["folded"] >= 35
    for number in range(400):
        alarms.add(make.scored(30 + number, 0, 4, model="bad"))
    assert alarms.raised_now("bad", "faithscore")["all"] == 0


def test_what_is_taken_back_leaves_nothing(make):
    tally = Tally(make.both, Headline("faithscore"))
    refused = make.ended(OutcomeKind.UNSCORED, "refused", 30, eligible=3, usage=Usage(cost=0.5))
    tally.add(refused)
    tally.remove(refused)
    assert (tally.sums, tally.lengths, tally.unscored) == (Sums(), {}, {})
    assert tally.headline == Headline("faithscore")


@settings(max_examples=100)
@given(st.lists(outcome(), max_size=30), st.randoms(use_true_random=False), st.integers(1, 4))
def test_sums_are_the_same_in_any_order_and_in_any_parts(
    outcomes: list[ResponseScored], random: Random, parts: int
) -> None:
    numbers = {}
    for order in range(3):
        tallies = [Tally({}, Headline("faithscore")) for _ in range(parts if order else 1)]
        for number, one in enumerate(outcomes):
            tallies[number % len(tallies)].add(msgspec.structs.replace(one, protocol="faithscore"))
        random.shuffle(outcomes)
        random.shuffle(tallies)
        whole = Tally({}, Headline("faithscore"))
        for tally in tallies:
            whole.merge(tally)
        figures = [one.value for one in whole.headline.figures() if one.value is not None]
        intervals = [
            (each.responses, weighted_rate(each.facts), weighted_mean_interval(each.score, bounds=(0.0, 1.0)))
            for bins in (whole.categories, whole.lengths, whole.entities, whole.shares, {"": whole.sums})
            for _, each in sorted(bins.items())
        ]
        numbers[order] = (
            (whole.sums.scored, whole.sums.unscored, whole.sums.declined),
            (whole.sums.eligible, whole.sums.decided, whole.unscored, whole.declined, whole.without_chance),
            *(msgspec.structs.astuple(one) for one in figures),
            *(
                (count, *(msgspec.structs.astuple(one) for one in (rate, mean) if one is not None))
                for count, rate, mean in intervals
            ),
        )
    assert flat(numbers[1]) == pytest.approx(flat(numbers[0]), abs=1e-9)
    assert flat(numbers[2]) == pytest.approx(flat(numbers[0]), abs=1e-9)


def flat(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = sorted(value.items())
    if isinstance(value, tuple | list):
        return [number for one in value for number in flat(one)]
    return [float(value)] if isinstance(value, int | float) else []
