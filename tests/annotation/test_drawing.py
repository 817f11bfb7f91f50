"""Which answers are drawn into a queue, and with which probability."""

from __future__ import annotations

from math import exp, sqrt
from random import Random
from statistics import fmean, stdev

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.annotation.conftest import outcome, several

from groundwatch.annotation.drawing import (
    DISAGREED,
    FLOOR,
    SequentialPoisson,
    disagree,
    matches,
    measure,
    position,
    probability,
    signals,
    uncertainty,
)
from groundwatch.events import Box, Decision, LeftOut, LeftOutKind, OutcomeKind
from groundwatch.reviews.queues import QueueSpec
from groundwatch.statistics.prediction_powered import Labelled, corrected_rate
from groundwatch.statistics.sampling import WeightedSums


def spec(**changes: object) -> QueueSpec:
    return QueueSpec(**{"name": "q", "protocol": "faithscore", "salt": "s"} | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("filters", "drawn_from"),
    [
        ({}, True),
        ({"model": "lvlm"}, True),
        ({"model": "other"}, False),
        ({"protocol": "valor"}, False),
        ({"tenant": "acme"}, False),
        ({"version": "2"}, True),
        ({"version": "1"}, False),
        ({"tag": "shop=berlin"}, True),
        ({"tag": "shop=rome"}, False),
        ({"category": "color"}, True),
        ({"category": "count"}, False),
        ({"verdict": Decision.REFUTED}, True),
        ({"verdict": Decision.UNDECIDED}, False),
        ({"category": "entity", "verdict": Decision.REFUTED}, False),
        ({"since": 1_000.0, "until": 1_000.0}, True),
        ({"since": 1_001.0}, False),
        ({"until": 999.0}, False),
    ],
)
def test_what_a_queue_is_drawn_from(filters, drawn_from):
    event = outcome("r", tags={"shop": "berlin"})
    assert matches(spec(**filters), event, "2") is drawn_from
    assert not matches(spec(**filters), outcome("r", outcome=OutcomeKind.UNSCORED), "2")


def test_the_same_is_drawn_by_everybody_and_for_ever():
    assert position(spec(), "k") == position(spec(), "k") != position(spec(salt="t"), "k")
    assert position(spec(salt="0"), "0" * 32) == pytest.approx(0.5, abs=0.5)


def test_a_share_is_drawn():
    drawn = [position(spec(), one.key) < probability(spec(share=0.1), 1.0) for one in several(5_000)]
    assert fmean(drawn) == pytest.approx(0.1, abs=0.015)


def test_uncertain_answers_are_likelier_and_none_is_left_out():
    events = several(2_000)
    mean = fmean(map(uncertainty, events))
    rule = spec(rule="uncertain", share=0.1, mean_uncertainty=mean)
    likely = {one.key: probability(rule, measure(rule, one)) for one in events}
    assert fmean(likely.values()) == pytest.approx(0.1, rel=0.05)
    sure, unsure = outcome("a", [1.0, 0.0]), outcome("b", [0.5, 0.5])
    assert probability(rule, measure(rule, sure)) == pytest.approx(0.1 * FLOOR)
    assert probability(rule, measure(rule, unsure)) > 0.1
    assert max(likely.values()) <= 1.0


def test_signals_raise_the_chance_and_never_make_it_nothing():
    plain = outcome("r", [0.9, 0.2])
    doubtful = {
        "unsure": outcome("r", [0.6, 0.4]),
        "late": outcome("r", [0.2, 0.9]),
        "unlikely words": outcome("r", [0.9, 0.2], tags={"logprob": "-1.5"}),
        "another language": outcome(
            "r", [0.9, 0.2], left_out=(LeftOut(start=0, end=3, kind=LeftOutKind.LANGUAGE, detail="de"),)
        ),
    }
    rule = spec(rule="signals", share=0.1, mean_uncertainty=signals(plain))
    assert measure(rule, plain) == 1.0
    likelier = {name for name, one in doubtful.items() if measure(rule, one) > 1.0}
    assert likelier == {*doubtful} - {"late"}
    assert signals(outcome("r", [1.0, 0.5])) > signals(outcome("r", [0.5, 1.0]))
    assert signals(outcome("r", [1.0])) > 0 and measure(rule, outcome("r", [1.0])) >= FLOOR
    for odd in ("", "nan", "inf", "-inf", "1e999", "1000", "word"):
        assert 0 < signals(outcome("r", tags={"logprob": odd})) < 10
    box = Box(x0=0.0, y0=0.0, x1=1.0, y1=1.0, score=0.99, label="a")
    seen = msgspec.structs.replace(plain.claims[0], probability=None, boxes=(box,))
    unseen = msgspec.structs.replace(seen, boxes=())
    sure, unsure = (outcome("r", claims=(one,)) for one in (seen, unseen))
    assert signals(unsure) > signals(sure)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3), st.integers(0, 10**6))
def test_whatever_the_signals_are_the_corrected_rate_is_right(leanings, seed):
    """A signal may know the truth, the first judge's error, or nothing: what is drawn with it, each by its
    recorded probability, tells the rate that the second judge would find in everything."""
    random, rule = Random(seed), spec(rule="signals", share=0.3)
    answers = []
    for number in range(400):
        judged = sum(random.random() < 0.3 for _ in range(4))
        wrong = min(4, max(0, judged + random.choice((-1, 0, 0, 1))))
        lean = leanings[0] * wrong / 4 + leanings[1] * (judged - wrong) + leanings[2] * random.random()
        answers.append((f"{number}", wrong, judged, max(FLOOR, exp(lean))))
    population = WeightedSums()
    for _, _, judged, _ in answers:
        population.add(judged, 4)
    truth, found = sum(one[1] for one in answers) / 1600, []
    for draw in range(60):
        drawn = msgspec.structs.replace(rule, salt=f"{seed} {draw}")
        labelled = [
            Labelled(wrong=wrong, known=4, judged_wrong=judged, judged_known=4, probability=likely)
            for key, wrong, judged, measured in answers
            if position(drawn, key) < (likely := probability(drawn, measured))
        ]
        found.append(corrected_rate(population, labelled).interval.value)
    spread = stdev(found) / sqrt(len(found))
    assert fmean(found) == pytest.approx(truth, abs=4 * spread + 0.01)


def test_judges_disagree():
    one = outcome("r", [0.9, 0.2])
    assert not disagree(one, [outcome("r", [0.8, 0.1], run="again")])
    assert disagree(one, [outcome("r", [0.8, 0.7], run="again")])
    assert disagree(one, [outcome("r", [0.9], protocol="valor")])
    assert not disagree(one, [outcome("r", [0.1], protocol="valor")])
    assert not disagree(one, [outcome("r", [0.9], protocol="valor", outcome=OutcomeKind.DECLINED)])
    rule = spec(rule="disagreement", share=0.05)
    assert probability(rule, measure(rule, one, disagreed=True)) == pytest.approx(0.05 * DISAGREED)
    assert probability(rule, measure(rule, one)) == 0.05


def test_a_fixed_number_of_equal_ones_is_a_simple_random_sample():
    poisson: SequentialPoisson[int] = SequentialPoisson(20)
    numbers = {number: Random(number).random() for number in range(500)}
    for number, at in numbers.items():
        poisson.add(str(number), 1.0, at, number)
    drawn = poisson.drawn()
    assert {item for item, _ in drawn} == set(sorted(numbers, key=numbers.__getitem__)[:20])
    assert {likely for _, likely in drawn} == {20 / 500}


def test_fewer_than_wanted_are_all_drawn():
    poisson: SequentialPoisson[int] = SequentialPoisson(20)
    for number in range(7):
        poisson.add(str(number), 1.0, 0.5, number)
    assert sorted(poisson.drawn()) == [(number, 1.0) for number in range(7)]


def test_a_fixed_number_of_unequal_ones_is_drawn_with_the_probabilities_that_it_tells():
    measures = [1.0] * 60 + [3.0] * 30 + [200.0] * 2
    counted, told = [0] * len(measures), [0.0] * len(measures)
    for round_ in range(3_000):
        poisson: SequentialPoisson[int] = SequentialPoisson(12)
        random = Random(round_)
        for number, measured in enumerate(measures):
            poisson.add(str(number), measured, random.random(), number)
        drawn = poisson.drawn()
        assert len(drawn) == 12
        for number, likely in drawn:
            counted[number] += 1
            told[number] = likely
    assert told[-1] == told[-2] == 1.0 and counted[-1] == counted[-2] == 3_000
    assert told[0] == pytest.approx(10 / 150) and told[70] == pytest.approx(30 / 150)
    assert fmean(counted[:60]) / 3_000 == pytest.approx(told[0], rel=0.05)
    assert fmean(counted[60:90]) / 3_000 == pytest.approx(told[70], rel=0.05)
