"""GenCeption's results as JSON: a list of `{image, category?, cosine_similarities: [1.0, s(1), …]}`.

The published code writes one pickle an image with the same key; a pickle is never loaded.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from groundwatch.errors import UsageError
from groundwatch.protocols.genception.scoring import Chain, by_category, drift, gc_at, mean_gc
from groundwatch.protocols.published import Piece, Place, json_items
from groundwatch.protocols.tally import Result, Tally, TallyRequest

_TOLERANCE = 1e-3


def read_chains(path: Path) -> list[Chain]:
    """Read the chains; raises `FileFormatError` naming file, line and key."""
    return [_chain(path, at, piece) for at, piece in enumerate(json_items(path), start=1)]


def tally_chains(chains: Sequence[Chain], t: int) -> Result:
    """GC@T over the chains that reach T, by category too; `short` counts the others.

    Raises `UsageError` for T below 1.
    """
    if t < 1:
        raise UsageError(f"GC@T needs at least one iteration, not {t}", "t")
    return {
        **_numbers(chains, t),
        "t": t,
        "by_category": {name: _numbers(found, t) for name, found in by_category(chains).items() if name},
        "drift": [msgspec.to_builtins(point) for point in drift(chains)],
    }


def _numbers(chains: Sequence[Chain], t: int) -> Result:
    long = sum(gc_at(chain.similarities, t) is not None for chain in chains)
    return {"gc": mean_gc(chains, t), "n": long, "short": len(chains) - long}


def _chain(path: Path, number: int, piece: Piece) -> Chain:
    place = Place(path, piece.line, f"item {number}")
    record = piece.value
    if not isinstance(record, dict):
        raise place.wrong("expected an object")
    image = str(place.take(record, "image", (str, int), "the image's name"))
    category = place.take(record, "category", str, "a string") if "category" in record else ""
    place = Place(path, piece.line, f"item {number}, image '{image}'")
    values = place.take(record, "cosine_similarities", list, "a list of numbers")
    for value in values:
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or abs(value) > 1 + _TOLERANCE:
            raise place.wrong(f"key 'cosine_similarities': {value!r} is no cosine")
    if not values or abs(values[0] - 1) > _TOLERANCE:
        raise place.wrong("key 'cosine_similarities': must begin with 1.0, the seed with itself")
    return Chain(image=image, category=category, similarities=tuple(map(float, values[1:])))


def _compute(request: TallyRequest) -> Result:
    assert request.t is not None
    return tally_chains(read_chains(request.file), request.t)


TALLY = Tally(compute=_compute, needs={"t": "how many iterations count, the T of GC@T"})
