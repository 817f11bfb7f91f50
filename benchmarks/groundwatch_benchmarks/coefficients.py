"""How far scores and labels agree with people's: correlations, accuracy, F1, ROC AUC, calibration. Pure.

scipy has the correlations; it is imported only when a number is asked for.
"""

import warnings
from collections.abc import Sequence

from groundwatch.errors import MissingExtraError
from groundwatch.statistics.intervals import Interval, bootstrap, wilson

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
