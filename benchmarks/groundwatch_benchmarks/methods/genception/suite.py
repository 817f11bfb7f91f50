"""GenCeption's arithmetic over chains, its published results and its seeds.

Source: GenCeption, Evaluate Multimodal LLMs with Unlabeled Unimodal Data, algorithm 1 and section 2.2: s(t),
GC@T, category means, the rank over categories, drift. The arithmetic is pure and takes what was measured;
nothing is made up for a chain that is too short: GC@T of it does not exist.

Results are JSON: a list of `{image, model?, category?, cosine_similarities: [1.0, s(1), …]}`. The published
code writes one pickle an image with the same key; a pickle is never loaded.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean

import msgspec

from groundwatch.errors import UsageError
from groundwatch.events import ChainAdvanced
from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.method import CATEGORY, Images, Question, Result, Tally, TallyRequest, mean_of
from groundwatch.statistics.intervals import mean_ranks
from groundwatch_benchmarks.json_files import json_items

RANKED, DECIMALS = (1, 3, 5), 3
"""The Ts of table 2, and the decimals of its means: what is equal there has the same rank."""


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """One seed image with its similarities s(1), s(2), …; s(0), the seed with itself, is left out."""

    image: str
    similarities: tuple[float, ...] = ()
    category: str = ""
    model: str = ""


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


@cache
def groups() -> dict[str, frozenset[str]]:
    """MME's categories of both groups, by every name that table 2 counts for them."""
    columns = msgspec.json.decode(files(__package__).joinpath("table-2.json").read_bytes())["columns"]
    named = {column["name"]: column.get("where", {}).get("category", ()) for column in columns}
    return {group: frozenset(named[f"{group}.gc1"]) for group in ("visual", "textual")}


def ranking(models: Mapping[str, Sequence[Chain]], t: int) -> dict[str, object]:
    """Table 2's GC rank for each model by its chains, and the mean of GC@T over all categories.

    Over the `categories` (how many of each group) of which every model has chains. Models are ranked for each
    group and T of 1, 3 and 5 up to `t` by the mean over the group's categories, to three decimals as it is
    printed; a group's ranks are averaged over its Ts, and the averages are weighted by the groups' numbers of
    categories: 10/14 and 4/14 in the paper. None where some model has no such chain.
    """
    by_model = {
        model: {name.casefold(): found for name, found in by_category(chains).items()}
        for model, chains in models.items()
    }
    common = set[str].intersection(*map(set, by_model.values()))
    kept = {group: found for group, names in groups().items() if (found := sorted(common & names))}

    def means(names: Sequence[str], at: int) -> dict[str, float] | None:
        found: dict[str, float] = {}
        for model, of in by_model.items():
            each = [gc for name in names if (gc := mean_gc(of[name], at)) is not None]
            if not each or len(each) < len(names):
                return None
            found[model] = round(fmean(each), DECIMALS)
        return found

    scorings = []
    for names in kept.values():
        each = [one for at in RANKED if at <= t and (one := means(names, at)) is not None]
        scorings += [(len(names) / len(each), one) for one in each]
    return {
        "categories": {group: len(names) for group, names in kept.items()},
        "mean": means([name for names in kept.values() for name in names], t),
        "gc_rank": mean_ranks(scorings) if scorings else None,
    }


_TOLERANCE = 1e-3


class _Item(msgspec.Struct):
    image: str | int
    cosine_similarities: list[float]
    category: str = ""
    model: str = ""


def read_chains(path: Path) -> list[Chain]:
    chains = []
    for where, record in json_items(path):
        item = where.read(record, _Item)
        place = where.inside(f"image '{item.image}'")
        values = item.cosine_similarities
        for value in values:
            if not math.isfinite(value) or abs(value) > 1 + _TOLERANCE:
                raise place.wrong(f"key 'cosine_similarities': {value:g} is no cosine")
        if not values or abs(values[0] - 1) > _TOLERANCE:
            raise place.wrong("key 'cosine_similarities': must begin with 1.0, the seed with itself")
        similarities = tuple(values[1:])
        chains.append(
            Chain(image=str(item.image), category=item.category, model=item.model, similarities=similarities)
        )
    return chains


def tally_chains(chains: Sequence[Chain], t: int) -> Result:
    """GC@T over the chains that reach T, by category too; `short` counts the others.

    Where the chains name their models, also by model, with their ranks.
    """
    if t < 1:
        raise UsageError(f"GC@T needs at least one iteration, not {t}", "t")
    models: dict[str, list[Chain]] = {}
    for chain in chains:
        models.setdefault(chain.model, []).append(chain)
    result: Result = {
        **_numbers(chains, t),
        "t": t,
        "by_category": {name: _numbers(found, t) for name, found in by_category(chains).items() if name},
        "drift": drift(chains),
    }
    if any(models):
        result["by_model"] = {name: _numbers(found, t) for name, found in sorted(models.items())}
        result["ranking"] = ranking(models, t)
    return result


def _numbers(chains: Sequence[Chain], t: int) -> Result:
    long = sum(gc_at(chain.similarities, t) is not None for chain in chains)
    return {"gc": mean_gc(chains, t), "n": long, "short": len(chains) - long}


def _compute(request: TallyRequest) -> Result:
    assert request.t is not None
    return tally_chains(read_chains(request.file), request.t)


TALLY = Tally(compute=_compute, needs={"t": "how many iterations count, the T of GC@T"})


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    """A folder of images; a subfolder's name is the category of those inside."""
    for path in images.paths:
        inside = path.relative_to(folder).parts[:-1] if path.is_relative_to(folder) else ()
        category = "/".join(part for part in inside if part != "images")
        yield Question(
            id="/".join((*inside, path.name)),
            protocol=GenCeption.name,
            prompt="",
            images=(images.at(path),),
            tags={CATEGORY: category} if category else {},
            unit=path.name,
        )


def figures(chains: Sequence[ChainAdvanced], length: int) -> Result:
    """What is told of chains of this length that a model went through."""
    found = [
        Chain(
            image=chain.response.id,
            category=chain.response.tags.get(CATEGORY, ""),
            similarities=tuple(step.similarity for step in chain.steps if step.similarity is not None),
        )
        for chain in chains
    ]
    interval = mean_of((gc_at(chain.similarities, length) for chain in found), bounds=GenCeption.bounds)
    return {**tally_chains(found, length), "gc_interval": interval}
