"""How far judges agree: κ and α among annotators, and κ of two judges.

statsmodels has Fleiss' κ; it is imported only when a number is asked for, because a light install goes
without it. Krippendorff's α is written out here: the library that has it
for incomplete labels is under the GPL, which this package's licence does not go with.
"""

import math
from collections.abc import Sequence

from groundwatch.errors import MissingExtraError
from groundwatch.statistics.intervals import Interval, bootstrap

Counts = Sequence[int]
"""One item: how many annotators gave it each label, the labels in the same order for every item."""


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
