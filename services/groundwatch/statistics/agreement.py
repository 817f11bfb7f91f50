"""How far judges agree: correlations of scores, accuracy and F1 of labels, κ and α among annotators.

scipy has the correlations and statsmodels Fleiss' κ; both are imported only when a number is asked for,
because a light install goes without them. Krippendorff's α is written out here: the library that has it
for incomplete labels is under the GPL, which this package's licence does not go with.
"""

import math
import warnings
from collections.abc import Sequence

from groundwatch.errors import MissingExtraError
from groundwatch.statistics.intervals import Interval, bootstrap, wilson

Counts = Sequence[int]
"""One item: how many annotators gave it each label, the labels in the same order for every item."""

COEFFICIENTS = {"pearson": "pearsonr", "spearman": "spearmanr", "kendall": "kendalltau"}
"""Pearson's r, Spearman's rho and Kendall's tau-b, the three of FaithScore's table 3."""


def correlation(
    name: str, first: Sequence[float], second: Sequence[float], *, seed: int = 0, resamples: int = 1000
) -> Interval | None:
    """One coefficient over pairs with its percentile bootstrap interval over pairs.

    None where it is undefined: fewer than three pairs, or a side that never varies. Raises
    `MissingExtraError` without scipy, `ValueError` for sequences of different length or an unknown name.
    """
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtraError("scipy", "embedded") from None
    if name not in COEFFICIENTS:
        raise ValueError(f"no coefficient {name}; there are {', '.join(COEFFICIENTS)}")
    coefficient = getattr(stats, COEFFICIENTS[name])

    def statistic(pairs: Sequence[tuple[float, float]]) -> float | None:
        sides = [list(side) for side in zip(*pairs, strict=True)]
        if any(min(side) == max(side) for side in sides):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(coefficient(*sides)[0])

    pairs = list(zip(first, second, strict=True))
    if len(pairs) < 3:
        return None
    return bootstrap(pairs, statistic, seed=seed, resamples=resamples)


def correlations(
    first: Sequence[float], second: Sequence[float], *, seed: int = 0, resamples: int = 1000
) -> dict[str, Interval | None]:
    return {name: correlation(name, first, second, seed=seed, resamples=resamples) for name in COEFFICIENTS}


def accuracy(pairs: Sequence[tuple[str, str]]) -> Interval | None:
    """The share of (people's, automatic) labels that are equal, with Wilson's interval; None of nothing."""
    if not pairs:
        return None
    return wilson(sum(people == found for people, found in pairs), len(pairs))


def f1(pairs: Sequence[tuple[str, str]], label: str) -> float | None:
    """F1 of one label over (people's, automatic) pairs; None where neither side ever gives it."""
    both = sum(people == label == found for people, found in pairs)
    either = sum((people == label) + (found == label) for people, found in pairs)
    return 2 * both / either if either else None


def roc_auc(above: Sequence[float], below: Sequence[float]) -> float | None:
    """The chance that one of the first lies above one of the second, ties as a half (Mann and Whitney 1947).

    None where either is empty. Raises `MissingExtraError` without scipy.
    """
    if not above or not below:
        return None
    try:
        from scipy.stats import mannwhitneyu
    except ImportError:
        raise MissingExtraError("scipy", "embedded") from None
    return float(mannwhitneyu(above, below).statistic) / (len(above) * len(below))


def fleiss_kappa(items: Sequence[Counts], *, seed: int = 0, resamples: int = 1000) -> Interval | None:
    """Fleiss' κ (1971) with its bootstrap interval over items.

    None where it is undefined: no item, fewer than two labels an item, or one label everywhere. Raises
    `ValueError` when items have different numbers of labels, `MissingExtraError` without statsmodels.
    """
    if len({sum(counts) for counts in items}) > 1:
        raise ValueError("Fleiss' κ needs the same number of labels on every item")
    try:
        import numpy
        from statsmodels.stats import inter_rater
    except ImportError:
        raise MissingExtraError("statsmodels", "embedded") from None
    if not items or sum(items[0]) < 2:
        return None

    def statistic(drawn: Sequence[Counts]) -> float | None:
        table = numpy.asarray(drawn)
        if numpy.count_nonzero(table.sum(axis=0)) < 2:
            return None
        return float(inter_rater.fleiss_kappa(table, method="fleiss"))

    return bootstrap(items, statistic, seed=seed, resamples=resamples)


def krippendorff_alpha(items: Sequence[Counts], *, seed: int = 0, resamples: int = 1000) -> Interval | None:
    """Krippendorff's α for nominal labels with its bootstrap interval over items.

    α = 1 - D_o / D_e (Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011, section C). Items
    may have different numbers of labels; one with fewer than two says nothing of agreement and is left
    out, so `n` counts the others. None where α is undefined: no such item, or one label everywhere.
    """
    pairable = [
        # Of an item its part in the diagonal of the coincidence matrix.
        (sum(count * (count - 1) for count in counts) / (sum(counts) - 1), counts)
        for counts in items
        if sum(counts) > 1
    ]

    def statistic(drawn: Sequence[tuple[float, Counts]]) -> float | None:
        totals = [sum(column) for column in zip(*(counts for _, counts in drawn), strict=True)]
        labels: int = sum(totals)
        expected: int = labels * labels - sum(total * total for total in totals)
        if not expected:
            return None
        observed = labels - math.fsum(agreeing for agreeing, _ in drawn)
        return 1.0 - (labels - 1) * observed / expected

    return bootstrap(pairable, statistic, seed=seed, resamples=resamples)


def calibration(
    pairs: Sequence[tuple[float, bool]], bins: int = 10
) -> tuple[float, float] | tuple[None, None]:
    """How far probabilities are from what came true: Brier's score, and the expected calibration error.

    The first is the mean squared difference (Brier 1950). The second is the mean over pairs of how far,
    within `bins` equal parts of 0 to 1, the mean probability is from the share that came true (Guo et al.
    2017, equation 3). None without pairs.
    """
    if not pairs:
        return None, None
    binned: dict[int, list[float]] = {}
    for chance, true in pairs:
        binned.setdefault(min(int(chance * bins), bins - 1), []).append(chance - true)
    brier = sum((chance - true) ** 2 for chance, true in pairs) / len(pairs)
    return brier, sum(abs(sum(one)) for one in binned.values()) / len(pairs)


Table = tuple[int, int, int, int]
"""Of one answer: facts that both call wrong, only the first does, only the second does, and neither."""


def cohen_kappa(tables: Sequence[Table], *, seed: int = 0, resamples: int = 500) -> Interval | None:
    """Cohen's κ (1960) of two judges, with its bootstrap interval over answers; `n` is how many answers.

    None where it is undefined: no fact, or one label everywhere.
    """

    def statistic(drawn: Sequence[Table]) -> float | None:
        both, first, second, neither = (sum(column) for column in zip(*drawn, strict=True))
        total: int = both + first + second + neither
        if not total:
            return None
        one, other = (both + first) / total, (both + second) / total
        expected = one * other + (1 - one) * (1 - other)
        return ((both + neither) / total - expected) / (1 - expected) if expected < 1 else None

    return bootstrap(tables, statistic, seed=seed, resamples=resamples)
