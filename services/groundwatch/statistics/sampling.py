"""Sampling of responses with unequal probabilities: how likely to judge one, and what the judged stand for.

A response that was judged with probability p stands for 1 / p responses. Sums weighted so are unbiased for
all responses whose probability was above 0, whatever decided the probabilities, as long as these were fixed
before the draw and the draw itself looked at nothing (Horvitz and Thompson 1952). Rates and means are ratios
of two such sums (Hájek 1971): their bias vanishes as 1 / n, and the variance is linearised as in
`statistics.cluster_rate`. Pure: no clock, no randomness but hashes.
"""

from typing import Any, Self

import msgspec

from groundwatch.events import Drawn
from groundwatch.keys import digest
from groundwatch.statistics.intervals import (
    Interval,
    Moments,
    RatioSums,
    RunningSums,
    cluster_rate,
    mean_interval,
    student,
    wilson,
)

SURPLUS = 4.0
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
    which part of it has gone by. Where there is no window before, or it had fewer, `SURPLUS` more are
    reckoned with for each one beyond it: the probability then falls about as 1 / seen, so that the budget
    lasts through a burst of unknown length and no single response comes to stand for most of it. What was
    expected may still come late, so a window with less traffic leaves some of its budget unused. The number
    depends on what came before, never on the response, so that weights of 1 / p stay unbiased.
    """
    if left <= 0:
        return 0.0
    coming = max(expected - seen, expected * (1 - elapsed), SURPLUS * (seen - expected))
    return 1.0 if left >= coming else left / coming


def weight(drawn: Drawn) -> float:
    """How many responses a judged one stands for; 1 where its probability is not known to be above 0."""
    return 1 / drawn.probability if drawn.probability > 0 else 1.0


def representative(drawn: Drawn, name: str) -> bool:
    """Whether a judged response belongs to the part of the sample that was drawn with equal probability.

    At any moment the least likely stratum was judged with probability `lowest`; of a likelier one only the
    share lowest / probability is kept, by a hash of `name`, which must tell the response from others. What
    is kept is a simple random sample of all responses of that moment, suspicious or not. Whatever assumes
    that neighbours are alike, such as an alarm, takes these alone: else more suspicious ones judged would
    look like a worse model.
    """
    if drawn.probability <= drawn.lowest:
        return True
    return uniform("representative", name) < drawn.lowest / drawn.probability


class Linear(RunningSums):
    """The sums that a ratio of two weighted totals needs; squares and products carry squared weights."""

    weights: float = 0.0
    weight_squares: float = 0.0
    numerator: float = 0.0
    denominator: float = 0.0
    numerator_squares: float = 0.0
    products: float = 0.0
    denominator_squares: float = 0.0

    def add(self, numerator: float, denominator: float, weight: float) -> None:
        x, y = weight * numerator, weight * denominator
        self.weights += weight
        self.weight_squares += weight * weight
        self.numerator += x
        self.denominator += y
        self.numerator_squares += x * x
        self.products += x * y
        self.denominator_squares += y * y

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


class _Weighted(msgspec.Struct):
    """Sums over responses that stand for different numbers of others.

    While all weights are equal nothing is weighted, and every number is that of `plain`.
    """

    plain: Any
    weight: float | None = None
    linear: Linear | None = None

    def merge(self, other: Self) -> None:
        if other.weight is None:
            return
        if self.weight is None:
            self.weight = other.weight
        if self.linear is not None or other.linear is not None or self.weight != other.weight:
            mine = self._linear()
            mine.merge(other._linear())
            self.linear = mine
        self.plain.merge(other.plain)

    def _weigh(self, numerator: float, denominator: float, weight: float) -> None:
        """Take in a response before `plain` does."""
        if self.weight is None:
            self.weight = weight
        elif weight != self.weight and self.linear is None:
            self.linear = self._linear()
        if self.linear is not None:
            self.linear.add(numerator, denominator, weight)

    def _linear(self) -> Linear:
        if self.linear is not None:
            return self.linear
        weight = self.weight or 1.0
        n, numerator, denominator, *squares = self._unweighted()
        once = (weight * numerator, weight * denominator)
        return Linear(weight * n, weight**2 * n, *once, *(weight**2 * one for one in squares))

    def _unweighted(self) -> tuple[float, ...]:
        """How many responses there are, then `Linear`'s sums from the numerator on, each of weight 1."""
        raise NotImplementedError


class WeightedSums(_Weighted):
    """`RatioSums` of weighted responses."""

    plain: RatioSums = msgspec.field(default_factory=RatioSums)

    def add(self, numerator: int, denominator: int, weight: float = 1.0) -> None:
        """Count one response; one without a denominator has no part in a rate."""
        if denominator:
            self._weigh(numerator, denominator, weight)
            self.plain.add(numerator, denominator)

    def _unweighted(self) -> tuple[float, ...]:
        one = self.plain
        squares = (one.numerator_squares, one.products, one.denominator_squares)
        return (one.clusters, one.numerator, one.denominator, *squares)


class WeightedMoments(_Weighted):
    """`Moments` of weighted responses."""

    plain: Moments = msgspec.field(default_factory=Moments)

    def add(self, value: float, weight: float = 1.0) -> None:
        self._weigh(value, 1.0, weight)
        self.plain.add(value)

    @property
    def n(self) -> int:
        return self.plain.n

    @property
    def mean(self) -> float:
        """The weighted mean; 0 of nothing."""
        return self.plain.mean if self.linear is None else self.linear.numerator / self.linear.denominator

    def _unweighted(self) -> tuple[float, ...]:
        n, mean = self.plain.n, self.plain.mean
        return (n, n * mean, n, self.plain.squares + n * mean * mean, n * mean, n)


def weighted_rate(sums: WeightedSums) -> Interval | None:
    """A rate, such as refuted by decided facts, over all responses that the judged ones stand for.

    `cluster_rate` while all weights are equal. Else the ratio of the weighted sums; its linearised variance,
    with squared weights, enters Wilson's interval as an effective number of facts, never more than there
    are, with Student's quantile for Kish's effective number of responses. `n` is how many facts it rests on.
    """
    linear, plain = sums.linear, sums.plain
    if linear is None:
        return cluster_rate(plain)
    rate = min(1.0, max(0.0, linear.numerator / linear.denominator))
    effective = linear.effective
    degrees = max(1, round(effective) - 1)
    if 0 < rate < 1:
        variance = linear.variance(rate, plain.clusters)
        facts = float(plain.denominator)
        effective = min(facts, rate * (1 - rate) / variance) if variance > 0 else effective
    found = wilson(rate * effective, effective, quantile=student(degrees))
    return Interval(rate, min(found.low, rate), max(found.high, rate), plain.denominator)


def weighted_mean_interval(
    moments: WeightedMoments, *, bounds: tuple[float, float] | None = None
) -> Interval | None:
    """`mean_interval` over all responses that the judged ones stand for; `n` is how many were judged."""
    linear = moments.linear
    if linear is None:
        return mean_interval(moments.plain, bounds=bounds)
    n = max(2, round(linear.effective))
    variance = linear.variance(moments.mean, moments.n)
    same = Moments(n=n, mean=moments.mean, squares=variance * n * (n - 1))
    found = mean_interval(same, bounds=bounds)
    return None if found is None else msgspec.structs.replace(found, n=moments.n)
