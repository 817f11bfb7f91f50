"""Trains the image encoder: `python -m tools.miniature.encoder OUT --minutes 18`.

The class token of a small ViT learns the direction of a code of the scene, one place for each value of each
attribute in each corner, so that the cosine of two images falls with every attribute in which they differ.
"""

from __future__ import annotations

import argparse
import math
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from tools.miniature.loop import clock, optimizer
from torch.nn import functional
from transformers import ViTConfig, ViTImageProcessorPil, ViTModel

from groundwatch.miniature.world import COLORS, KINDS, PLACES, SIDE, SIZES, Scene, changed, draw, scenes

HELD_OUT = 10**9 + 9
VALUES = (*KINDS, *COLORS, *SIZES)


def code(shown: Scene) -> torch.Tensor:
    """(places * values,) of zeros and ones, and a half for each corner that is taken."""
    found = torch.zeros(len(PLACES), len(VALUES) + 1)
    for thing in shown.things:
        for value in (thing.kind, thing.color, thing.size):
            found[PLACES.index(thing.place), VALUES.index(value)] = 1.0
        found[PLACES.index(thing.place), -1] = 0.5
    return found.flatten()


def pixels(shown: list[Scene], *, plain: int = 0) -> torch.Tensor:
    """(B, 3, H, W) from -1 to 1, as the processor prepares images; the first `plain` as a generator draws."""
    images = [draw(one, plain=at < plain) for at, one in enumerate(shown)]
    stacked = np.stack([np.asarray(one, np.float32) for one in images])
    return torch.from_numpy(stacked).permute(0, 3, 1, 2) / 127.5 - 1


@torch.inference_mode()
def cosines(model: Any, number: int, most: int = 6) -> list[float]:
    """Mean cosine of held-out scenes of four things with themselves after 1 … `most` changed attributes."""
    random = Random(HELD_OUT)
    chosen = list(islice((one for one in scenes(HELD_OUT) if len(one.things) >= 2), number))
    first = model(pixel_values=pixels(chosen)).last_hidden_state[:, 0]
    means = []
    for changes in range(1, most + 1):
        other = [changed(one, changes, random) for one in chosen]
        second = model(pixel_values=pixels(other)).last_hidden_state[:, 0]
        means.append(round(float(functional.cosine_similarity(first, second).mean()), 3))
    return means


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=18)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=4)
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    torch.manual_seed(chosen.seed)
    model = ViTModel(
        ViTConfig(
            hidden_size=96,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=288,
            image_size=SIDE,
            patch_size=8,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        add_pooling_layer=False,
    )
    update = optimizer(model, chosen.rate, 0.01)
    # The hidden states are wider than the code by design: the rest of the directions stay free.
    project = torch.nn.init.orthogonal_(torch.empty(96, len(PLACES) * (len(VALUES) + 1)))
    drawn, started, step, running = scenes(chosen.seed), clock(), 0, 1.0
    while (elapsed := (clock() - started) / 60) < chosen.minutes:
        scale = min(1.0, (step + 1) / 100) * (
            0.49 * (1 + math.cos(math.pi * elapsed / chosen.minutes)) + 0.02
        )
        for group in update.param_groups:
            group["lr"] = chosen.rate * scale
        shown = list(islice(drawn, chosen.batch))
        wanted = torch.stack([code(one) for one in shown]) @ project.T
        found = model(pixel_values=pixels(shown, plain=chosen.batch // 4)).last_hidden_state[:, 0]
        loss = (1 - functional.cosine_similarity(found, wanted)).mean()
        update.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        step += 1
        running += 0.02 * (float(loss.detach()) - running)
        if step % 300 == 0:
            print(
                f"{elapsed:6.1f} min, step {step}, loss {running:.4f}, cosines {cosines(model, 60)}",
                flush=True,
            )
    model.eval()
    print(f"{step} steps, cosines {cosines(model, 300)}", flush=True)
    model.half().save_pretrained(chosen.out)
    ViTImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    ).save_pretrained(chosen.out)


if __name__ == "__main__":
    main()
