"""Sampling of responses with unequal probabilities: how likely to judge one, and what the judged stand for.

A response that was judged with probability p stands for 1 / p responses. Sums weighted so are unbiased for
all responses whose probability was above 0, whatever decided the probabilities, as long as these were fixed
before the draw and the draw itself looked at nothing (Horvitz and Thompson 1952). Rates and means are ratios
of two such sums (Hájek 1971): their bias vanishes as 1 / n, and the variance is linearised as in
`statistics.cluster_rate`. Pure: no clock, no randomness but hashes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from groundwatch.events import Drawn, digest
from groundwatch.statistics.intervals import (
    LEVEL,
    Interval,
    Moments,
    RatioSums,
    cluster_rate,
    mean_interval,
    student_quantile,
    wilson,
)

ORDINARY = "ordinary"
SUSPICIOUS = "suspicious"
"""The two strata of a budget with a reserve."""

PATIENCE = 4.0
"""How many more responses to reckon with for each one beyond what was expected."""

ROUNDING = 1e-12

_DIGITS = 13
"""Hex digits that become a position: 52 bits, which a float holds exactly."""


def uniform(*parts: str) -> float:
    """A number in [0, 1) made of the parts: the same for ever, and uniform over different parts."""
    return int(digest(*parts)[:_DIGITS], 16) / float(16**_DIGITS)


def pace(left: float, expected: float, seen: int, elapsed: float) -> float:
    """With which probability to judge the next response, so that `left` last until the window ends.

    `expected` is how many responses the window before had, `seen` how many this one has had, and `elapsed`
    which part of it has gone by. Where there is no window before, or it had fewer, `PATIENCE` more are
    reckoned with for each one beyond it: the probability then falls about as 1 / seen, so that the budget
    lasts through a burst of unknown length and no single response comes to stand for most of it. What was
    expected may still come late, so a window with less traffic leaves some of its budget unused. The number
    depends on what came before, never on the response, so that weights of 1 / p stay unbiased.
    """
    if left <= 0:
        return 0.0
    coming = max(expected - seen, expected * (1 - elapsed), PATIENCE * (seen - expected))
    return 1.0 if left >= coming else left / coming


def weight(drawn: Drawn) -> float:
    """How many responses a judged one stands for; 1 where its probability is not known to be above 0."""
    return 1 / drawn.probability if drawn.probability > 0 else 1.0


def representative(drawn: Drawn, name: str) -> bool:
    """Whether a judged response belongs to the part of the sample that was drawn with equal probability.

    At any moment the least likely stratum was judged with probability `lowest`; of a likelier one only the
    share lowest / probability is kept, by a hash of `name`, which must tell the response from others. What
    is kept is a simple random sample of all responses of that moment, suspicious or not. Whatever assumes
    that neighbours are alike, such as an alarm or the search for a change, takes these alone: else more
    suspicious ones judged would look like a worse model.
    """
    if drawn.probability <= drawn.lowest:
        return True
    return uniform("representative", name) < drawn.lowest / drawn.probability


def horvitz_thompson(
    values: Sequence[float], probabilities: Sequence[float], level: float = LEVEL
) -> Interval:
    """The total over all responses of which these were judged, each independently with its probability.

    Σ x/p, with the variance Σ (1 - p)/p² · x² of Poisson sampling (Särndal, Swensson and Wretman 1992,
    eq. 3.5.3) and a normal interval. Raises `ValueError` for a probability that is not in (0, 1].
    """
    if any(not 0 < one <= 1 for one in probabilities):
        raise ValueError("a judged response has a probability above 0 and up to 1")
    total = math.fsum(x / p for x, p in zip(values, probabilities, strict=True))
    variance = math.fsum((1 - p) * (x / p) ** 2 for x, p in zip(values, probabilities, strict=True))
    # The quantile for so many degrees of freedom is the normal one to four digits.
    half = student_quantile((1 + level) / 2, 10**6) * math.sqrt(variance)
    return Interval(total, total - half, total + half, len(values))


class Linear(msgspec.Struct):
    """The sums that a ratio of two weighted totals needs; squares and products carry squared weights."""

    weights: float = 0.0
    weight_squares: float = 0.0
    numerator: float = 0.0
    denominator: float = 0.0
    numerator_squares: float = 0.0
    products: float = 0.0
    denominator_squares: float = 0.0

    def add(self, numerator: float, denominator: float, weight: float) -> None:
        """Take in one response."""
        x, y = weight * numerator, weight * denominator
        self.weights += weight
        self.weight_squares += weight * weight
        self.numerator += x
        self.denominator += y
        self.numerator_squares += x * x
        self.products += x * y
        self.denominator_squares += y * y

    def merge(self, other: Linear) -> None:
        """Take in what another one saw."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def effective(self) -> float:
        """How many responses of equal weight tell as much (Kish 1965)."""
        return self.weights**2 / self.weight_squares if self.weight_squares else 0.0

    def variance(self, ratio: float, n: int) -> float:
        """Of the ratio, linearised, from `n` responses; 0 where only rounding tells them apart."""
        residuals = self.numerator_squares - 2 * ratio * self.products + ratio**2 * self.denominator_squares
        if residuals <= ROUNDING * self.numerator_squares:
            return 0.0
        return n / (n - 1) * residuals / self.denominator**2


class WeightedSums(msgspec.Struct):
    """`RatioSums` of responses that stand for different numbers of others.

    While all weights are equal nothing is weighted, and every number is that of `cluster_rate`.
    """

    plain: RatioSums = msgspec.field(default_factory=RatioSums)
    weight: float | None = None
    linear: Linear | None = None

    def add(self, numerator: int, denominator: int, weight: float = 1.0) -> None:
        """Count one response; one without a denominator has no part in a rate."""
        if not denominator:
            return
        if self.weight is None:
            self.weight = weight
        elif weight != self.weight and self.linear is None:
            self.linear = self._linear()
        self.plain.add(numerator, denominator)
        if self.linear is not None:
            self.linear.add(numerator, denominator, weight)

    def merge(self, other: WeightedSums) -> None:
        """Take in what another one saw."""
        if other.weight is None:
            return
        if self.weight is None:
            self.weight = other.weight
        if self.linear is not None or other.linear is not None or self.weight != other.weight:
            mine = self._linear()
            mine.merge(other._linear())
            self.linear = mine
        self.plain.merge(other.plain)

    @property
    def represented(self) -> float:
        """How many responses these stand for."""
        return self._linear().weights

    def _linear(self) -> Linear:
        if self.linear is not None:
            return self.linear
        one, plain = self.weight or 1.0, self.plain
        return Linear(
            weights=one * plain.clusters,
            weight_squares=one**2 * plain.clusters,
            numerator=one * plain.numerator,
            denominator=one * plain.denominator,
            numerator_squares=one**2 * plain.numerator_squares,
            products=one**2 * plain.products,
            denominator_squares=one**2 * plain.denominator_squares,
        )


class WeightedMoments(msgspec.Struct):
    """`Moments` of responses that stand for different numbers of others; as they are while all are equal."""

    plain: Moments = msgspec.field(default_factory=Moments)
    weight: float | None = None
    linear: Linear | None = None

    def add(self, value: float, weight: float = 1.0) -> None:
        """Take in one value."""
        if self.weight is None:
            self.weight = weight
        elif weight != self.weight and self.linear is None:
            self.linear = self._linear()
        self.plain.add(value)
        if self.linear is not None:
            self.linear.add(value, 1.0, weight)

    def merge(self, other: WeightedMoments) -> None:
        """Take in what another one saw."""
        if other.weight is None:
            return
        if self.weight is None:
            self.weight = other.weight
        if self.linear is not None or other.linear is not None or self.weight != other.weight:
            mine = self._linear()
            mine.merge(other._linear())
            self.linear = mine
        self.plain.merge(other.plain)

    @property
    def n(self) -> int:
        """How many values."""
        return self.plain.n

    @property
    def mean(self) -> float:
        """The weighted mean; 0 of nothing."""
        return self.plain.mean if self.linear is None else self.linear.numerator / self.linear.denominator

    def _linear(self) -> Linear:
        if self.linear is not None:
            return self.linear
        one, n, mean = self.weight or 1.0, self.plain.n, self.plain.mean
        return Linear(
            weights=one * n,
            weight_squares=one**2 * n,
            numerator=one * n * mean,
            denominator=one * n,
            numerator_squares=one**2 * (self.plain.squares + n * mean * mean),
            products=one**2 * n * mean,
            denominator_squares=one**2 * n,
        )


def weighted_rate(sums: WeightedSums, level: float = LEVEL) -> Interval | None:
    """A rate, such as refuted by decided facts, over all responses that the judged ones stand for.

    `cluster_rate` while all weights are equal. Else the ratio of the weighted sums; its linearised variance,
    with squared weights, enters Wilson's interval as an effective number of facts, never more than there
    are, with Student's quantile for Kish's effective number of responses. `n` is how many facts it rests on.
    """
    linear, plain = sums.linear, sums.plain
    if linear is None:
        return cluster_rate(plain, level)
    rate = min(1.0, max(0.0, linear.numerator / linear.denominator))
    effective = linear.effective
    degrees = max(1, round(effective) - 1)
    if 0 < rate < 1:
        variance = linear.variance(rate, plain.clusters)
        facts = float(plain.denominator)
        effective = min(facts, rate * (1 - rate) / variance) if variance > 0 else effective
    found = wilson(rate * effective, effective, quantile=student_quantile((1 + level) / 2, degrees))
    return Interval(rate, min(found.low, rate), max(found.high, rate), plain.denominator)


def weighted_mean_interval(
    moments: WeightedMoments, level: float = LEVEL, *, bounds: tuple[float, float] | None = None
) -> Interval | None:
    """`mean_interval` over all responses that the judged ones stand for; `n` is how many were judged."""
    linear = moments.linear
    if linear is None:
        return mean_interval(moments.plain, level, bounds=bounds)
    n = max(2, round(linear.effective))
    variance = linear.variance(moments.mean, moments.n)
    same = Moments(n=n, mean=moments.mean, squares=variance * n * (n - 1))
    found = mean_interval(same, level, bounds=bounds)
    return None if found is None else msgspec.structs.replace(found, n=moments.n)
