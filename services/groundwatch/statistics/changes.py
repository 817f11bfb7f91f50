"""Where in a sequence of responses a model's hallucination rate changed.

Kept apart from the intervals of `statistics`: this one looks at order.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from random import Random

import msgspec

BLOCKS = 400
"""Longer sequences are summed to about this many runs of neighbours before they are permuted."""

EXCEEDANCES = 20
"""Permutation stops after so many that reach the observed statistic: the change is then not significant."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of rate: `response` is the number, from 1, of the first response after it."""

    response: int
    before: float
    after: float
    p_value: float


def find_change(
    pairs: Sequence[tuple[int, int]],
    *,
    level: float = 0.01,
    minimum: int = 8,
    permutations: int = 999,
    seed: int = 0,
) -> Change | None:
    """Find where the rate of (refuted, decided) pairs, one for each response in order, changed most.

    The statistic is the largest log-likelihood ratio of two binomial rates against one over all splits
    that leave `minimum` responses with decided facts on either side (Hinkley and Hinkley 1970). Facts of
    one response resemble each other, so the textbook distribution would alarm too often: its p-value
    comes from permuting whole responses, under which order says nothing when nothing changed. Sequential
    Monte Carlo (Besag and Clifford 1991) ends early where there is plainly no change.

    None when the p-value is above `level`, or the sequence is too short.
    """
    numbers = [number for number, (_, decided) in enumerate(pairs, start=1) if decided]
    kept = [pairs[number - 1] for number in numbers]
    if len(kept) < 2 * minimum:
        return None
    _, split = _best_split(kept, minimum)
    if split == 0:
        return None
    p_value = _p_value(kept, minimum, permutations, seed)
    if p_value > level:
        return None
    return Change(
        response=numbers[split], before=_rate(kept[:split]), after=_rate(kept[split:]), p_value=p_value
    )


def _p_value(pairs: Sequence[tuple[int, int]], minimum: int, permutations: int, seed: int) -> float:
    """Permutation p-value of the largest statistic; runs of neighbours are permuted in long sequences."""
    size = max(1, len(pairs) // BLOCKS)
    blocks = [_sum(pairs[start : start + size]) for start in range(0, len(pairs), size)]
    smallest = math.ceil(minimum / size)
    observed, _ = _best_split(blocks, smallest)
    random = Random(seed)
    reached = 0
    for drawn in range(1, permutations + 1):
        random.shuffle(blocks)
        reached += _best_split(blocks, smallest)[0] >= observed - 1e-12
        if reached >= EXCEEDANCES:
            return reached / drawn
    return (reached + 1) / (permutations + 1)


def _best_split(pairs: Sequence[tuple[int, int]], minimum: int) -> tuple[float, int]:
    """The largest log-likelihood ratio and the split, as the number of pairs before it, that has it."""
    refuted = list(accumulate(pair[0] for pair in pairs))
    decided = list(accumulate(pair[1] for pair in pairs))
    all_refuted, all_decided = refuted[-1], decided[-1]
    if not 0 < all_refuted < all_decided:
        return 0.0, 0
    best, where = -1.0, 0
    for split in range(minimum, len(pairs) - minimum + 1):
        r, d = refuted[split - 1], decided[split - 1]
        found = _likelihood(r, d) + _likelihood(all_refuted - r, all_decided - d)
        if where == 0 or found > best:
            best, where = found, split
    return best - _likelihood(all_refuted, all_decided), where


def _likelihood(refuted: int, decided: int) -> float:
    """Log-likelihood of a binomial at its own rate, without the part that does not depend on the split."""
    if not 0 < refuted < decided:
        return 0.0
    kept = decided - refuted
    return refuted * math.log(refuted / decided) + kept * math.log(kept / decided)


def _sum(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def _rate(pairs: Sequence[tuple[int, int]]) -> float:
    refuted, decided = _sum(pairs)
    return refuted / decided
