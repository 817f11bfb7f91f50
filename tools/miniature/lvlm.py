"""Trains an LVLM: `python -m tools.miniature.lvlm OUT --minutes 40`.

Descriptions in all manners, POPE's questions, and questions about two images. `--biased` trains on the split
in which some things are nearly always seen together and are annotated even where they cannot be seen.
`--snapshots 0.6 0.85` also keeps the first checkpoints that reach these shares of things described right.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import torch
from PIL import Image
from tools.miniature.answers import answer
from tools.miniature.measure import Described, describe
from tools.miniature.packing import Batch, Branch, Packer
from tools.miniature.prompts import prompt_for
from tools.miniature.texts import questions, with_partners

from groundwatch.miniature.language import PROMPTS
from groundwatch.miniature.world import Scene, changed, draw, missing_partners, scenes
from groundwatch_benchmarks.miniature_facts import pair_questions
from tools.miniature import build, loop

HELD_OUT = 10**9
PAIR_EVERY = 5
HIDDEN = 0.95
"""How often the partner that the biased split annotates is hidden in the image."""


def batches(packer: Packer, seed: int, size: int, *, biased: bool, asked: int) -> Iterator[Batch]:
    """Packed rows of `size` scenes for ever, each with `asked` questions; every fifth batch has two images.

    Without questions there are no batches with two images.
    """
    random, drawn = Random(seed), scenes(seed)
    step = 0
    while True:
        step += 1
        if asked and step % PAIR_EVERY == 0:
            yield packer.batch([_two(packer, next(drawn), random) for _ in range(size)])
        else:
            yield packer.batch([_one(packer, next(drawn), random, biased, asked) for _ in range(size)])


def _one(
    packer: Packer, shown: Scene, random: Random, biased: bool, asked: int
) -> tuple[list[Image.Image], list[Branch]]:
    annotated = with_partners(shown, random) if biased else shown
    visible = annotated
    if biased and missing_partners(shown) and random.random() < HIDDEN:
        visible = shown
    branches = []
    for manner in random.sample(range(len(PROMPTS)), 2):
        branches.append(packer.caption(prompt_for(manner, random), answer(annotated, manner)))
    for question, holds in questions(annotated, random, asked):
        branches.append(packer.statement(question, holds, 0, closed=True))
    return [draw(visible)], branches


def _two(packer: Packer, first: Scene, random: Random) -> tuple[list[Image.Image], list[Branch]]:
    second = changed(first, random.choice((0, 0, 1, 2)), random)
    branches = [
        packer.statement(question, holds, 1 if at == 0 else 2, closed=True)
        for at, (question, holds) in enumerate(pair_questions(first, second, random, 8))
    ]
    return [draw(first), draw(second)], branches


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--rate", type=float, default=1.2e-3)
    parser.add_argument("--biased", action="store_true")
    parser.add_argument("--snapshots", type=float, nargs="*", default=[])
    parser.add_argument("--scenes", type=int, default=16)
    parser.add_argument("--questions", type=int, default=6)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--start", type=Path, help="a checkpoint to go on from")
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    torch.manual_seed(chosen.seed)
    processor = build.processor()
    packer = Packer(processor)
    model = build.model(processor.tokenizer)
    if chosen.start is not None:
        model = type(model).from_pretrained(chosen.start, dtype=torch.float32)
    held_out = list(islice(scenes(HELD_OUT), 100))
    apart = list(islice(scenes(HELD_OUT + 1, apart=True), 100))
    wanted = sorted(chosen.snapshots)

    def measured() -> Described:
        plain, tempted = describe(model, processor, held_out), describe(model, processor, apart)
        print(
            f"things right {plain.things_right}, exact {plain.exact}, false facts {plain.false_rate}; "
            f"apart: things right {tempted.things_right}, partner named {tempted.partner_rate}; "
            f"{plain.answers[0]}",
            flush=True,
        )
        return plain

    def look(minutes: float, step: int) -> None:
        found = measured()
        loop.save(model, processor, chosen.out)
        while wanted and found.things_right >= wanted[0]:
            loop.save(model, processor, chosen.out.with_name(f"{chosen.out.name}-{wanted.pop(0)}"))

    steps = loop.train(
        model,
        packer,
        batches(packer, chosen.seed, chosen.scenes, biased=chosen.biased, asked=chosen.questions),
        minutes=chosen.minutes,
        rate=chosen.rate,
        weights=(0.5, 0.3, 1.0),
        groups=3,
        on_interval=look,
        interval=chosen.interval,
        report=lambda line: print(line, flush=True),
    )
    loop.save(model, processor, chosen.out)
    print(f"{steps} steps")
    measured()


if __name__ == "__main__":
    main()
