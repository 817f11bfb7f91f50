"""Rates, means and their intervals, and where a rate changed: pure, without scipy or numpy.

Responses are the units that are drawn; the facts of one response resemble each other. An interval that
took every fact for an independent draw would be too narrow, so rates here are ratio estimators over
responses as clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from random import Random
from statistics import NormalDist
from typing import Self, TypeVar

import msgspec

LEVEL = 0.95
NORMAL = NormalDist().inv_cdf((1 + LEVEL) / 2)

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Interval(msgspec.Struct, frozen=True):
    """An estimate with its confidence interval; `n` is how many units it rests on."""

    value: float
    low: float
    high: float
    n: int


class Moments(msgspec.Struct):
    """Running mean and variance (Welford 1962): constant memory, no cancellation."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Take in one value (Welford's update)."""
        self.n += 1
        delta = value - self.mean
        self.mean += delta / self.n
        self.squares += delta * (value - self.mean)

    def merge(self, other: Moments) -> None:
        """Take in what another one saw (Chan, Golub and LeVeque 1979)."""
        total = self.n + other.n
        if not other.n:
            return
        delta = other.mean - self.mean
        self.squares += other.squares + delta * delta * self.n * other.n / total
        self.mean += delta * other.n / total
        self.n = total


class RunningSums(msgspec.Struct):
    """Sums that are merged by adding each, and what is itself merged."""

    def merge(self, other: Self) -> None:
        for name in self.__struct_fields__:
            mine, others = getattr(self, name), getattr(other, name)
            if isinstance(mine, msgspec.Struct):
                mine.merge(others)  # type: ignore[attr-defined]
            else:
                setattr(self, name, mine + others)


class RatioSums(RunningSums):
    """What a ratio estimator needs of its clusters: six sums, whatever the number of responses."""

    clusters: int = 0
    numerator: int = 0
    denominator: int = 0
    numerator_squares: int = 0
    products: int = 0
    denominator_squares: int = 0

    def add(self, numerator: int, denominator: int) -> None:
        """Count one response; one without a denominator has no part in a rate."""
        if not denominator:
            return
        self.clusters += 1
        self.numerator += numerator
        self.denominator += denominator
        self.numerator_squares += numerator * numerator
        self.products += numerator * denominator
        self.denominator_squares += denominator * denominator


def wilson(successes: float, total: float, *, quantile: float | None = None) -> Interval:
    """The score interval of a rate (Wilson 1927): inside [0, 1], sensible at 0 and 1.

    `quantile` replaces the normal one of `LEVEL`. Raises `ValueError` unless
    0 ≤ successes ≤ total and total > 0.
    """
    if total <= 0 or not 0 <= successes <= total:
        raise ValueError(f"{successes} successes of {total}")
    z = NORMAL if quantile is None else quantile
    rate = successes / total
    shrink = 1 + z * z / total
    middle = (rate + z * z / (2 * total)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    low = 0.0 if rate == 0 else max(0.0, middle - half)
    high = 1.0 if rate == 1 else min(1.0, middle + half)
    return Interval(rate, low, high, round(total))


def mean_interval(moments: Moments, *, bounds: tuple[float, float] | None = None) -> Interval | None:
    """Student's interval of a mean, cut at `bounds`; None for no value.

    Values that do not differ, a single one among them, say nothing of their spread: Student's interval
    would have no width and look certain. Within `bounds` it is then Wilson's for a rate of the same mean,
    the widest that values between those bounds can have; without bounds a single value has no interval.
    """
    if not moments.n or (moments.n == 1 and bounds is None):
        return None
    if moments.squares <= 0 and bounds is not None:
        bottom, span = bounds[0], bounds[1] - bounds[0]
        place = min(1.0, max(0.0, (moments.mean - bottom) / span))
        found = wilson(place * moments.n, moments.n)
        return Interval(moments.mean, bottom + span * found.low, bottom + span * found.high, moments.n)
    half = student(moments.n - 1) * math.sqrt(moments.squares / (moments.n - 1) / moments.n)
    low, high = moments.mean - half, moments.mean + half
    if bounds is not None:
        low, high = min(moments.mean, max(low, bounds[0])), max(moments.mean, min(high, bounds[1]))
    return Interval(moments.mean, low, high, moments.n)


def cluster_rate(sums: RatioSums) -> Interval | None:
    """A pooled rate, such as refuted by decided facts, with responses as clusters; None without facts.

    The variance is the delta method's for a ratio estimator (Cochran, Sampling Techniques, 1977, eq.
    2.46): n / (n - 1) · sum of (numerator - rate · denominator)² over the squared denominator. It enters
    Wilson's interval as an effective number of facts, with Student's quantile for n - 1 degrees of
    freedom (Korn and Graubard 1998; Franco, Little, Louis and Slud 2019), so that the interval stays
    inside [0, 1]. The design effect is never taken to be below 1. Where the rate is 0 or 1 nothing can be
    seen of it, nor with one response, and the effective number is then that of the responses: as if the
    facts of a response all shared one fate.
    """
    if not sums.denominator:
        return None
    rate = sums.numerator / sums.denominator
    effective = float(sums.clusters)
    quantile = NORMAL
    if 0 < rate < 1 and sums.clusters > 1:
        residuals = sums.numerator_squares - 2 * rate * sums.products + rate * rate * sums.denominator_squares
        variance = sums.clusters / (sums.clusters - 1) * max(residuals, 0.0) / sums.denominator**2
        simple = rate * (1 - rate) / sums.denominator
        effective = sums.denominator / max(1.0, variance / simple)
        quantile = student(sums.clusters - 1)
    found = wilson(rate * effective, effective, quantile=quantile)
    return Interval(rate, min(found.low, rate), max(found.high, rate), sums.denominator)


def difference(first: Interval, second: Interval) -> Interval:
    """`second` less `first`, two independent estimates: the distances to their limits add as squares.

    Zou and Donner 2008; for two rates it is Newcombe's interval (1998). Of the same questions asked twice it
    is too wide rather than too narrow, since their answers resemble each other. `n` is the smaller one.
    """
    value = second.value - first.value
    below = math.hypot(second.value - second.low, first.high - first.value)
    above = math.hypot(second.high - second.value, first.value - first.low)
    return Interval(value, value - below, value + above, min(first.n, second.n))


def bootstrap(
    units: Sequence[T],
    statistic: Callable[[Sequence[T]], float | None],
    *,
    seed: int = 0,
    resamples: int = 1000,
) -> Interval | None:
    """The percentile interval of any statistic over drawn units (Efron 1979), the same for a seed.

    Resamples on which the statistic is None or not finite are left out; None when it is so on the units
    themselves.
    """
    value = statistic(units) if units else None
    if value is None or not math.isfinite(value):
        return None
    random = Random(seed)
    drawn = (statistic(random.choices(units, k=len(units))) for _ in range(resamples))
    found = sorted(one for one in drawn if one is not None and math.isfinite(one))
    if not found:
        return Interval(value, value, value, len(units))
    return Interval(value, percentile(found, (1 - LEVEL) / 2), percentile(found, (1 + LEVEL) / 2), len(units))


def ranks(scores: Mapping[K, float]) -> dict[K, int]:
    """Ranks by score, the highest first; equals share the better rank."""
    return {name: 1 + sum(other > score for other in scores.values()) for name, score in scores.items()}


def mean_ranks(scorings: Sequence[tuple[float, Mapping[K, float]]]) -> dict[K, float]:
    """The ranks by several scorings of the same things, averaged with each scoring's weight."""
    ranked = [(weight, ranks(scores)) for weight, scores in scorings]
    total = math.fsum(weight for weight, _ in ranked)
    names = scorings[0][1]
    return {name: math.fsum(weight * found[name] for weight, found in ranked) / total for name in names}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered values lie, by linear interpolation."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def student_quantile(share: float, degrees: int) -> float:
    """Quantile of Student's distribution, to four digits from 3 degrees of freedom up.

    Exact for 1 and 2; else the expansion of Abramowitz and Stegun (1964), 26.7.5.
    """
    if degrees < 1 or not 0 < share < 1:
        raise ValueError(f"quantile {share} with {degrees} degrees of freedom")
    if degrees == 1:
        return math.tan(math.pi * (share - 0.5))
    if degrees == 2:
        return (2 * share - 1) * math.sqrt(2 / (4 * share * (1 - share)))
    z = NormalDist().inv_cdf(share)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / degrees**power for power, term in enumerate(terms))


def student(degrees: int) -> float:
    return student_quantile((1 + LEVEL) / 2, degrees)
