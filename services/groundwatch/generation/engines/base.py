"""What every generation engine is; one that generates nothing; how alike two images are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import Judge
from groundwatch.models.engines import Engine
from groundwatch.models.replies import Generated

Vector = tuple[float, ...]
"""An image as its encoder sees it; all vectors of one engine have the same length."""


class GenerationEngine(Engine, Protocol):
    """Makes images from descriptions, and vectors from images."""

    def judge(self, prompt: str) -> Judge:
        """Who generates and encodes; `prompt` is a digest of how the generator is asked."""
        ...

    async def generate(self, prompts: Sequence[str]) -> Sequence[Generated | GroundwatchError]:
        """One image for each prompt, in order; an error stands in the place of its prompt's image."""
        ...

    async def encode(self, images: Sequence[bytes]) -> Sequence[Vector | GroundwatchError]:
        """One vector for each image, in order; an error stands in the place of its image's vector."""
        ...


class NoGenerationEngine(GenerationEngine):
    """Generates nothing and says so: a chain ends unscored instead of waiting."""

    batch = 50

    def judge(self, prompt: str) -> Judge:
        return Judge(engine="none", prompt=prompt)

    async def generate(self, prompts: Sequence[str]) -> Sequence[Generated | GroundwatchError]:
        return [Unscorable("not_configured", "generation.engine names no image generator") for _ in prompts]

    async def encode(self, images: Sequence[bytes]) -> Sequence[Vector | GroundwatchError]:
        return [Unscorable("not_configured", "generation.engine names no image encoder") for _ in images]


def cosine(seed: Vector, made: Vector) -> float:
    """Cosine of the angle between two images' vectors, -1 to 1: how alike they are to their encoder.

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
