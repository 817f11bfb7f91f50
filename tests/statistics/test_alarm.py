"""The change alarm: its guarantee, its arithmetic, and how soon it speaks."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwatch.statistics.alarm import (
    ALL,
    LEVEL,
    RECOVERY,
    Detector,
    ModelAlarm,
    Point,
    Rule,
    Series,
    State,
    bets,
    share_of,
    upper_bound,
)

rates = st.floats(0.001, 0.9)


def point(number: int) -> Point:
    return Point(number=number, time=float(number))


@settings(max_examples=50)
@given(rates, st.floats(0, 1))
def test_no_factor_is_negative_and_its_mean_at_the_base_is_one(base, x):
    for bet in bets(base):
        assert 0 < bet * base < 1
        assert 1 + bet * (x - base) > 0
        yes, no = 1 + bet * (1 - base), 1 - bet * base
        assert base * yes + (1 - base) * no == pytest.approx(1)


@settings(max_examples=50)
@given(rates)
def test_a_bet_is_the_likelihood_ratio_of_its_odds(base):
    for odds, bet in zip((1.5, 2.0, 3.0, 5.0, 10.0, 30.0), bets(base), strict=True):
        other = odds * base / (1 - base + odds * base)
        assert 1 + bet * (1 - base) == pytest.approx(other / base)


@settings(max_examples=50)
@given(rates, st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_the_statistic_is_the_sum_of_products_from_every_beginning(base, shares):
    detector = Detector(base, 1e300)
    for number, share in enumerate(shares, start=1):
        detector.add(share, point(number))
    told = sum(
        math.prod(1 + bet * (share - base) for share in shares[start:])
        for bet in bets(base)
        for start in range(len(shares))
    )
    assert detector.value == pytest.approx(told / len(bets(base)), rel=1e-9)


def crossings(base: float, threshold: float, shares: np.ndarray) -> np.ndarray:
    """Alarms in each row of `shares` (runs, responses), beginning anew after each: many `Detector`s."""
    betting = np.array(bets(base))
    values = np.zeros((len(shares), len(betting)))
    found = np.zeros(len(shares))
    for step in shares.T:
        values = (values + 1) * (1 + betting * (step[:, None] - base))
        crossed = values.mean(axis=1) >= threshold
        found += crossed
        values[crossed] = 0
    return found


def test_many_runs_at_once_are_what_the_detector_does():
    shares = np.random.default_rng(1).binomial(4, 0.15, size=(2, 300)) / 4
    expected = []
    for row in shares:
        detector, found = Detector(0.1, 200), 0
        for number, share in enumerate(row):
            if detector.add(float(share), point(number)):
                detector, found = Detector(0.1, 200), found + 1
        expected.append(found)
    assert crossings(0.1, 200, shares).tolist() == expected
    assert sum(expected) > 0


@pytest.mark.parametrize("base", [0.02, 0.2])
@pytest.mark.parametrize("shape", ["yes or no", "four facts", "all or nothing by turns"])
def test_false_alarms_at_the_very_border_stay_below_what_is_promised(base, shape):
    """Good responses whose mean is exactly the base: the worst that still counts as good."""
    random_numbers = np.random.default_rng(7)
    size, threshold = (150, 1_500), 300
    if shape == "yes or no":
        shares = random_numbers.binomial(1, base, size)
    elif shape == "four facts":
        shares = random_numbers.binomial(4, base, size) / 4
    else:
        # The past decides how the next is spread, never its mean: no independence is assumed.
        rare = random_numbers.random(size) < base
        shares = np.where(np.roll(rare, 1, axis=1), base, rare)
    found = crossings(base, threshold, shares)
    promised = size[1] / threshold
    assert found.mean() <= promised
    assert found.mean() > 0.05 * promised, "a check that cannot fail shows nothing"


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_a_learnt_bound_is_above_the_mean(shares):
    assert sum(shares) / len(shares) <= upper_bound(shares) + 1e-9
    assert upper_bound(shares) <= 1


def test_a_learnt_bound_holds_as_often_as_it_says():
    random_numbers = random.Random(3)
    for rate in (0.02, 0.3):
        below = sum(
            upper_bound([float(random_numbers.random() < rate) for _ in range(60)]) < rate for _ in range(200)
        )
        # 200 draws at 1 % have more than 7 with a probability below 1 in 1,000.
        assert below <= 7


def test_a_learnt_bound_narrows_with_more_responses_and_with_less_variance():
    shares = [0.0, 0.125] * 50
    assert upper_bound(shares * 4) < upper_bound(shares)
    assert upper_bound([0.02] * 100) < upper_bound([0.0] * 30 + [1.0] + [0.0] * 40 + [1.0] + [0.0] * 28)
    assert upper_bound([0.0] * 200) == pytest.approx(-math.log(1 - LEVEL) / 200 / 0.75, rel=0.2)


@settings(max_examples=50)
@given(st.integers(0, 500))
def test_the_shares_of_the_series_never_exceed_the_whole(number):
    assert sum(share_of(place) for place in range(number)) <= 1


def response(random_numbers: random.Random, rate: float) -> dict[str, tuple[int, int]]:
    """Facts of one answer in four categories, not all of them in each."""
    numbers = {"entity": (1, 4), "color": (0, 3), "relation": (0, 2), "count": (0, 1)}
    found = {}
    for category, (low, high) in numbers.items():
        if decided := random_numbers.randint(low, high):
            found[category] = (sum(random_numbers.random() < rate for _ in range(decided)), decided)
    return found


@pytest.mark.parametrize(("good", "bad"), [(0.01, 0.15), (0.02, 0.15), (0.02, 0.3)])
def test_a_bad_version_is_found_within_150_responses(good, bad):
    for seed in range(3):
        random_numbers = random.Random(seed)
        alarm = ModelAlarm(Rule())
        for number in range(600):
            assert not alarm.add(float(number), response(random_numbers, good))
        found = [
            (category, turn)
            for number in range(600, 750)
            for category, turn in alarm.add(float(number), response(random_numbers, bad))
        ]
        turns = dict(found)
        assert len(turns) == len(found), "an alarm is raised once"
        assert ALL in turns
        turn = turns[ALL]
        assert turn.raised
        assert turn.learnt
        assert turn.base > good
        assert abs(turn.since.number - 601) <= 40
        assert turn.since.time == turn.since.number - 1
        assert turn.at.number <= 750
        assert turn.after > turn.base > (turn.before or 0)


def test_only_the_category_that_changed_is_named_besides_all():
    alarm = ModelAlarm(Rule(objective=0.05))
    found: set[str] = set()
    for number in range(400):
        facts = {"entity": (0, 3), "color": (1 if number >= 200 and number % 2 else 0, 1)}
        found |= {category for category, _ in alarm.add(float(number), facts)}
    assert found == {ALL, "color"}


def test_a_raised_alarm_says_nothing_more_until_it_recovers_and_then_the_same_fault_is_found_again():
    series = Series(Rule(objective=0.05), 20_000)
    turns = []
    for number in range(1, 1_601):
        bad = (number - 1) // 400 % 2
        if turn := series.add(number, float(number), 1 if bad and number % 3 == 0 else 0, 1):
            turns.append(turn)
    assert [turn.raised for turn in turns] == [True, False, True]
    assert [turn.base for turn in turns] == [0.05] * 3
    assert not any(turn.learnt for turn in turns)
    for turn, start in zip(turns, (401, 801, 1_201), strict=True):
        assert abs(turn.since.number - start) <= 5
        assert turn.since.number <= turn.at.number
    assert turns[0].before == 0
    assert turns[0].after == pytest.approx(1 / 3, abs=0.15)
    assert series.state is State.RAISED


def test_a_recovery_is_hardly_ever_told_of_what_is_still_bad():
    shares = 1 - np.random.default_rng(5).binomial(1, 0.1, size=(100, 1_000))
    assert crossings(0.9, RECOVERY, shares).mean() <= 1_000 / RECOVERY


def test_an_objective_needs_no_learning_and_a_base_is_never_certain():
    assert Series(Rule(objective=0.1), 10).state is State.WATCHING
    series = Series(Rule(learn=20, margin=3.0), 100)
    for number in range(20):
        assert series.state is State.LEARNING
        series.add(number, 0.0, 1, 1)
    assert series.state is State.WATCHING
    assert series.base is not None
    assert series.base < 1


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=80), st.integers(5, 40))
def test_nothing_that_comes_breaks_it(pairs, learn):
    series = Series(Rule(learn=learn, responses=50), 100)
    for number, (refuted, decided) in enumerate(pairs, start=1):
        turn = series.add(number, float(number), min(refuted, decided), decided)
        assert 0 <= series.progress <= 1
        if turn:
            assert 1 <= turn.since.number <= turn.at.number == number
            assert 0 <= turn.after <= 1


def test_a_response_without_facts_of_a_category_is_no_response_of_it():
    alarm = ModelAlarm(Rule())
    alarm.add(0.0, {"entity": (0, 2)})
    alarm.add(0.0, {"color": (0, 0)})
    alarm.add(0.0, {})
    assert alarm.responses == 3
    assert {name: one.responses for name, one in alarm.series.items()} == {ALL: 1, "entity": 1}


@pytest.mark.parametrize(("base", "threshold"), [(0.0, 10), (1.0, 10), (0.5, 0.5)])
def test_impossible_detectors(base, threshold):
    with pytest.raises(ValueError, match="base"):
        Detector(base, threshold)


def learnt_series(responses: int, rate: float = 0.05, *, learn: int = 50) -> Series:
    random_numbers = random.Random(11)
    series = Series(Rule(learn=learn), 20_000)
    for number in range(1, responses + 1):
        series.add(number, float(number), int(random_numbers.random() < rate), 1)
    return series


def test_a_learnt_base_narrows_while_all_stays_well_and_never_below_what_is_true():
    bases = [learnt_series(number).base for number in (50, 100, 200, 400, 800, 1_600)]
    assert all(base is not None for base in bases)
    narrowing = [base for base in bases if base is not None]
    assert narrowing == sorted(narrowing, reverse=True)
    assert narrowing[-1] < 0.8 * narrowing[0]
    assert narrowing[-1] > 0.05
    assert learnt_series(4_000).base == narrowing[-1], "looks have an end: their probabilities are used up"


def test_a_base_is_never_widened_by_what_turned_bad_before_a_look():
    series = learnt_series(60, 0.02)
    before = series.base
    random_numbers = random.Random(5)
    for number in range(61, 110):
        series.add(number, float(number), int(random_numbers.random() < 0.2), 1)
    assert series.base == before


def test_nothing_is_learnt_after_an_alarm():
    series = learnt_series(60, 0.02)
    before = series.base
    number = 60
    while series.state is not State.RAISED:
        number += 1
        series.add(number, float(number), 1, 1)
    for later in range(number + 1, number + 1_000):
        series.add(later, float(later), 0, 1)
    assert series.state is State.WATCHING
    assert series.base == before


def test_good_streams_raise_no_more_than_promised_while_the_base_narrows():
    rule, length = Rule(responses=1_000, learn=50, margin=0.0), 1_000
    found = 0
    for seed in range(40):
        random_numbers = random.Random(seed)
        series = Series(rule, rule.responses)
        for number in range(1, length + 1):
            turn = series.add(number, float(number), int(random_numbers.random() < 0.1), 1)
            found += bool(turn and turn.raised)
    # One alarm in 1,000 responses at most: 40 expected of 40 streams at the border, and the base lies above.
    assert found <= 40
