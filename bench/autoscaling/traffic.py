"""How many responses arrive: a working day, a day that never sleeps, a burst, a silence."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable

Shape = Callable[[float], float]
"""Share of the peak's rate at a second."""

HOUR = 3_600.0

WORKING_DAY = (
    *(0.05, 0.04, 0.03, 0.03, 0.03, 0.05, 0.10, 0.25, 0.60, 0.90, 1.00, 0.92),
    *(0.72, 0.85, 0.97, 0.94, 0.80, 0.55, 0.35, 0.25, 0.20, 0.15, 0.10, 0.07),
)
"""One value for each full hour: office hours in one time zone, a dip at noon, a thin evening and night."""

ROUND_THE_CLOCK = (
    *(0.45, 0.38, 0.33, 0.30, 0.30, 0.32, 0.38, 0.46, 0.58, 0.70, 0.80, 0.86),
    *(0.88, 0.90, 0.93, 0.96, 1.00, 0.98, 0.94, 0.88, 0.80, 0.72, 0.62, 0.53),
)
"""The same for users on several continents: the valley is a third of the peak."""


def through(knots: tuple[float, ...]) -> Shape:
    """Straight lines through values an hour apart, and from the last to the first."""

    def at(second: float) -> float:
        hour, part = divmod(second / HOUR, 1.0)
        here, there = knots[int(hour) % len(knots)], knots[(int(hour) + 1) % len(knots)]
        return here + (there - here) * part

    return at


def steps(*changes: tuple[float, float]) -> Shape:
    """Constant between changes, each a second and the share from then on; the first at 0."""
    seconds = [second for second, _ in changes]

    def at(second: float) -> float:
        return changes[bisect_right(seconds, second) - 1][1]

    return at


def arrivals(shape: Shape, *, peak: float, seconds: int, seed: int) -> list[int]:
    """Poisson counts for each second, at `peak` events a second times the shape."""
    draw = random.Random(seed)
    return [_poisson(peak * shape(second), draw) for second in range(seconds)]


def _poisson(mean: float, draw: random.Random) -> int:
    if mean > 30:
        return max(0, round(draw.gauss(mean, math.sqrt(mean))))
    limit, count, product = math.exp(-mean), 0, draw.random()
    while product > limit:
        count += 1
        product *= draw.random()
    return count
