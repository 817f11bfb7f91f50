"""What checking the facts of one answer costs: all in one request on a shared prefix, against one by one.

Both go through the same serving code on the same checkpoint, processor time included, taking turns in one
run. What counts is the ratio of the medians, and that both say the same.
"""

from __future__ import annotations

import io
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bench.timing import TimedVerifier
from PIL import Image

from groundwatch.models.serving.lvlm import VisionLanguage
from groundwatch.models.serving.parameters import Parameters
from groundwatch.models.serving.verifier import EntailmentRequest, Verifier

MINIATURE = Path(__file__).parents[1] / "services" / "groundwatch" / "miniature" / "checkpoints" / "verifier"
SUBJECTS = ("circle", "square", "small red circle", "large blue square", "green circle above the square")
PREDICATES = ("is in the image", "is left of the square", "is red", "is above everything else and small")


def inquiry(dice: random.Random, facts: int, side: int = 64) -> EntailmentRequest:
    """An image and statements about it, of differing lengths."""
    image = Image.new("RGB", (4, 4))
    image.putdata([tuple(dice.randrange(256) for _ in range(3)) for _ in range(16)])
    out = io.BytesIO()
    image.resize((side, side), Image.Resampling.NEAREST).save(out, "PNG")
    return EntailmentRequest(
        images=(out.getvalue(),),
        statements=tuple(
            f"the {dice.choice(SUBJECTS)} {dice.choice(PREDICATES)}{'.' * (number % 3)}"
            for number in range(facts)
        ),
    )


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what it gave."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def compare(checkpoint: VisionLanguage, parameters: Parameters, facts: int, rounds: int) -> dict[str, Any]:
    """One checkpoint's figures."""
    shared = Verifier(parameters, checkpoint=checkpoint)
    watched = TimedVerifier(parameters, checkpoint=checkpoint)
    shared.warm_up(inquiry(random.Random(0), 1, checkpoint.model.config.vision_config.image_size).images[0])
    watched.one_pass = shared.one_pass
    dice = random.Random(1)
    side = checkpoint.model.config.vision_config.image_size
    cases = [inquiry(dice, facts, side) for _ in range(rounds + 1)]
    alone: list[float] = []
    together: list[float] = []
    difference = 0.0
    for number, case in enumerate(cases):
        # A request for each fact, as a client without a shared prefix would send them.
        one, separate = timed(
            lambda case=case: [
                shared.judge_one_by_one(EntailmentRequest(images=case.images, statements=(statement,)))[0]
                for statement in case.statements
            ]
        )
        all_, finding = timed(lambda case=case: shared.judge([case])[0])
        if isinstance(finding, Exception):
            raise finding
        difference = max(
            difference, *(abs(a - b) for a, b in zip(separate, finding.probabilities, strict=True))
        )
        if number >= 1:
            alone.append(one)
            together.append(all_)
            watched.judge([case])
    spent = watched.prepare + watched.prefix + watched.statements
    median = statistics.median(together)
    return {
        "parameters_million": round(sum(w.numel() for w in checkpoint.model.parameters()) / 1e6, 1),
        "facts": facts,
        "rounds": rounds,
        "one_by_one_ms": round(statistics.median(alone) * 1000, 2),
        "shared_prefix_ms": round(median * 1000, 2),
        "speedup": round(statistics.median(alone) / median, 2),
        "facts_per_second": round(facts / median, 1),
        "one_pass": shared.one_pass,
        "prepare_fraction": round(watched.prepare / spent, 3),
        "prefix_fraction": round(watched.prefix / spent, 3),
        "max_probability_difference": difference,
    }


def larger(folder: Path) -> Path:
    """A checkpoint of about 93 million random parameters with 64 image tokens."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.support.checkpoints import vision_language

    return vision_language(folder, width=768, layers=7, heads=12, ratio=3, side=128, positions=1024)


async def measure(
    facts: int = 12, rounds: int = 15, threads: int = 0, larger_rounds: int = 3
) -> dict[str, Any]:
    """Medians of `rounds` images: the miniature verifier, where it is, and a larger one of random weights.

    `speedup` is that of the larger one: nearer to what a production checkpoint is like.
    """
    if threads:
        torch.set_num_threads(threads)
    found: dict[str, Any] = {"threads": torch.get_num_threads()}
    with tempfile.TemporaryDirectory() as folder:
        if MINIATURE.is_dir():
            own = Parameters(model_id=str(MINIATURE))
            found["miniature"] = compare(VisionLanguage(own), own, facts, rounds)
        random_weights = Parameters(model_id=str(larger(Path(folder) / "larger")))
        found["larger"] = compare(VisionLanguage(random_weights), random_weights, facts, larger_rounds)
    figures = found["larger"]
    return {
        "speedup": figures["speedup"],
        "max_probability_difference": max(
            one["max_probability_difference"] for one in found.values() if isinstance(one, dict)
        ),
        "facts_per_second": figures["facts_per_second"],
        "prefix_fraction": figures["prefix_fraction"],
        **found,
    }
