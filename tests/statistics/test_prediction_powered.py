"""Corrected rates: what the second judge would find in everything, narrowed by the first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.statistics.intervals import Interval, wilson
from groundwatch.statistics.prediction_powered import (
    LEAST,
    Labelled,
    Sample,
    _score_interval,
    corrected_difference,
    corrected_rate,
    expected_reach,
)
from groundwatch.statistics.sampling import WeightedSums, weighted_rate


def answers(
    random: Random, n: int, rate: float = 0.12, missed: float = 0.05, false: float = 0.05
) -> list[tuple[int, int, int]]:
    """(refuted in truth, by the judge, facts) of answers some of which are much worse than others."""
    found = []
    for _ in range(n):
        known = random.randint(2, 8)
        level = rate * (3.4 if random.random() < 0.2 else 0.4)
        truth = [random.random() < level for _ in range(known)]
        judged = sum(random.random() < ((1 - missed) if one else false) for one in truth)
        found.append((sum(truth), judged, known))
    return found


def sampled(random: Random, population: Sequence[tuple[int, int, int]], share: float) -> Sample:
    sums, labelled = WeightedSums(), []
    for at, (wrong, judged, known) in enumerate(population):
        sums.add(judged, known)
        if random.random() < share:
            one = Labelled(
                wrong=wrong,
                known=known,
                judged_wrong=judged,
                judged_known=known,
                probability=share,
                key=str(at),
            )
            labelled.append(one)
    return Sample(sums, labelled)


def width(interval: Interval) -> float:
    return interval.high - interval.low


counts = st.integers(1, 6).flatmap(
    lambda known: st.tuples(st.integers(0, known), st.integers(0, known), st.just(known))
)
rows = st.lists(st.tuples(counts, st.floats(0.02, 1), st.floats(1, 20)), min_size=1, max_size=40)


def built(rows: Sequence[tuple[tuple[int, int, int], float, float]]) -> Sample:
    """Each stands for as many answers like it as its probability says."""
    sums, labelled = WeightedSums(), []
    for (wrong, judged, known), p, weight in rows:
        for _ in range(round(1 / p)):
            sums.add(judged, known, weight)
        labelled.append(
            Labelled(
                wrong=wrong,
                known=known,
                judged_wrong=judged,
                judged_known=known,
                weight=weight,
                probability=p,
            )
        )
    return Sample(sums, labelled)


@given(rows)
def test_it_is_a_rate_never_wider_than_the_opinions_alone(rows) -> None:
    sample = built(rows)
    found = corrected_rate(sample.population, sample.labelled)
    assert 0 <= found.interval.low <= found.interval.value <= found.interval.high <= 1
    assert width(found.interval) <= width(found.labels_alone) + 1e-12
    assert 0 <= found.tuning <= 1
    assert found.for_half is None or found.for_half > 0
    if found.tuning == 0:
        assert found.interval == found.labels_alone


@given(rows)
def test_opinions_alone_are_the_weighted_rate_of_what_they_say(rows) -> None:
    sample = built(rows)
    sums = WeightedSums()
    for one in sample.labelled:
        sums.add(one.wrong, one.known, one.weight / one.probability)
    alone, expected = corrected_rate(*_fields(sample)).labels_alone, weighted_rate(sums)
    assert alone.value == pytest.approx(expected.value)
    if sums.linear is not None and 0 < expected.value < 1:
        assert (alone.low, alone.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


@given(rows, st.floats(0.1, 10), st.randoms())
def test_order_and_scale_of_weights_do_not_matter(rows, factor, random) -> None:
    sample = built(rows)
    shuffled = [(each, p, weight * factor) for each, p, weight in rows]
    random.shuffle(shuffled)
    first, second = corrected_rate(*_fields(sample)), corrected_rate(*_fields(built(shuffled)))
    assert first.interval.value == pytest.approx(second.interval.value, abs=1e-6)
    assert width(first.interval) == pytest.approx(width(second.interval), abs=1e-6)


def _fields(sample: Sample) -> tuple[WeightedSums, Sequence[Labelled]]:
    return sample.population, sample.labelled


@given(st.floats(0, 1), st.integers(1, 500), st.floats(1, 5))
def test_the_score_interval_is_wilsons_where_all_variance_is_of_the_rate(rate, n, quantile) -> None:
    variance = rate * (1 - rate) / n
    if 0 < min(rate, 1 - rate) < 1e-12:
        # Too little for the numbers of a computer to tell from nothing.
        return
    if quantile / 2 * math.sqrt(variance) > min(rate, 1 - rate):
        return
    found, expected = (
        _score_interval(rate, variance, 0.0, quantile, n),
        wilson(rate * n, n, quantile=quantile),
    )
    if 0 < rate < 1:
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_nothing_is_told_of_nothing() -> None:
    assert corrected_rate(WeightedSums(), []) is None
    undecided = Labelled(wrong=0, known=0, judged_wrong=1, judged_known=2, probability=0.5)
    assert corrected_rate(WeightedSums(), [undecided] * 20) is None


def test_an_opinion_that_was_not_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="probability 0"):
        corrected_rate(
            WeightedSums(), [Labelled(wrong=0, known=1, judged_wrong=0, judged_known=1, probability=0)]
        )


def test_of_too_few_opinions_only_these_are_told() -> None:
    sample = sampled(Random(3), answers(Random(4), 2_000), 0.1)
    few = corrected_rate(sample.population, sample.labelled[: LEAST - 1])
    assert few.tuning == 0 and few.interval == few.labels_alone
    assert width(few.interval) > 0.1


def test_where_everything_has_an_opinion_the_judge_is_of_no_use() -> None:
    sample = sampled(Random(3), answers(Random(4), 400), 1.0)
    found = corrected_rate(sample.population, sample.labelled)
    assert found.tuning == 0 and found.for_half is None


def test_what_is_seen_nowhere_is_not_taken_for_impossible() -> None:
    """A judge that was right about every answer looked at may still be wrong about others."""
    population = answers(Random(5), 5_000, missed=0.0, false=0.0)
    sample = sampled(Random(6), population, 0.02)
    found = corrected_rate(sample.population, sample.labelled)
    assert found.tuning == pytest.approx(1, abs=0.02)
    judged = weighted_rate(sample.population)
    assert found.interval.value == pytest.approx(judged.value, abs=0.01)
    assert width(found.interval) > 1.1 * width(judged)


@pytest.mark.parametrize("seed", range(3))
def test_so_many_more_opinions_do_halve_the_interval(seed: int) -> None:
    population = answers(Random(seed), 40_000)
    sample = sampled(Random(seed), population, 0.01)
    found = corrected_rate(sample.population, sample.labelled)
    assert found.for_half > 2 * found.opinions
    share = 0.01 * (found.opinions + found.for_half) / found.opinions
    more = sampled(Random(seed + 10), population, share)
    again = corrected_rate(more.population, more.labelled)
    assert width(again.interval) == pytest.approx(width(found.interval) / 2, rel=0.2)


def test_for_means_it_is_the_estimate_of_ppi_python() -> None:
    """With one fact an answer the rate is a mean. There the unlabelled are those without an opinion."""
    numpy = pytest.importorskip("numpy")
    ppi = pytest.importorskip("ppi_py")
    for seed in range(5):
        random = Random(seed)
        truth = [float(random.random() < 0.3) for _ in range(8_000)]
        judged = [float(random.random() < (0.85 if one else 0.1)) for one in truth]
        sums, labelled = WeightedSums(), []
        for at, one in enumerate(judged):
            sums.add(int(one), 1)
            if at < 800:
                labelled.append(
                    Labelled(wrong=truth[at], known=1, judged_wrong=one, judged_known=1, probability=0.1)
                )
        arrays = (numpy.array(each) for each in (truth[:800], judged[:800], judged[800:]))
        labels, on_labelled, on_others = arrays
        found = corrected_rate(sums, labelled)
        # Theirs corrects by the difference to the other nine tenths, this one by that to everything.
        expected = ppi.ppi_mean_pointestimate(labels, on_labelled, on_others, lam=0.9 * found.tuning)
        assert found.interval.value == pytest.approx(float(expected.item()), abs=1e-9)
        theirs = ppi.ppi_mean_ci(labels, on_labelled, on_others, alpha=0.05)
        low, high = (float(each.item()) for each in theirs)
        assert found.interval.value == pytest.approx((low + high) / 2, abs=2e-3)
        assert width(found.interval) == pytest.approx(high - low, rel=0.05)


def test_for_ratios_it_is_the_ratio_of_two_means_of_ppi_python() -> None:
    """Its corrected mean of wrong facts over that of facts, with the same λ."""
    numpy = pytest.importorskip("numpy")
    ppi = pytest.importorskip("ppi_py")
    population = answers(Random(21), 10_000, missed=0.2, false=0.1)
    sums, labelled = WeightedSums(), []
    for at, (wrong, judged, known) in enumerate(population):
        sums.add(judged, known)
        if at < 1_000:
            labelled.append(
                Labelled(wrong=wrong, known=known, judged_wrong=judged, judged_known=known, probability=0.1)
            )
    found = corrected_rate(sums, labelled)
    wrong, judged, known = (numpy.array(column, dtype=float) for column in zip(*population, strict=True))
    centred = judged - judged.sum() / known.sum() * known
    numerator = ppi.ppi_mean_pointestimate(
        wrong[:1000], centred[:1000], centred[1000:], lam=0.9 * found.tuning
    )
    assert found.interval.value == pytest.approx(float(numerator.item()) / known[:1000].mean(), abs=1e-9)
    residuals = wrong - found.interval.value * known
    low, high = ppi.ppi_mean_ci(
        residuals[:1000], centred[:1000], centred[1000:], alpha=0.05, lam=0.9 * found.tuning
    )
    theirs = float((high - low).item()) / known[:1000].mean()
    assert width(found.interval) == pytest.approx(theirs, rel=0.05)


def test_the_difference_of_the_same_answers_by_two_judges_is_about_none() -> None:
    """The truth of an answer does not depend on who judges it first."""
    random = Random(8)
    population = answers(random, 6_000)
    sample = sampled(random, population, 0.05)
    sums, chosen = WeightedSums(), {one.key: one for one in sample.labelled}
    labelled = []
    for at, (wrong, _, known) in enumerate(population):
        judged = sum(random.random() < (0.7 if fact < wrong else 0.15) for fact in range(known))
        sums.add(judged, known)
        if (one := chosen.get(str(at))) is not None:
            labelled.append(msgspec.structs.replace(one, judged_wrong=judged))
    found = corrected_difference(sample, Sample(sums, labelled))
    unpaired = corrected_difference(
        sample, Sample(sums, [msgspec.structs.replace(one, key="") for one in labelled])
    )
    assert found.paired == len(labelled) and unpaired.paired == 0
    assert found.interval.low <= 0 <= found.interval.high
    assert width(found.interval) < 0.3 * width(unpaired.interval)
    assert unpaired.interval.low <= 0 <= unpaired.interval.high
    assert width(unpaired.interval) < 0.8 * width(unpaired.labels_alone)


def test_a_difference_needs_both() -> None:
    sample = sampled(Random(1), answers(Random(2), 500), 0.2)
    assert corrected_difference(sample, Sample(WeightedSums(), [])) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "missed", "false", "narrower"),
    ((0.12, 0.05, 0.05, 0.65), (0.12, 0.5, 0.5, 1.0), (0.29, 0.5, 0.02, 0.9)),
)
def test_intervals_hold_the_truth_as_often_as_they_say(
    rate: float, missed: float, false: float, narrower: float
) -> None:
    random, held, widths, alone = Random(31), 0, 0.0, 0.0
    for _ in range(400):
        population = answers(random, 2_000, rate, missed, false)
        sample = sampled(random, population, 0.06)
        found = corrected_rate(sample.population, sample.labelled)
        held += found.interval.low <= rate <= found.interval.high
        widths += width(found.interval)
        alone += width(found.labels_alone)
    # Three standard deviations of a share of 400 that is 0.95.
    assert 0.917 <= held / 400 <= 0.983
    assert widths / alone <= narrower


@pytest.mark.parametrize(("wrong", "narrower"), [(0.12, 0.60), (0.02, 0.87)])
def test_the_expected_interval_is_that_of_the_papers(wrong: float, narrower: float) -> None:
    """A judge that is right in 95 % of facts, of very many answers: docs/second-opinions.md."""
    known = {"facts": 5.0, "wrong": wrong, "alike": 0.0}
    powered = expected_reach(1e9, 500, right=0.95, **known)
    assert powered / expected_reach(1e9, 500, right=0.5, **known) == pytest.approx(narrower, abs=0.005)
    assert expected_reach(1000, 1000, right=0.95, **known) == pytest.approx(
        expected_reach(1000, 1000, right=0.5, **known)
    ), "with an opinion of each answer the first judge tells nothing"


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_the_interval_is_as_wide_as_expected(share: float) -> None:
    random, found = Random(5), []
    for _ in range(20):
        population = []
        for _ in range(3000):
            truth = [random.random() < 0.12 for _ in range(6)]
            judged = sum(one if random.random() < 0.95 else not one for one in truth)
            population.append((sum(truth), judged, 6))
        one = sampled(random, population, share)
        corrected = corrected_rate(one.population, one.labelled)
        assert corrected is not None
        found.append(width(corrected.interval) / 2)
    expected = expected_reach(3000, 3000 * share, facts=6, wrong=0.12, right=0.95, alike=0.0)
    assert sum(found) / len(found) == pytest.approx(expected, rel=0.12)
