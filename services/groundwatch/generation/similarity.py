"""How alike two images are to their encoder."""

from __future__ import annotations

import math

from groundwatch.errors import InputError, Unscorable
from groundwatch.generation.engines.base import Vector
from groundwatch.protocols.genception.scoring import similarity


def cosine(seed: Vector, made: Vector) -> float:
    """Cosine of the angle between two vectors, -1 to 1.

    Raises `Unscorable` where there is none, for a vector that is zero or not finite: never a number in its
    place; `InputError` for vectors of different encoders.
    """
    if len(seed) != len(made):
        raise InputError(f"vectors of {len(seed)} and {len(made)} numbers")
    if not math.isfinite(math.hypot(*seed) * math.hypot(*made)):
        raise Unscorable("no_similarity", "an image's vector is not finite")
    try:
        return similarity(seed, made)
    except ValueError as error:
        raise Unscorable("no_similarity", str(error)) from error
