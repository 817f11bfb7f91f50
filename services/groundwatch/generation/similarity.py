"""How alike two images are to their encoder."""

import math

from groundwatch.errors import InputError, Unscorable
from groundwatch.generation.engines.base import Vector


def cosine(seed: Vector, made: Vector) -> float:
    """Cosine of the angle between two vectors, -1 to 1.

    Raises `Unscorable` where there is none, for a vector that is zero or not finite: never a number in its
    place; `InputError` for vectors of different encoders.
    """
    if len(seed) != len(made):
        raise InputError(f"vectors of {len(seed)} and {len(made)} numbers")
    norms = math.hypot(*seed) * math.hypot(*made)
    if not math.isfinite(norms):
        raise Unscorable("no_similarity", "an image's vector is not finite")
    if not norms:
        raise Unscorable("no_similarity", "an embedding without length has no direction")
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(seed, made, strict=True)) / norms))
