"""How far two judges agree: correlations with bootstrap intervals.

scipy has the coefficients; it is imported only when one is asked for, because a light install goes
without it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from groundwatch.errors import MissingExtraError
from groundwatch.protocols.statistics import LEVEL, Interval, bootstrap

COEFFICIENTS = ("pearson", "spearman", "kendall")
"""Pearson's r, Spearman's rho and Kendall's tau-b, the three of FaithScore's table 3."""


def correlation(
    name: str,
    first: Sequence[float],
    second: Sequence[float],
    *,
    seed: int = 0,
    resamples: int = 1000,
    level: float = LEVEL,
) -> Interval | None:
    """One coefficient over pairs with its percentile bootstrap interval over pairs.

    None where it is undefined: fewer than three pairs, or a side that never varies. Raises
    `MissingExtraError` without scipy, `ValueError` for sequences of different length or an unknown name.
    """
    coefficient = _coefficient(name)

    def statistic(pairs: Sequence[tuple[float, float]]) -> float | None:
        return coefficient([a for a, _ in pairs], [b for _, b in pairs])

    pairs = list(zip(first, second, strict=True))
    if len(pairs) < 3:
        return None
    return bootstrap(pairs, statistic, seed=seed, resamples=resamples, level=level)


def correlations(
    first: Sequence[float], second: Sequence[float], *, seed: int = 0, resamples: int = 1000
) -> dict[str, Interval | None]:
    """All three coefficients by name."""
    return {name: correlation(name, first, second, seed=seed, resamples=resamples) for name in COEFFICIENTS}


def _coefficient(name: str) -> Callable[[Sequence[float], Sequence[float]], float | None]:
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtraError("scipy", "embedded") from None
    if name not in COEFFICIENTS:
        raise ValueError(f"no coefficient {name}; there are {', '.join(COEFFICIENTS)}")
    function: Any = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}[
        name
    ]

    def compute(first: Sequence[float], second: Sequence[float]) -> float | None:
        if min(first) == max(first) or min(second) == max(second):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = float(function(first, second)[0])
        return found if math.isfinite(found) else None

    return compute
