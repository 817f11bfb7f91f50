"""Trains the verifier: `python -m tools.miniature.verifier OUT --minutes 60`.

Answers to statements and captions are learnt together, because statements alone start on a plateau; a
template that is still weak is asked more often.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch
from tools.miniature.answers import answer
from tools.miniature.measure import statement_accuracy
from tools.miniature.packing import Batch, Branch, Packer
from tools.miniature.texts import TEMPLATES, pairs

from groundwatch.miniature.language import PROMPTS
from groundwatch.miniature.world import draw, scenes
from tools.miniature import build, loop

PAIRS = 9
RARE = {"count": 12.0, "plural": 2.0, "comparison": 1.5, "horizontal": 1.5, "vertical": 1.5}
"""Templates that many scenes have nothing to say to are tried so much more often."""

HELD_OUT = 10**9
"""Seeds from here on are never trained on."""


def batches(
    packer: Packer, seed: int, size: int, weights: dict[str, float], captions: float
) -> Iterator[Batch]:
    """Packed rows of `size` scenes for ever; `weights` may change while they are drawn."""
    random, drawn = Random(seed), scenes(seed)
    groups = {name: at for at, name in enumerate(TEMPLATES)}
    while True:
        rows = []
        for _ in range(size):
            shown = next(drawn)
            branches: list[Branch] = []
            if random.random() < captions:
                manner = random.randrange(len(PROMPTS))
                branches.append(packer.caption(random.choice(PROMPTS[manner]), answer(shown, manner)))
            for name, pair in pairs(shown, random, PAIRS, weights):
                branches += [packer.statement(pair[0], True, groups[name])]
                branches += [packer.statement(pair[1], False, groups[name])]
            rows.append(([draw(shown)], branches))
        yield packer.batch(rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=1.2e-3)
    parser.add_argument("--captions", type=float, default=0.5)
    parser.add_argument("--scenes", type=int, default=12)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
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
    weights = dict.fromkeys(TEMPLATES, 1.0)

    def weigh(running: list[float]) -> None:
        for name, accuracy in zip(TEMPLATES, running, strict=True):
            weights[name] = RARE.get(name, 1.0) * (1.03 - max(0.5, accuracy))

    def look(minutes: float, step: int) -> None:
        loop.save(model, processor, chosen.out)
        if step % 3 == 0 or minutes > 0.9 * chosen.minutes:
            print(statement_accuracy(model, packer, HELD_OUT, 60), flush=True)

    steps = loop.train(
        model,
        packer,
        batches(packer, chosen.seed, chosen.scenes, weights, chosen.captions),
        minutes=chosen.minutes,
        rate=chosen.rate,
        groups=len(TEMPLATES),
        on_accuracy=weigh,
        on_interval=look,
        report=lambda line: print(line, flush=True),
    )
    loop.save(model, processor, chosen.out)
    print(f"{steps} steps;", statement_accuracy(model, packer, HELD_OUT, 500), flush=True)


if __name__ == "__main__":
    main()
