"""GenCeption's results, and a folder of images as seeds of chains.

Results are JSON: a list of `{image, model?, category?, cosine_similarities: [1.0, s(1), …]}`. The published
code writes one pickle an image with the same key; a pickle is never loaded.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from groundwatch.errors import UsageError
from groundwatch.protocols.genception.scoring import (
    CATEGORY_TAG,
    Chain,
    by_category,
    drift,
    gc_at,
    mean_gc,
    ranking,
)
from groundwatch.protocols.method import Images, Question, Result, Tally, TallyRequest
from groundwatch.protocols.published import json_items

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
            protocol="genception",
            prompt="",
            images=(images.at(path),),
            tags={CATEGORY_TAG: category} if category else {},
            unit=path.name,
        )
