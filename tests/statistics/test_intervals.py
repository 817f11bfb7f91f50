"""Intervals: known values, and coverage by simulation at fixed seeds."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.statistics.intervals import (
    Interval,
    Moments,
    RatioSums,
    bootstrap,
    cluster_rate,
    difference,
    mean_interval,
    mean_ranks,
    percentile,
    ranks,
    student_quantile,
    wilson,
)

pairs = st.lists(st.integers(0, 12).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d))), max_size=40)


def pooled_rate(found: list[tuple[int, int]]) -> Interval | None:
    sums = RatioSums()
    for pair in found:
        sums.add(*pair)
    return cluster_rate(sums)


def test_wilson_of_known_cases():
    found = wilson(8, 10)
    assert (found.low, found.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert wilson(0, 10).low == 0.0
    assert wilson(0, 10).high == pytest.approx(0.2775, abs=1e-4)
    assert wilson(10, 10).high == 1.0


@pytest.mark.parametrize(("successes", "total"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_of_nothing_is_an_error(successes: int, total: int):
    with pytest.raises(ValueError, match="successes"):
        wilson(successes, total)


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (5, 2.57058), (10, 2.22814), (30, 2.04227), (1000, 1.96234)],
)
def test_student_quantiles_match_the_tables(degrees: int, expected: float):
    assert student_quantile(0.975, degrees) == pytest.approx(expected, rel=2e-3)
    assert student_quantile(0.025, degrees) == pytest.approx(-expected, rel=2e-3)


@given(st.lists(st.floats(-1e3, 1e3), max_size=30), st.lists(st.floats(-1e3, 1e3), max_size=30))
def test_moments_of_parts_are_those_of_the_whole(first: list[float], second: list[float]):
    whole, left, right = Moments(), Moments(), Moments()
    for value in first:
        left.add(value)
    for value in second:
        right.add(value)
    for value in first + second:
        whole.add(value)
    left.merge(right)
    assert left.n == whole.n
    assert left.mean == pytest.approx(whole.mean, abs=1e-6)
    assert left.squares == pytest.approx(whole.squares, rel=1e-6, abs=1e-3)


def test_the_interval_of_a_mean():
    moments = Moments()
    assert mean_interval(moments) is None
    moments.add(0.5)
    assert mean_interval(moments) is None
    single = mean_interval(moments, bounds=(0.0, 1.0))
    assert single is not None and single.low < 0.1 and single.high > 0.9
    for value in (0.9, 1.0, 1.0, 0.2):
        moments.add(value)
    found = mean_interval(moments, bounds=(0.0, 1.0))
    assert found is not None
    assert found.value == pytest.approx(0.72)
    assert found.low == pytest.approx(0.2775, abs=5e-4)
    assert found.high == 1.0


@pytest.mark.parametrize("value", [0.0, 0.75, 1.0])
def test_values_that_do_not_differ_are_not_certain(value: float):
    moments = Moments()
    widths = []
    for _ in range(20):
        moments.add(value)
        found = mean_interval(moments, bounds=(0.0, 1.0))
        assert found is not None and found.low <= value <= found.high
        widths.append(found.high - found.low)
    assert widths == sorted(widths, reverse=True) and widths[0] > 0.5 and widths[-1] > 0.05


@given(pairs)
def test_a_pooled_rate_stays_inside_its_bounds(found: list[tuple[int, int]]):
    interval = pooled_rate(found)
    total = sum(d for _, d in found)
    if not total:
        assert interval is None
        return
    assert interval is not None
    assert interval.value == sum(r for r, _ in found) / total
    assert 0 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.n == total


@given(pairs, pairs)
def test_ratio_sums_of_parts_are_those_of_the_whole(first, second):
    whole, left, right = RatioSums(), RatioSums(), RatioSums()
    for pair in first:
        left.add(*pair)
    for pair in second:
        right.add(*pair)
    for pair in first + second:
        whole.add(*pair)
    left.merge(right)
    assert left == whole


def test_facts_that_share_a_fate_widen_the_interval():
    alike = pooled_rate([(10, 10)] * 20 + [(0, 10)] * 80)
    apart = pooled_rate([(2, 10)] * 100)
    assert alike is not None and apart is not None
    assert alike.value == apart.value
    assert alike.high - alike.low > 2 * (apart.high - apart.low)


def simulate(random: Random, rate: float, responses: int, sharing: float) -> list[tuple[int, int]]:
    """Responses with 3 to 12 facts; rates of responses scatter around `rate` (beta-binomial)."""
    found = []
    for _ in range(responses):
        decided = random.randint(3, 12)
        own = random.betavariate(rate * sharing, (1 - rate) * sharing)
        found.append((sum(random.random() < own for _ in range(decided)), decided))
    return found


@pytest.mark.parametrize(("rate", "responses"), [(0.2, 40), (0.1, 100), (0.05, 100), (0.5, 25)])
def test_a_pooled_rate_covers_the_truth(rate: float, responses: int):
    random = Random(7)
    covered = 0
    for _ in range(400):
        interval = pooled_rate(simulate(random, rate, responses, sharing=3.0))
        assert interval is not None
        covered += interval.low <= rate <= interval.high
    assert 0.925 <= covered / 400 <= 0.985


def test_an_interval_that_ignores_clusters_would_not():
    random = Random(7)
    covered = 0
    for _ in range(400):
        found = simulate(random, 0.2, 60, sharing=3.0)
        naive = wilson(sum(r for r, _ in found), sum(d for _, d in found))
        covered += naive.low <= 0.2 <= naive.high
    assert covered / 400 < 0.9


def test_the_interval_of_a_mean_covers_the_truth():
    random = Random(11)
    covered = 0
    for _ in range(500):
        moments = Moments()
        for _ in range(30):
            moments.add(random.betavariate(4, 1))
        interval = mean_interval(moments)
        assert interval is not None
        covered += interval.low <= 0.8 <= interval.high
    assert 0.92 <= covered / 500 <= 0.98


def test_the_bootstrap_covers_the_truth_and_repeats_with_its_seed():
    random = Random(3)

    def rate(units):
        return sum(r for r, _ in units) / sum(d for _, d in units)

    covered = 0
    for number in range(120):
        found = simulate(random, 0.3, 50, sharing=3.0)
        interval = bootstrap(found, rate, seed=number, resamples=200)
        assert interval is not None
        assert interval == bootstrap(found, rate, seed=number, resamples=200)
        covered += interval.low <= 0.3 <= interval.high
    assert 0.87 <= covered / 120 <= 0.99


def test_the_bootstrap_of_what_is_undefined():
    assert bootstrap([], lambda units: 1.0) is None
    assert bootstrap([1.0], lambda units: None) is None
    assert bootstrap([1.0], lambda units: float("nan")) is None


def test_percentiles_interpolate():
    assert percentile([0.0, 1.0], 0.25) == 0.25
    assert percentile([3.0], 0.9) == 3.0


def test_a_rate_of_0_is_not_certain():
    interval = cluster_rate(RatioSums(50, 0, 400, 0, 0, 3200))
    assert interval is not None
    assert interval.low == 0.0
    assert interval.high == pytest.approx(wilson(0, 50).high)


def test_a_difference_of_rates_is_newcombes():
    # Newcombe 1998, table II, (a) by method 10 of 56/70 and 48/80: 0.2000, 0.0524 to 0.3339.
    found = difference(wilson(48, 80), wilson(56, 70))
    assert (found.value, found.low, found.high) == (
        pytest.approx(0.2),
        pytest.approx(0.0524, abs=5e-5),
        pytest.approx(0.3339, abs=5e-5),
    )
    assert found.n == 70
    back = difference(wilson(56, 70), wilson(48, 80))
    assert (back.low, back.high) == (pytest.approx(-found.high), pytest.approx(-found.low))


SCORES = st.dictionaries(st.text("abc", min_size=1, max_size=2), st.floats(-1, 1), min_size=1)


@given(SCORES)
def test_ranks_begin_at_1_and_follow_the_scores(scores):
    found = ranks(scores)
    assert min(found.values()) == 1
    assert all((found[a] < found[b]) == (scores[a] > scores[b]) for a in scores for b in scores)


@given(SCORES, st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_the_mean_of_equal_ranks_is_the_rank_whatever_the_weights(scores, weights):
    found = mean_ranks([(weight, scores) for weight in weights])
    assert found == pytest.approx(ranks(scores))


def test_mean_ranks_weigh_each_scoring():
    assert mean_ranks([(3, {"a": 1, "b": 0}), (1, {"a": 0, "b": 1})]) == {"a": 1.25, "b": 1.75}
