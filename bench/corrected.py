"""Is a corrected rate right, where the truth is known?

In each of `draws` draws of a world a first judge with known biases judges some thousand answers, a second
one, who is always right, those of them that were drawn, and `corrected_rate` says which share of facts does
not hold. `coverage` is the smallest and the largest share of draws in which the interval holds the true rate,
over all worlds, versions, categories and ways of drawing; `worst` the one farthest from 95 %. `width_ratio`
is the mean width over that from the second opinions alone, where 12 % of independent facts do not hold and
the first judge is right in 95 %; `active` that of a draw by a calibrated judge's uncertainty over a uniform
one's; `useless` that with a judge who guesses.

The miniature world is in it with answers that describe changed scenes: what is true of them is read by its
grammar, and their facts are as much alike as sentences about the same mistake are. `few` is of 30 opinions,
and checked nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from random import Random
from typing import Any, NamedTuple

import numpy as np
from tools.miniature.answers import answer

from groundwatch.annotation.drawing import FLOOR, probability
from groundwatch.miniature.language import PROMPTS, holds, read
from groundwatch.miniature.world import COLORS, changed, scenes
from groundwatch.reviews.queues import QueueSpec
from groundwatch.statistics.intervals import Interval, RatioSums
from groundwatch.statistics.prediction_powered import (
    Corrected,
    Labelled,
    Sample,
    corrected_difference,
    corrected_rate,
)
from groundwatch.statistics.sampling import Linear, WeightedSums

COVERED = (0.935, 0.965)
NARROWER, ACTIVE, USELESS = 0.65, 0.8, 1.05
ANSWERS = 6_000
CATEGORIES = ("entity", "color")
POOL = 3_000
"""Answers of the miniature world of each version, of which every draw has its own."""

Counts = Any
"""An array of numbers of facts, one an answer."""


class Cell(NamedTuple):
    """One category of one version: how often a fact does not hold, how often the first judge misses that, and
    how often it raises a false alarm."""

    rate: float
    missed: float
    false: float

    @property
    def bias(self) -> float:
        return (1 - self.rate) * self.false - self.rate * self.missed


class Drawn(NamedTuple):
    """Answers of one version in one category."""

    known: Counts
    wrong: Counts
    judged: Counts


VERSIONS: dict[str, tuple[dict[str, Cell], dict[str, Cell]]] = {
    # Truth 12 %, biases of 0.02 to 0.3, another one in every category and version.
    "biased": (
        {"entity": Cell(0.12, 0.2, 0.05), "color": Cell(0.08, 0.1, 0.3), "count": Cell(0.16, 0.6, 0.01)},
        {"entity": Cell(0.16, 0.05, 0.1), "color": Cell(0.12, 0.3, 0.06), "count": Cell(0.2, 0.1, 0.36)},
    ),
    "frequent": (
        {"entity": Cell(0.4, 0.1, 0.1), "color": Cell(0.3, 0.02, 0.4), "count": Cell(0.5, 0.6, 0.02)},
        {"entity": Cell(0.45, 0.2, 0.1), "color": Cell(0.35, 0.05, 0.2), "count": Cell(0.5, 0.1, 0.2)},
    ),
    "rare": (
        {"entity": Cell(0.02, 0.1, 0.02), "color": Cell(0.02, 0.1, 0.1), "count": Cell(0.02, 0.1, 0.3)},
        {"entity": Cell(0.03, 0.2, 0.03), "color": Cell(0.03, 0.1, 0.05), "count": Cell(0.03, 0.1, 0.1)},
    ),
}


async def measure(draws: int = 2_000, seed: int = 1, opinions: int = 200) -> dict[str, Any]:
    """`opinions` of each version, drawn alike or by uncertainty."""
    random = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for name, versions in VERSIONS.items():
        make = partial(_simulated, random, versions)
        rows += _world(name, make, _rates(versions), random, draws, opinions)
    rows += _miniature(random, draws, opinions)
    ratio = _widths(random, draws, opinions, Cell(0.12, 0.05, 0.05))
    useless = _widths(random, draws, opinions, Cell(0.12, 0.5, 0.5))
    active = _active(random, draws, opinions)
    rows += [ratio, useless, *active["rows"]]
    few = [_widths(random, draws, 30, cell) for cell in (Cell(0.12, 0.05, 0.05), Cell(0.02, 0.05, 0.05))]
    worst = max(rows, key=lambda row: abs(row["coverage"] - 0.95))
    checks = {
        "coverage": all(COVERED[0] <= row["coverage"] <= COVERED[1] for row in rows),
        "width_ratio": ratio["width_ratio"] <= NARROWER,
        "active": active["width_ratio"] <= ACTIVE,
        "useless": useless["width_ratio"] <= USELESS,
    }
    return {
        "coverage": [min(row["coverage"] for row in rows), max(row["coverage"] for row in rows)],
        "width_ratio": ratio["width_ratio"],
        "worst": worst,
        "active": active["width_ratio"],
        "useless": useless["width_ratio"],
        "draws": draws,
        "opinions": opinions,
        "rows": rows,
        "few": few,
        "checks": checks,
        "ok": all(checks.values()),
    }


class Count:
    """In how many draws an interval held the true rate, and how wide it was."""

    def __init__(self, name: str, true: float) -> None:
        self._name, self._true = name, true
        self._n = self._held = self._alone_held = 0
        self._width = self._alone = self._sum = 0.0

    def add(self, interval: Interval, alone: Interval) -> None:
        self._n += 1
        self._held += interval.low <= self._true <= interval.high
        self._alone_held += alone.low <= self._true <= alone.high
        self._width += interval.high - interval.low
        self._alone += alone.high - alone.low
        self._sum += interval.value

    @property
    def width(self) -> float:
        return self._width / self._n

    def row(self) -> dict[str, Any]:
        return {
            "what": self._name,
            "true": round(self._true, 4),
            "mean": round(self._sum / self._n, 4),
            "coverage": round(self._held / self._n, 4),
            "alone": round(self._alone_held / self._n, 4),
            "width": round(self.width, 4),
            "width_ratio": round(self._width / self._alone, 4),
        }


def _rates(versions: tuple[dict[str, Cell], ...]) -> list[dict[str, float]]:
    found = []
    for cells in versions:
        each = {category: cell.rate for category, cell in cells.items()}
        found.append({"all": sum(each.values()) / len(each), **each})
    return found


def _simulated(random: np.random.Generator, versions: tuple[dict[str, Cell], ...]) -> list[dict[str, Drawn]]:
    """Answers whose facts resemble each other: some are much worse than others, in every category, and on
    some the judge does worse."""
    most = max(cell.rate for cells in versions for cell in cells.values())
    # On average 1.
    good, share, bad = (0.4, 0.2, 3.4) if most < 0.25 else (0.7, 3 / 11, 1.8)
    found = []
    for cells in versions:
        numbers, strength = random.integers(1, 5, ANSWERS), 0.5 + random.random(ANSWERS)
        level = np.where(random.random(ANSWERS) < share, bad, good)
        found.append(
            {name: _category(random, cell, numbers, level, strength) for name, cell in cells.items()}
        )
    return found


def _category(
    random: np.random.Generator, cell: Cell, known: Counts, level: Counts, strength: Counts
) -> Drawn:
    """`level` times the rate is that of each answer, `strength` times the judge's errors those in it."""
    wrong = random.binomial(known, cell.rate * level)
    missed = random.binomial(wrong, (cell.missed * strength).clip(0, 1))
    false = random.binomial(known - wrong, (cell.false * strength).clip(0, 1))
    return Drawn(known, wrong, wrong - missed + false)


def _world(
    name: str,
    make: Callable[[], list[dict[str, Drawn]]],
    rates: list[dict[str, float]],
    random: np.random.Generator,
    draws: int,
    opinions: int,
) -> Iterator[dict[str, Any]]:
    """Each version in each category and altogether, and the difference of the two versions.

    The first version's answers were all judged, and opinions are drawn alike. Of the second only some were,
    with unequal probabilities, and opinions are drawn likelier where more was refuted.
    """
    counts = {
        (version, category): Count(f"{name} {'first' if not version else 'second'} {category}", rate)
        for version, each in enumerate(rates)
        for category, rate in each.items()
    }
    between = Count(f"{name} difference", rates[1]["all"] - rates[0]["all"])
    for _ in range(draws):
        both = []
        for version, drawn in enumerate(make()):
            everything = {"all": _together(drawn), **drawn}
            n = len(everything["all"].known)
            weight, judged = np.ones(n), np.ones(n, dtype=bool)
            share = opinions / n
            if version:
                chance = np.where(random.random(n) < 0.3, 0.9, 0.45)
                judged = random.random(n) < chance
                weight, share = 1 / chance, opinions / judged.sum()
                doubt = 0.3 + np.sqrt(everything["all"].judged)
            else:
                doubt = np.ones(n)
            p = _probabilities(share, doubt, float(doubt[judged].mean()))
            chosen = judged & (random.random(n) < p)
            for category, facts in everything.items():
                sample = _sample(facts, judged, chosen, weight, p)
                found = corrected_rate(sample.population, sample.labelled)
                assert found is not None
                counts[version, category].add(found.interval, found.labels_alone)
                if category == "all":
                    both.append(sample)
        difference = corrected_difference(*both)
        assert difference is not None
        between.add(difference.interval, difference.labels_alone)
    yield from (count.row() for count in counts.values())
    yield between.row()


def _together(drawn: dict[str, Drawn]) -> Drawn:
    return Drawn(*(sum(each) for each in zip(*drawn.values(), strict=True)))


def _sample(facts: Drawn, judged: Counts, chosen: Counts, weight: Counts, p: Counts) -> Sample:
    f, g, w = facts.judged[judged], facts.known[judged], weight[judged]
    plain = RatioSums(
        *(int(each) for each in (len(g), f.sum(), g.sum(), (f * f).sum(), (f * g).sum(), (g * g).sum()))
    )
    sums = WeightedSums(plain=plain, weight=float(w[0]))
    if w.min() < w.max():
        x, y = w * f, w * g
        each = (w.sum(), (w * w).sum(), x.sum(), y.sum(), (x * x).sum(), (x * y).sum(), (y * y).sum())
        sums.linear = Linear(*map(float, each))
    columns = (each[chosen].tolist() for each in (facts.wrong, facts.known, facts.judged, weight, p))
    rows = zip(*columns, strict=True)
    return Sample(
        sums,
        [
            Labelled(
                wrong=wrong,
                known=known,
                judged_wrong=judged_wrong,
                judged_known=known,
                weight=each,
                probability=probability,
            )
            for wrong, known, judged_wrong, each, probability in rows
        ],
    )


def _probabilities(share: float, doubt: Counts, mean: float) -> Counts:
    """As queues by uncertainty are drawn."""
    spec = QueueSpec(name="bench", rule="uncertain", share=share, mean_uncertainty=mean)
    values, places = np.unique(doubt, return_inverse=True)
    return np.array([probability(spec, max(FLOOR, one / mean)) for one in values.tolist()])[places]


def _alike(
    facts: Drawn, random: np.random.Generator, opinions: int, doubt: Counts | None = None
) -> Corrected:
    """Corrected from opinions of about so many answers."""
    n, share = len(facts.known), opinions / len(facts.known)
    p = np.full(n, share)
    if doubt is not None:
        p = _probabilities(share, doubt, float(doubt.mean()))
    everything = np.ones(n, dtype=bool)
    sample = _sample(facts, everything, random.random(n) < p, np.ones(n), p)
    found = corrected_rate(sample.population, sample.labelled)
    assert found is not None
    return found


def _widths(random: np.random.Generator, draws: int, opinions: int, cell: Cell) -> dict[str, Any]:
    """With facts that are independent of each other: where they are not, a judge is of more use."""
    right = 1 - (cell.rate * cell.missed + (1 - cell.rate) * cell.false)
    count = Count(f"{cell.rate:.0%}, a judge that is right in {right:.0%}", cell.rate)
    for _ in range(draws):
        known = random.integers(3, 10, ANSWERS)
        facts = _category(random, cell, known, np.ones(ANSWERS), np.ones(ANSWERS))
        found = _alike(facts, random, opinions)
        count.add(found.interval, found.labels_alone)
    return count.row()


def _active(random: np.random.Generator, draws: int, opinions: int) -> dict[str, Any]:
    """A judge whose probabilities are right: 12 % do not hold, and it is sure of most answers."""
    true, hard_share, hard_rate, right, wrong_sure = 0.12, 0.2, 0.25, 0.005, 0.985
    # So many of the plain facts do not hold that altogether it is 12 %.
    refuted = ((true - hard_share * hard_rate) / (1 - hard_share) - right) / (wrong_sure - right)
    uniform, active = Count("calibrated, uniform", true), Count("calibrated, by uncertainty", true)
    for _ in range(draws):
        known = random.integers(3, 10, ANSWERS)
        wrong, judged, doubt = (np.zeros(ANSWERS) for _ in range(3))
        # In four of five answers the facts are plain, in the others they are hard to tell.
        hard = random.random(ANSWERS) < hard_share
        for at in range(int(known.max())):
            sure = np.where(random.random(ANSWERS) < refuted, wrong_sure, right)
            unsure = random.beta(2 * hard_rate, 2 * (1 - hard_rate), ANSWERS)
            q = np.where(hard, unsure, sure)
            stated = at < known
            wrong += stated & (random.random(ANSWERS) < q)
            judged += stated & (q > 0.5)
            doubt += stated * q * (1 - q)
        facts = Drawn(known, wrong.astype(int), judged.astype(int))
        for count, by in ((uniform, None), (active, np.sqrt(doubt))):
            found = _alike(facts, random, opinions, by)
            count.add(found.interval, found.labels_alone)
    return {"width_ratio": round(active.width / uniform.width, 4), "rows": [uniform.row(), active.row()]}


def _miniature(random: np.random.Generator, draws: int, opinions: int) -> Iterator[dict[str, Any]]:
    """Answers of two versions, the second one making more mistakes, of which each draw has its own."""
    cells = VERSIONS["biased"]
    pools = [_pool(version, 0.15 + 0.1 * version) for version in range(2)]
    rates = []
    for pool in pools:
        each = {category: float(wrong.sum() / known.sum()) for category, (known, wrong) in pool.items()}
        known, wrong = (sum(pair[at].sum() for pair in pool.values()) for at in range(2))
        rates.append({"all": float(wrong / known), **each})

    def make() -> list[dict[str, Drawn]]:
        found = []
        for version, pool in enumerate(pools):
            chosen, strength = random.integers(0, POOL, ANSWERS), 0.5 + random.random(ANSWERS)
            drawn = {}
            for category, (known, wrong) in pool.items():
                cell, k, y = cells[version][category], known[chosen], wrong[chosen]
                missed = random.binomial(y, (cell.missed * strength).clip(0, 1))
                false = random.binomial(k - y, (cell.false * strength).clip(0, 1))
                drawn[category] = Drawn(k, y, y - missed + false)
            found.append(drawn)
        return found

    yield from _world("miniature", make, rates, random, draws, opinions)


def _pool(version: int, mistaken: float) -> dict[str, tuple[Counts, Counts]]:
    """By category how many facts each answer states, and how many of them do not hold."""
    random = Random(version)
    counts = {category: (np.zeros(POOL, dtype=int), np.zeros(POOL, dtype=int)) for category in CATEGORIES}
    for at, shown in enumerate(islice(scenes(3_000_000_000 + version), POOL)):
        seen = changed(shown, random.choice((1, 1, 2)), random) if random.random() < mistaken else shown
        for fact in read(answer(seen, at % len(PROMPTS))).facts:
            known, wrong = counts[_category_of(fact)]
            known[at] += 1
            wrong[at] += holds(shown, fact) is not True
    return counts


def _category_of(fact: str) -> str:
    return "color" if set(fact.lower().rstrip(".").split()) & set(COLORS) else "entity"
