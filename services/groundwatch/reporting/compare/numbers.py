"""The arithmetic of a paired comparison: a bootstrap over drawn units, and tests of changed verdicts. Pure.

numpy is imported only when a number is asked for, so that a light installation need not have it, and scipy
not at all: its import would take longer than the comparison.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from groundwatch.errors import MissingExtraError
from groundwatch.statistics.intervals import LEVEL

RESAMPLES = 2_000
AT_ONCE = 32
"""Resamples that are multiplied at once; bounds what is held."""

DIRECT = 10_000_000
"""Products up to which distributions are convolved directly, exact to the last digits; beyond that by FFT."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The second run's number less the first's, with a 95 % interval; no interval of fewer than two units."""

    value: float
    low: float | None = None
    high: float | None = None


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Claims that both runs decided, found by response, category and text.

    `refuted_first` were refuted in the first run only, `refuted_second` in the second only. `p_value` is
    McNemar's exact one (1947), which takes claims for independent. `p_units` takes whole units, responses or
    images, for independent: see `sign_flip`. It is the one to go by.
    """

    claims: int
    refuted_first: int
    refuted_second: int
    p_value: float
    p_units: float


def bootstrap_ratios(
    units: Sequence[Mapping[int, Sequence[float]]], groups: int, *, seed: int = 0, resamples: int = RESAMPLES
) -> list[tuple[float | None, float | None, Difference | None]]:
    """Two ratios and their paired difference for each group, by percentiles over resampled units.

    A unit maps a group's number to what it adds to numerator and denominator of the first ratio, then of
    the second. Units are drawn with replacement, all groups by the same draws (Efron 1979); the result
    depends on the units' order and the seed alone, and mirrors when the sides do. Resamples without a
    denominator are left out. Raises `MissingExtraError` without numpy.
    """
    np = _numpy()
    rows: list[list[int]] = [[] for _ in range(groups)]
    fours: list[list[Sequence[float]]] = [[] for _ in range(groups)]
    for row, unit in enumerate(units):
        for group, four in unit.items():
            rows[group].append(row)
            fours[group].append(four)
    # A group's own units only: most groups are a small part of all.
    at = [np.array(one, dtype=np.intp) for one in rows]
    across = [np.ascontiguousarray(np.array(one, dtype=float).reshape(-1, 4).T) for one in fours]
    drawn = np.zeros((groups, resamples if len(units) > 1 else 0, 4))
    if len(units) > 1:
        random = np.random.Generator(np.random.PCG64(seed))
        for start in range(0, resamples, AT_ONCE):
            counts = np.stack(
                [
                    np.bincount(random.integers(0, len(units), len(units)), minlength=len(units))
                    for _ in range(min(AT_ONCE, resamples - start))
                ]
            ).astype(float)
            for group in range(groups):
                if not len(at[group]):
                    continue
                mine = counts if len(at[group]) == len(units) else np.take(counts, at[group], axis=1)
                # Not by BLAS: its threads spin while they wait, and here others want the cores.
                found = np.einsum("ru,gu->rg", mine, across[group])
                drawn[group, start : start + len(found)] = found
    return [_ratios(np, across[group].sum(axis=1), drawn[group], len(rows[group])) for group in range(groups)]


def _ratios(
    np: Any, sums: Any, drawn: Any, present: int
) -> tuple[float | None, float | None, Difference | None]:
    first = float(sums[0] / sums[1]) if sums[1] else None
    second = float(sums[2] / sums[3]) if sums[3] else None
    if first is None or second is None:
        return first, second, None
    value = second - first
    kept = drawn[(drawn[:, 1] > 0) & (drawn[:, 3] > 0)]
    if present < 2 or not len(kept):
        return first, second, Difference(value=value)
    found = np.sort(kept[:, 2] / kept[:, 3] - kept[:, 0] / kept[:, 1])
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    # A value beyond all resamples comes of rounding alone, where nothing varies.
    return first, second, Difference(value=value, low=min(float(low), value), high=max(float(high), value))


def mcnemar(refuted_first: int, refuted_second: int) -> float:
    """McNemar's exact two-sided p-value (1947) of two discordant counts; 1 where there are none."""
    return sign_flip([-1] * refuted_first + [1] * refuted_second)


def sign_flip(changes: Sequence[int]) -> float:
    """The two-sided p-value of a sum of changes, one a unit, if each could as well have had the other sign.

    This is what "the runs are exchangeable within a unit" says, so it stays right however much the claims of
    one unit resemble each other (Fisher's randomisation test, 1935). Exact, not sampled: the distribution of
    the sum is convolved. Where every change is 1 or -1 it is McNemar's exact test. Raises
    `MissingExtraError` without numpy.
    """
    observed = abs(sum(changes))
    if not observed:
        return 1.0
    np = _numpy()
    distribution = np.ones(1)
    for size, number in sorted(Counter(abs(change) for change in changes if change).items()):
        # The sum of `number` changes of this size is size · (2 · heads - number): steps of 2 · size.
        one = np.zeros(size * number + 1)
        one[::size] = _fair_heads(np, number)
        distribution = _convolved(np, distribution, one)
    # At place k the sum is 2k - total. It is symmetric, so the far end is the near one again.
    total = len(distribution) - 1
    return min(1.0, 2 * float(distribution[: (total - observed) // 2 + 1].sum()))


def _fair_heads(np: Any, tosses: int) -> Any:
    """Chances of 0 to `tosses` heads of a fair coin."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, tosses + 1)))])
    return np.exp(factorials[-1] - factorials - factorials[::-1] - tosses * math.log(2))


def _convolved(np: Any, one: Any, other: Any) -> Any:
    if len(one) * len(other) <= DIRECT:
        return np.convolve(one, other)
    length = len(one) + len(other) - 1
    size = 1 << (length - 1).bit_length()
    spectrum = np.fft.rfft(one, size) * np.fft.rfft(other, size)
    return np.clip(np.fft.irfft(spectrum, size)[:length], 0.0, None)


def verdicts(units: Sequence[Sequence[int]]) -> Verdicts:
    """The tests over units of (claims decided in both, refuted in the first only, in the second only)."""
    first, second = sum(unit[1] for unit in units), sum(unit[2] for unit in units)
    return Verdicts(
        claims=sum(unit[0] for unit in units),
        refuted_first=first,
        refuted_second=second,
        p_value=mcnemar(first, second),
        p_units=sign_flip([unit[2] - unit[1] for unit in units]),
    )


def share_bins(values: Sequence[float], bins: int = 20) -> list[int]:
    """How many values lie in each of `bins` equal parts of [-1, 1], and in the middle exactly 0 by itself.

    The list has `bins` + 1 places; that of unchanged ones is in the middle. `bins` is even.
    """
    half = bins // 2
    found = [0] * (bins + 1)
    for value in values:
        if not value:
            found[half] += 1
            continue
        step = min(half, max(1, math.ceil(round(abs(value) * half, 9))))
        found[half + step if value > 0 else half - step] += 1
    return found


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise MissingExtraError("numpy", "embedded") from error
    return numpy
