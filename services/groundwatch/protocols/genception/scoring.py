"""GenCeption's arithmetic (section 2.2): s(t), GC@T, category means, the rank over categories, drift.

A chain is the sequence s(1), …, s(T) of one seed image: how similar the image made in each iteration is to
the seed. All functions are pure and take what was measured; nothing is made up for a chain that is too
short: GC@T of it does not exist.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import msgspec

from groundwatch.statistics.intervals import ranks

CATEGORY_TAG = "category"
"""The tag of a response that names the kind of its image."""


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """One seed image with its similarities s(1), s(2), …; s(0), the seed with itself, is left out."""

    image: str
    similarities: tuple[float, ...] = ()
    category: str = ""


def gc_at(similarities: Sequence[float], t: int) -> float | None:
    """GC@T (equation 3): sum of t·s(t) over sum of t, for t = 1 to T; None where the chain is shorter.

    Raises `ValueError` for T below 1.
    """
    if t < 1:
        raise ValueError(f"GC@T needs at least one iteration, not {t}")
    if len(similarities) < t:
        return None
    weighted = math.fsum(at * value for at, value in enumerate(similarities[:t], start=1))
    return weighted / (t * (t + 1) / 2)


def gc_each(similarities: Sequence[float]) -> tuple[float, ...]:
    """GC@1, GC@2, … up to the chain's length, by running sums."""
    found = []
    weighted = 0.0
    for at, value in enumerate(similarities, start=1):
        weighted += at * value
        found.append(weighted / (at * (at + 1) / 2))
    return tuple(found)


def mean_gc(chains: Iterable[Chain], t: int) -> float | None:
    """The mean of GC@T over the chains that are long enough (Algorithm 1); None without any."""
    found = [gc for chain in chains if (gc := gc_at(chain.similarities, t)) is not None]
    return fmean(found) if found else None


def by_category(chains: Iterable[Chain]) -> dict[str, list[Chain]]:
    """The chains of each category, in alphabetical order; "" stands for those that name none."""
    found: dict[str, list[Chain]] = {}
    for chain in chains:
        found.setdefault(chain.category, []).append(chain)
    return dict(sorted(found.items()))


def drift(chains: Sequence[Chain]) -> list[dict[str, float | None]]:
    """How similarity falls with the iterations: means of s(t) and of GC@t for each t that some chain reaches.

    Later points may rest on fewer chains; `n` says on how many.
    """
    longest = max((len(chain.similarities) for chain in chains), default=0)
    points: list[dict[str, float | None]] = []
    for t in range(1, longest + 1):
        reaching = [chain for chain in chains if len(chain.similarities) >= t]
        similarity = fmean(one.similarities[t - 1] for one in reaching)
        points.append({"t": t, "similarity": similarity, "gc": mean_gc(reaching, t), "n": len(reaching)})
    return points


def overall(group_means: Mapping[str, float], categories: Mapping[str, int]) -> float:
    """The leaderboard's mean: group means weighted by how many categories each group has."""
    total = sum(categories[group] for group in group_means)
    if not total:
        raise ValueError("no category to average over")
    return math.fsum(categories[group] * mean for group, mean in group_means.items()) / total


def gc_rank(
    means: Mapping[str, Mapping[int, Mapping[str, float]]], categories: Mapping[str, int]
) -> dict[str, float]:
    """The weighted rank of table 2 ("GC rank") for each model.

    `means` maps a group of categories (visual-intensive, textual-intensive) to T, to model, to the mean of
    GC@T over the group's categories; `categories` says how many categories a group has. Models are ranked
    for each group and T, a group's ranks are averaged over its Ts, and the averages are weighted by the
    groups' numbers of categories: 10/14 and 4/14 in the paper. Raises `ValueError` unless every model
    stands in every group and T.
    """
    averages: dict[str, dict[str, float]] = {}
    models = {model for group in means.values() for scores in group.values() for model in scores}
    for group, of_t in means.items():
        ranked = []
        for t, scores in of_t.items():
            if scores.keys() != models:
                raise ValueError(f"not every model has GC@{t} in group '{group}'")
            ranked.append(ranks(scores))
        averages[group] = {model: fmean(rank[model] for rank in ranked) for model in models}
    return {
        model: overall({group: found[model] for group, found in averages.items()}, categories)
        for model in sorted(models)
    }
