"""A rate that is right even where the judge is not: one judge of everything, a better one of a drawn part.

Prediction-powered inference (Angelopoulos, Bates, Fannjiang, Jordan and Zrnic 2023) with its power tuning
(PPI++; Angelopoulos, Duchi and Zrnic 2023) and answers drawn with different, known probabilities (Zrnic and
Candès 2024), for a ratio of two sums over answers: refuted by decided facts. An answer is what is drawn, so
facts of one answer may resemble each other. Pure: no clock, no randomness.
"""

import math
from collections.abc import Sequence

import msgspec

from groundwatch.statistics.intervals import Interval, student, wilson
from groundwatch.statistics.sampling import ROUNDING, WeightedSums

LEAST = 10
"""With fewer second opinions nothing is learnt of the first judge's errors: the opinions alone are told."""

UNSEEN = 1.0
"""Facts, each of one answer, on which the judges are taken to differ beyond those on which they do.

About what Wilson's interval adds: where they differ nowhere, that is no proof that they never do.
"""

EDGE = 1e-9


class Labelled(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with a second opinion: its refuted (`wrong`) and decided (`known`) facts.

    `judged_wrong` and `judged_known` are the first judge's. `weight` is how many answers it stands for as a
    judged one, `probability`, above 0, that of having been drawn for a second opinion. By `key` the same
    answer is found in two samples.
    """

    wrong: float
    known: float
    judged_wrong: float
    judged_known: float
    weight: float = 1.0
    probability: float = 1.0
    key: str = ""


class Corrected(msgspec.Struct, frozen=True, kw_only=True):
    """A corrected rate; `labels_alone` is what the same second opinions tell without the first judge.

    `tuning` is λ, from 0, where the first judge is of no use and `interval` is `labels_alone`, to 1.
    `for_half` is how many more opinions, drawn alike, would halve the interval, None where no number would.
    """

    interval: Interval
    labels_alone: Interval
    tuning: float
    opinions: int
    for_half: int | None


class CorrectedDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The second corrected rate less the first; `paired` answers have an opinion in both."""

    interval: Interval
    labels_alone: Interval
    paired: int


class Sample(msgspec.Struct, frozen=True):
    """The first judge's (refuted, decided) of every answer, and those answers that have a second opinion."""

    population: WeightedSums
    labelled: Sequence[Labelled]


class _Estimate(msgspec.Struct, frozen=True):
    """With each answer's part in the error: its residual `own`, u, and what λ leaves of it, `left`, u - λ·z.

    Both are weighted and divided by the total of decided facts.
    """

    interval: Interval
    tuning: float
    own: list[float]
    left: list[float]

    @property
    def width(self) -> float:
        return self.interval.high - self.interval.low


def corrected_rate(population: WeightedSums, labelled: Sequence[Labelled]) -> Corrected | None:
    """The rate that the second judge would find on everything that the first one judged, with its interval.

    With W = weight / p of each labelled answer and z = judged_wrong - r·judged_known, where r is the first
    judge's rate on everything, the estimate is Σ W·(wrong - λ·z) / Σ W·known. Over everything z adds up to 0,
    so that errors of the first judge cannot bias it, whatever λ. With u = wrong - rate·known its linearised
    variance is Σ weight²/p·(u² + (1 - p)/p·(u - λ·z)²) / (Σ W·known)²: of the answers being a sample of what
    the model says, and of the labelled being a sample of the answers. λ within 0 to 1 is the one for which
    it is least. Where the interval is not narrower than that of the opinions alone, that one is told.

    None without a decided fact. Raises `ValueError` for an opinion that was drawn with probability 0.
    """
    labelled = _counted(labelled)
    alone = _labels_alone(labelled)
    if alone is None:
        return None
    best = _narrowest(population, labelled, alone)
    return Corrected(
        interval=best.interval,
        labels_alone=alone.interval,
        tuning=best.tuning,
        opinions=len(labelled),
        for_half=_for_half(best, labelled),
    )


def expected_reach(
    answers: float, opinions: float, *, facts: float, wrong: float, right: float, alike: float
) -> float:
    """How far either side of a corrected rate its 95 % interval is to reach, before anything is judged.

    Of the answers with so many facts each, `opinions` are drawn alike. A share `wrong` of the facts does not
    hold, and the first judge is right about a share `right` of them, whether they hold or not; two facts of
    an answer are correlated by `alike`. With ρ, the correlation of the two judges, and σ², the variance of an
    answer's rate, the variance is σ²/N·(1 + (1 - ρ²)·(N - n)/n): that of `corrected_rate` with the best λ.
    """
    judged = wrong * right + (1 - wrong) * (1 - right)
    spread = wrong * (1 - wrong) * judged * (1 - judged)
    correlation = (wrong * right - wrong * judged) ** 2 / spread if spread else 0.0
    variance = wrong * (1 - wrong) * (1 + (facts - 1) * alike) / facts
    doubt = (1 - correlation) * max(0.0, answers - opinions) / opinions
    return student(max(1, round(opinions) - 2)) * math.sqrt(variance / answers * (1 + doubt))


def corrected_difference(first: Sample, second: Sample) -> CorrectedDifference | None:
    """The second corrected rate less the first; None where either is.

    Distances to the limits add as squares, less what the two have in common (Zou and Donner 2008): answers
    of one key that have an opinion in both samples.
    """
    samples = [_counted(first.labelled), _counted(second.labelled)]
    alone = [_labels_alone(labelled) for labelled in samples]
    if alone[0] is None or alone[1] is None:
        return None
    best = [
        _narrowest(one.population, labelled, found)
        for one, labelled, found in zip((first, second), samples, alone, strict=True)
        if found is not None
    ]
    places = {one.key: at for at, one in enumerate(samples[1]) if one.key}
    pairs = [(at, places[one.key]) for at, one in enumerate(samples[0]) if one.key in places]
    powered = _between(samples, (best[0], best[1]), pairs)
    labels_alone = _between(samples, (alone[0], alone[1]), pairs)
    # Of the same answers the opinions alone may differ less than the first judges do.
    interval = min(powered, labels_alone, key=lambda one: one.high - one.low)
    return CorrectedDifference(interval=interval, labels_alone=labels_alone, paired=len(pairs))


def _counted(labelled: Sequence[Labelled]) -> list[Labelled]:
    if any(one.probability <= 0 for one in labelled):
        raise ValueError("a second opinion that was drawn with probability 0")
    return [one for one in labelled if one.known or one.judged_known]


def _labels_alone(labelled: Sequence[Labelled]) -> _Estimate | None:
    """As `statistics.sampling.weighted_rate`; numbers of facts may be means over several reviewers."""
    known = math.fsum(_stands_for(one) * one.known for one in labelled)
    if not known:
        return None
    rate = min(1.0, max(0.0, math.fsum(_stands_for(one) * one.wrong for one in labelled) / known))
    own = [one.weight * (one.wrong - rate * one.known) / known for one in labelled]
    n, alike = len(labelled), _effective(labelled)
    effective = alike
    if 0 < rate < 1 and n > 1:
        variance = n / (n - 1) * _variance(labelled, own, own)
        least = ROUNDING * math.fsum((_stands_for(one) * one.wrong / known) ** 2 for one in labelled)
        # Facts tell most where they are independent of each other.
        facts = math.fsum(one.known for one in labelled)
        effective = min(facts, rate * (1 - rate) / variance) if variance > least else alike
    found = wilson(rate * effective, effective, quantile=_quantile(alike - 1))
    return _Estimate(Interval(rate, min(found.low, rate), max(found.high, rate), n), 0.0, own, own)


def _narrowest(population: WeightedSums, labelled: Sequence[Labelled], alone: _Estimate) -> _Estimate:
    powered = _powered(population, labelled, alone)
    return alone if powered is None or powered.width >= alone.width else powered


def _powered(population: WeightedSums, labelled: Sequence[Labelled], alone: _Estimate) -> _Estimate | None:
    sums = population.plain if population.linear is None else population.linear
    n = len(labelled)
    if n < LEAST or not sums.denominator:
        return None
    judged = sums.numerator / sums.denominator
    known = math.fsum(_stands_for(one) * one.known for one in labelled)
    z = [one.weight * (one.judged_wrong - judged * one.judged_known) / known for one in labelled]
    doubt = [(1 - one.probability) / one.probability**2 for one in labelled]
    spread = math.fsum(d * each * each for d, each in zip(doubt, z, strict=True))
    if spread <= 0:
        return None
    surplus = math.fsum(each / one.probability for one, each in zip(labelled, z, strict=True))
    rate, own, tuning = alone.interval.value, alone.own, 0.0
    # λ depends on the rate, by way of the residuals, and the rate on λ.
    for _ in range(2):
        shared = math.fsum(d * u * each for d, u, each in zip(doubt, own, z, strict=True))
        tuning = min(1.0, max(0.0, shared / spread))
        rate = alone.interval.value - tuning * surplus
        own = [one.weight * (one.wrong - rate * one.known) / known for one in labelled]
    if tuning <= 0:
        return None
    left = [u - tuning * each for u, each in zip(own, z, strict=True)]
    # What λ·z varies over all answers is known; of the rest the labelled ones tell.
    scale = math.fsum(_stands_for(one) * one.judged_known for one in labelled) / sums.denominator / known
    varied = (tuning * scale) ** 2 * _squares(population, judged)
    rest = math.fsum(
        e * (e + 2 * tuning * each) / one.probability for one, e, each in zip(labelled, left, z, strict=True)
    )
    answers = varied + max(rest, -varied / 2)
    # The rate and λ are both estimated.
    lost = n / (n - 2)
    variance = lost * (answers + math.fsum(d * e * e for d, e in zip(doubt, left, strict=True)))
    unseen = (
        UNSEEN * math.fsum(d * one.weight**2 for d, one in zip(doubt, labelled, strict=True)) / n / known**2
    )
    alarms = math.fsum(
        d * max(0.0, e * e - u * u)
        for d, u, e, one in zip(doubt, own, left, labelled, strict=True)
        if not one.wrong
    )
    interval = _score_interval(
        rate, variance - lost * alarms, lost * alarms + unseen, _quantile(_effective(labelled) - 2), n
    )
    return _Estimate(interval, tuning, own, left)


def _squares(population: WeightedSums, rate: float) -> float:
    """The sum over answers of the square of their weighted residual."""
    if (linear := population.linear) is not None:
        return linear.numerator_squares - 2 * rate * linear.products + rate**2 * linear.denominator_squares
    one, weight = population.plain, population.weight or 1.0
    return weight**2 * (one.numerator_squares - 2 * rate * one.products + rate**2 * one.denominator_squares)


def _score_interval(rate: float, binomial: float, constant: float, quantile: float, n: int) -> Interval:
    """Every R with (rate - R)² ≤ quantile²·(constant + binomial·R(1 - R) / (rate·(1 - rate))).

    Wilson's where `constant` is 0. `constant` is the part of the variance that does not depend on the rate:
    false alarms of the first judge in answers without an error. `rate` may lie outside 0 to 1.
    """
    edge = min(0.5, max(EDGE, quantile / 2 * math.sqrt(binomial + constant)))
    inside = min(1 - edge, max(edge, rate))
    square = quantile * quantile
    scale = square * binomial / (inside * (1 - inside))
    middle = rate + scale / 2
    root = math.sqrt(max(0.0, middle**2 - (1 + scale) * (rate * rate - square * constant)))
    value, low, high = (
        min(1.0, max(0.0, one))
        for one in (rate, (middle - root) / (1 + scale), (middle + root) / (1 + scale))
    )
    return Interval(value, min(low, value), max(high, value), n)


def _between(
    samples: Sequence[Sequence[Labelled]],
    estimates: tuple[_Estimate, _Estimate],
    pairs: Sequence[tuple[int, int]],
) -> Interval:
    first, second = (one.interval for one in estimates)
    variances = [
        _variance(labelled, one.own, one.left) for labelled, one in zip(samples, estimates, strict=True)
    ]
    common = 0.0
    for mine, others in pairs:
        p, q = samples[0][mine].probability, samples[1][others].probability
        own = estimates[0].own[mine] * estimates[1].own[others]
        left = estimates[0].left[mine] * estimates[1].left[others]
        # One draw for both, unless its probabilities say that there were two.
        common += own / p + (1 - p) / p**2 * left if p == q else own / (p * q)
    whole = math.sqrt(variances[0] * variances[1])
    alike = min(1.0, max(-1.0, common / whole)) if whole > 0 else 0.0

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one * one + other * other - 2 * alike * one * other))

    value = second.value - first.value
    below = reach(second.value - second.low, first.high - first.value)
    above = reach(second.high - second.value, first.value - first.low)
    return Interval(value, value - below, value + above, min(first.n, second.n))


def _variance(labelled: Sequence[Labelled], own: Sequence[float], left: Sequence[float]) -> float:
    return math.fsum(
        u * u / one.probability + (1 - one.probability) / one.probability**2 * e * e
        for one, u, e in zip(labelled, own, left, strict=True)
    )


def _for_half(estimate: _Estimate, labelled: Sequence[Labelled]) -> int | None:
    """By how much all probabilities would have to grow, so that the variance is a quarter."""

    def variance(times: float) -> float:
        return math.fsum(
            (u * u + e * e * (1 / min(1.0, times * one.probability) - 1)) / one.probability
            for one, u, e in zip(labelled, estimate.own, estimate.left, strict=True)
        )

    now = variance(1.0)
    if now <= 0:
        # Nothing was seen to vary, and the interval falls about as 1 / n.
        return len(labelled)
    most = 1 / min(one.probability for one in labelled)
    if variance(most) > now / 4:
        return None
    low, high = 1.0, most
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if variance(middle) > now / 4 else (low, middle)
    drawn = math.fsum(min(1.0, high * one.probability) / one.probability for one in labelled)
    return max(1, math.ceil(drawn - len(labelled)))


def _stands_for(one: Labelled) -> float:
    return one.weight / one.probability


def _effective(labelled: Sequence[Labelled]) -> float:
    """How many answers of equal weight tell as much (Kish 1965)."""
    weights = [_stands_for(one) for one in labelled]
    return math.fsum(weights) ** 2 / math.fsum(each * each for each in weights)


def _quantile(degrees: float) -> float:
    return student(max(1, round(degrees)))
