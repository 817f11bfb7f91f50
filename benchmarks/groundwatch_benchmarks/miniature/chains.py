"""GenCeption's chains over held-out scenes."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from groundwatch.generation.engines import cosine
from groundwatch.miniature.language import PROMPTS
from groundwatch.miniature.world import png, scenes
from groundwatch.models.serving.images import GenerationRequest, Generator, ImageEncoder
from groundwatch.models.serving.lvlm import Lvlm, Question
from groundwatch.models.serving.parameters import Parameters
from groundwatch.protocols.method import Progress
from groundwatch_benchmarks.methods.genception.suite import gc_at
from groundwatch_benchmarks.miniature.answers import SEED

CHAIN = 3
"""Steps of a chain."""


def chains(folder: Path, names: Sequence[str], number: int, progress: Progress) -> dict[str, Any]:
    """GC@3 of every model over `number` seed images: describe, generate, compare with the seed, again."""
    generator = Generator(Parameters(model_id=str(folder / "generator")))
    encoder = ImageEncoder(Parameters(model_id=str(folder / "image_encoder")))
    seeds = [png(shown) for shown in islice(scenes(SEED + 1), number)]
    vectors = _all(encoder.encode(seeds))
    told: dict[str, Any] = {}
    for name in names:
        model = Lvlm(Parameters(model_id=str(folder / name)))
        pictures: list[bytes] = seeds
        found: list[list[float]] = [[1.0] for _ in seeds]
        for step in range(CHAIN):
            progress(f"{name} chains", step, CHAIN)
            said = _all(
                model.answer(
                    [Question(prompt=PROMPTS[0][0], images=(one,), max_tokens=128) for one in pictures]
                )
            )
            drawn = generator.draw(
                [GenerationRequest(prompt=one.text, seed=at) for at, one in enumerate(said)]
            )
            pictures = _all(drawn)
            for at, vector in enumerate(_all(encoder.encode(pictures))):
                found[at].append(cosine(vectors[at], vector))
        scores = [score for one in found if (score := gc_at(one, CHAIN)) is not None]
        told[name] = fmean(scores)
    return told


def _all(found: Sequence[Any]) -> list[Any]:
    for one in found:
        if isinstance(one, Exception):
            raise one
    return list(found)
