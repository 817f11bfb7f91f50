"""Weighted rates: unbiased whatever decides who is judged, honest intervals, the plain ones at weight 1."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.events import Drawn
from groundwatch.statistics.alarm import ModelAlarm, Rule
from groundwatch.statistics.intervals import Moments, RatioSums, cluster_rate, mean_interval
from groundwatch.statistics.sampling import (
    WeightedMoments,
    WeightedSums,
    pace,
    representative,
    uniform,
    weight,
    weighted_mean_interval,
    weighted_rate,
)

counts = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda pair: (min(pair), max(pair)))
weights = st.floats(1, 50)


def traffic(random: Random, n: int, suspicious: float = 0.1) -> list[tuple[bool, int, int]]:
    """(suspicious, refuted, decided): the suspicious ones say six times as much that is not there."""
    found = []
    for _ in range(n):
        odd = random.random() < suspicious
        decided = random.randint(1, 8)
        found.append((odd, sum(random.random() < (0.6 if odd else 0.1) for _ in range(decided)), decided))
    return found


def judged(random: Random, population, ordinary: float, suspicious: float) -> WeightedSums:
    """A stratified sample of a population, each with its weight."""
    sums = WeightedSums()
    for odd, refuted, decided in population:
        p = suspicious if odd else ordinary
        if random.random() < p:
            sums.add(refuted, decided, 1 / p)
    return sums


def true_rate(population) -> float:
    return sum(one[1] for one in population) / sum(one[2] for one in population)


def test_weighted_rates_are_those_of_everything_and_unweighted_ones_are_not():
    random = Random(11)
    population = traffic(random, 4_000)
    truth = true_rate(population)
    samples = [judged(random, population, 0.05, 0.8) for _ in range(300)]
    mean = sum(weighted_rate(one).value for one in samples) / len(samples)
    spread = math.sqrt(sum((weighted_rate(one).value - mean) ** 2 for one in samples) / len(samples))
    assert abs(mean - truth) < 4 * spread / math.sqrt(len(samples))
    naive = sum(cluster_rate(one.plain).value for one in samples) / len(samples)
    assert naive > truth + 10 * spread / math.sqrt(len(samples)), "the test could not tell the difference"


def test_intervals_of_weighted_rates_cover():
    random = Random(5)
    covered = 0
    for _ in range(400):
        population = traffic(random, 1_500)
        found = weighted_rate(judged(random, population, 0.06, 0.7))
        covered += found.low <= 0.15375 <= found.high or found.low <= true_rate(population) <= found.high
    assert covered >= 372, covered  # 95 % of 400, less 2 standard errors


@pytest.mark.parametrize("size", [300, 3_000, 15_000])
@pytest.mark.parametrize("expected", [0, 3_000])
def test_a_budget_paced_through_any_burst_stays_unbiased(size, expected):
    """The probability of each depends on what came before: sums of 1/p are still right on average."""
    random = Random(size + expected)
    told, used = [], []
    for _ in range(100):
        left, represented = 100, 0.0
        for seen in range(size):
            p = pace(left, expected, seen, elapsed=seen / size)
            if random.random() < p:
                left -= 1
                represented += 1 / p
        assert left >= 0
        told.append(represented)
        used.append(100 - left)
    mean = sum(told) / len(told)
    spread = math.sqrt(sum((one - mean) ** 2 for one in told) / len(told))
    # What comes after the last of the budget has no chance; paced, that is hardly anything.
    assert abs(mean - size) < 4 * spread / math.sqrt(len(told)) + 0.02 * size
    # A burst may be late: less than was expected uses no more than its share, at the usual probability.
    assert sum(used) / len(used) > (55 if size >= expected else 7)


def test_a_steady_stream_uses_its_whole_budget_evenly():
    random = Random(1)
    left, places = 200, []
    for seen in range(4_000):
        if random.random() < pace(left, 4_000, seen, seen / 4_000):
            left -= 1
            places.append(seen)
    assert left <= 5
    assert 70 <= sum(place < 2_000 for place in places) <= 130


@given(st.integers(0, 1_000), st.floats(0, 1e6), st.integers(0, 10**6), st.floats(0, 1))
def test_a_pace_is_a_probability_and_0_only_of_nothing(left, expected, seen, elapsed):
    found = pace(left, expected, seen, elapsed)
    assert 0 <= found <= 1
    assert (found == 0) == (left == 0)


@given(st.lists(counts, max_size=30), weights)
def test_equal_weights_change_nothing(pairs, one):
    sums, plain = WeightedSums(), RatioSums()
    moments, unweighted = WeightedMoments(), Moments()
    for refuted, decided in pairs:
        sums.add(refuted, decided, one)
        plain.add(refuted, decided)
        moments.add(refuted / 5, one)
        unweighted.add(refuted / 5)
    assert weighted_rate(sums) == cluster_rate(plain)
    assert weighted_mean_interval(moments, bounds=(0, 1)) == mean_interval(unweighted, bounds=(0, 1))


@given(st.lists(st.tuples(counts, st.sampled_from([1.0, 3.5, 20.0])), max_size=30), st.integers(0, 30))
def test_merging_is_adding(drawn, cut):
    whole, parts = (WeightedSums(), WeightedMoments()), [(WeightedSums(), WeightedMoments()) for _ in "ab"]
    for place, ((refuted, decided), one) in enumerate(drawn):
        for sums, moments in (whole, parts[place >= cut]):
            sums.add(refuted, decided, one)
            moments.add(refuted / 5, one)
    for first, second in zip(*parts, strict=True):
        first.merge(second)
    for merged, straight in (
        (weighted_rate(parts[0][0]), weighted_rate(whole[0])),
        (weighted_mean_interval(parts[0][1], bounds=(0, 1)), weighted_mean_interval(whole[1], bounds=(0, 1))),
    ):
        assert (merged is None) == (straight is None)
        if merged is not None:
            assert (merged.value, merged.low, merged.high, merged.n) == pytest.approx(
                (straight.value, straight.low, straight.high, straight.n), abs=1e-9
            )


@given(st.lists(st.tuples(counts, weights), min_size=1, max_size=30))
def test_an_interval_holds_its_value_and_stays_inside(drawn):
    sums = WeightedSums()
    for (refuted, decided), one in drawn:
        sums.add(refuted, decided, one)
    found = weighted_rate(sums)
    if found is not None:
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.n == sum(decided for (_, decided), _ in drawn)


def test_weights_that_differ_widen_the_interval():
    even, uneven = WeightedSums(), WeightedSums()
    for place in range(200):
        even.add(place % 5 == 0, 1, 1.0)
        uneven.add(place % 5 == 0, 1, 20.0 if place % 7 == 0 else 1.0)
    narrow, wide = weighted_rate(even), weighted_rate(uneven)
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_weighted_means_are_those_of_everything():
    random = Random(8)
    moments = WeightedMoments()
    values = [random.random() for _ in range(20_000)]
    for value in values:
        p = 0.9 if value < 0.2 else 0.1
        if random.random() < p:
            moments.add(value, 1 / p)
    found = weighted_mean_interval(moments, bounds=(0, 1))
    assert found.low < sum(values) / len(values) < found.high
    assert moments.plain.mean < 0.4 < moments.mean
    assert found.n == moments.n


def test_weights_are_the_inverse_of_the_probability():
    assert weight(Drawn()) == 1
    assert weight(Drawn(probability=0.05)) == 20
    assert weight(Drawn(probability=0.0)) == 1


def test_representative_ones_are_a_simple_random_sample():
    odd = Drawn(probability=0.8, lowest=0.1, stratum="suspicious")
    assert all(representative(Drawn(probability=0.1, lowest=0.1), str(n)) for n in range(100))
    assert not any(representative(Drawn(probability=0.8, lowest=0.0), str(n)) for n in range(100))
    kept = sum(representative(odd, str(n)) for n in range(4_000))
    assert abs(kept - 500) < 5 * math.sqrt(4_000 / 8 * 7 / 8)
    assert representative(odd, "r1") == representative(odd, "r1")


def test_alarms_over_representative_ones_keep_their_promise_when_a_reserve_is_set():
    """Traffic stays as it is while a budget begins to prefer the suspicious: no alarm, though the share of
    wrong facts among the judged triples; fed with all of them it would be raised."""

    def alarms(everything: bool) -> int:
        random, raised = Random(2), 0
        for trial in range(20):
            watched = ModelAlarm(Rule(responses=10_000, learn=200))
            for place, (odd, refuted, decided) in enumerate(traffic(random, 6_000)):
                budgeted = place > 3_000
                drawn = Drawn(probability=0.9 if odd and budgeted else 0.2, lowest=0.2)
                if random.random() >= drawn.probability:
                    continue
                if everything or representative(drawn, f"{trial}-{place}"):
                    raised += sum(turn.raised for _, turn in watched.add(place, {"e": (refuted, decided)}))
        return raised

    assert alarms(everything=True) >= 15
    assert alarms(everything=False) == 0


def test_the_hash_never_changes():
    assert uniform("", "default", "heron-7b", "faithscore", "r1") == 0.6625142543840776
