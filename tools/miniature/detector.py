"""Trains the detector: `python -m tools.miniature.detector OUT --minutes 24`.

A small OWL-ViT. Every place of its grid learns, for all phrases of the world at once, which of them name the
thing whose middle is there, and that thing's box. A quarter of the images are cut out of a scene and
stretched, so that it also knows things that are not in a corner; what is small or large cannot be told there.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from tools.miniature.loop import clock, optimizer, save
from tools.miniature.measure import detected
from torch.nn import functional
from transformers import (
    OwlViTConfig,
    OwlViTForObjectDetection,
    OwlViTImageProcessorPil,
    OwlViTProcessor,
    PreTrainedTokenizerFast,
)

from groundwatch.miniature.language import PLURALS, article
from groundwatch.miniature.world import COLORS, SIDE, SIZES, Scene, Thing, boxes, draw, scenes
from groundwatch.models.serving.detector import Detector, corners
from groundwatch.models.serving.parameters import Parameters

HELD_OUT = 10**9
"""Seeds from here on are never trained on."""

PATCH = 8
GRID = SIDE // PATCH
STRANGER = "dog"
"""A word that the world does not have: the tokenizer knows none of them, and nothing is one."""

PHRASES = tuple(
    (size, color, kind) for kind in (*PLURALS, STRANGER) for color in ("", *COLORS) for size in ("", *SIZES)
)
SIZED = torch.tensor([bool(size) for size, _, _ in PHRASES])
CUT_OUT = 0.25
NEAR, ABOUT = 0.8, 1.2
"""Places so near to a thing's middle, in places of the grid, are it; those about it are left alone."""


class Target(NamedTuple):
    """For each place of a grid: phrases (64, q) and which of them count, boxes (64, 4), and where one is."""

    named: torch.Tensor
    counts: torch.Tensor
    boxes: torch.Tensor
    about: torch.Tensor


@cache
def fitting(thing: Thing) -> torch.Tensor:
    """(q,): which phrases name the thing."""
    return torch.tensor(
        [
            size in ("", thing.size) and color in ("", thing.color) and kind in ("object", thing.kind)
            for size, color, kind in PHRASES
        ]
    )


def wording(phrase: tuple[str, str, str], random: Random) -> str:
    """A phrase as somebody may write it: bare, with an article, or of several things."""
    size, color, kind = phrase
    chance = random.random()
    if chance < 0.25:
        kind = PLURALS.get(kind, f"{kind}s")
    words = " ".join(word for word in (size, color, kind) if word)
    return words if chance < 0.75 else f"{random.choice(('the', article(words)))} {words}"


def tokenizer() -> PreTrainedTokenizerFast:
    """The world's words; the model finds the end of a text by its highest number."""
    known = ["a", "an", "the", *SIZES, *COLORS, *PLURALS, *PLURALS.values()]
    words = ["<pad>", "<unk>", "<s>", *known, "</s>"]
    raw = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
    raw.normalizer = normalizers.Lowercase()
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", len(words) - 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=16,
    )


def processor() -> Any:
    images = OwlViTImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    return OwlViTProcessor(images, tokenizer())


def model(words: PreTrainedTokenizerFast, *, width: int = 128, layers: int = 4) -> Any:
    """Random weights; scores begin low, since at most places there is nothing."""
    ends = {"pad_token_id": 0, "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
    made: Any = OwlViTForObjectDetection(
        OwlViTConfig(
            vision_config={
                "hidden_size": width,
                "intermediate_size": 3 * width,
                "num_hidden_layers": layers,
                "num_attention_heads": 4,
                "image_size": SIDE,
                "patch_size": PATCH,
            },
            text_config={
                **ends,
                "vocab_size": len(words),
                "hidden_size": 64,
                "intermediate_size": 192,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "max_position_embeddings": 16,
            },
            projection_dim=64,
        )
    )
    head = made.class_head
    with torch.no_grad():
        # These come with a deviation of 1, by which a fresh model would be sure of everything.
        for part in (head.dense0, made.box_head.dense0, made.box_head.dense1):
            part.weight.mul_(width**-0.5)
        for part in (head.logit_scale, head.logit_shift, made.box_head.dense2):
            part.weight.mul_(0.1 * width**-0.5)
        head.logit_scale.bias.fill_(10.0)
        head.logit_shift.bias.fill_(-0.55)
    return made


def cut_out(
    shown: Scene, picture: Image.Image, random: Random
) -> tuple[Image.Image, list[tuple[float, ...]]]:
    """A part of the scene around one of its things, stretched to a square; boxes in it, of all things."""
    places = boxes(shown)
    x0, y0, x1, y1 = (edge * SIDE for edge in random.choice(places))
    left, top = random.uniform(max(0, x0 - 16), x0), random.uniform(max(0, y0 - 16), y0)
    right, bottom = random.uniform(x1, min(SIDE, x1 + 16)), random.uniform(y1, min(SIDE, y1 + 16))
    cut = (int(left), int(top), math.ceil(right), math.ceil(bottom))
    wide, high = cut[2] - cut[0], cut[3] - cut[1]
    part = picture.crop(cut).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return part, [
        (
            (a * SIDE - cut[0]) / wide,
            (b * SIDE - cut[1]) / high,
            (c * SIDE - cut[0]) / wide,
            (d * SIDE - cut[1]) / high,
        )
        for a, b, c, d in places
    ]


def target(things: Sequence[Thing], places: Sequence[Sequence[float]], *, whole: bool) -> Target:
    """What every place of the grid is to say. A thing that is cut through is left alone."""
    grid = (torch.arange(GRID) + 0.5) / GRID
    spots = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), -1).reshape(-1, 2)
    named = torch.zeros(len(spots), len(PHRASES))
    counts = torch.ones(len(spots), len(PHRASES))
    if not whole:
        counts[:, SIZED] = 0.0
    found = torch.zeros(len(spots), 4)
    about = torch.zeros(len(spots), dtype=torch.bool)
    for thing, place in zip(things, places, strict=True):
        box = torch.tensor(place)
        if bool((box < -0.001).any() or (box > 1.001).any()):
            inside = (spots > box[:2] - 1 / GRID) & (spots < box[2:] + 1 / GRID)
            counts[inside.all(-1)] = 0.0
            continue
        middle, size = (box[:2] + box[2:]) / 2, box[2:] - box[:2]
        far = (spots - middle).norm(dim=-1) * GRID
        named[far < NEAR] = fitting(thing).float()
        counts[(far >= NEAR) & (far < ABOUT)] = 0.0
        found[far < ABOUT] = torch.cat([middle, size])
        about |= far < ABOUT
    return Target(named, counts, found, about)


def batches(seed: int, size: int) -> Iterator[tuple[torch.Tensor, Target]]:
    """Images (b, 3, 64, 64) from -1 to 1 with what is to be said of them, for ever."""
    random, drawn = Random(seed), scenes(seed)
    while True:
        pictures, targets = [], []
        for _ in range(size):
            shown = next(drawn)
            picture, places = draw(shown), [list(box) for box in boxes(shown)]
            whole = random.random() >= CUT_OUT
            if not whole:
                picture, cut = cut_out(shown, picture, random)
                places = [list(box) for box in cut]
            pictures.append(np.asarray(picture, np.float32))
            targets.append(target(shown.things, places, whole=whole))
        pixels = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2) / 127.5 - 1
        yield pixels, Target(*(torch.stack(parts) for parts in zip(*targets, strict=True)))


def asked(words: PreTrainedTokenizerFast, random: Random) -> Any:
    """All phrases as tokens, each in some wording."""
    texts = [wording(phrase, random) for phrase in PHRASES]
    return words(texts, padding=True, return_tensors="pt")


def forward(model: Any, pixels: torch.Tensor, texts: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (b, 64, q) and boxes (b, 64, 4): as the model has them, with its texts read once."""
    embedded = model.owlvit.get_text_features(
        input_ids=texts["input_ids"], attention_mask=texts["attention_mask"]
    ).pooler_output
    map_of_features = model.image_embedder(pixel_values=pixels)[0]
    features = map_of_features.flatten(1, 2)
    logits = model.class_predictor(features, embedded.expand(len(pixels), -1, -1))[0]
    return logits, model.box_predictor(features, map_of_features)


def losses(logits: torch.Tensor, found: torch.Tensor, wanted: Target) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy of places and phrases, over the number of right ones; L1 and generalised IoU of boxes."""
    each = functional.binary_cross_entropy_with_logits(logits, wanted.named, reduction="none")
    names = (each * wanted.counts).sum() / (wanted.named * wanted.counts).sum()
    mine, true = found[wanted.about], wanted.boxes[wanted.about]
    distance = (mine - true).abs().sum(-1).mean()
    return names, 5 * distance + 2 * (1 - generalised_iou(corners(mine), corners(true))).mean()


def generalised_iou(boxes: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """(n, 4) with (n, 4), x0, y0, x1, y1 → (n,) from -1 to 1 (Rezatofighi et al. 2019, equation 5)."""
    both = (torch.minimum(boxes, others)[:, 2:] - torch.maximum(boxes, others)[:, :2]).clamp(min=0).prod(-1)
    hull = (torch.maximum(boxes, others)[:, 2:] - torch.minimum(boxes, others)[:, :2]).prod(-1)
    either = sum((one[:, 2:] - one[:, :2]).prod(-1) for one in (boxes, others)) - both
    return both / either.clamp(min=1e-9) - (hull - either) / hull.clamp(min=1e-9)


@torch.no_grad()
def cool(model: Any, words: PreTrainedTokenizerFast, seed: int, number: int) -> float:
    """Divide all logits by the temperature (Guo et al. 2017) at which "is there one" is best foretold.

    Over `number` held-out scenes. Returns the temperature.
    """
    texts, drawn = asked(words, Random(seed)), batches(seed, 50)
    highest, true = [], []
    for _ in range(number // 50):
        pixels, wanted = next(drawn)
        whole = wanted.counts[:, 0, SIZED].any(-1)
        logits, _ = forward(model, pixels[whole], texts)
        highest.append(logits.amax(1))
        true.append(wanted.named[whole].amax(1))
    logits, named = torch.cat(highest), torch.cat(true)
    tried = [1.05**step for step in range(-14, 15)]
    best = min(tried, key=lambda t: float(functional.binary_cross_entropy_with_logits(logits / t, named)))
    # The scale is elu(w x + b) + 1, and w x + b is far above 0.
    head = model.class_head.logit_scale
    head.weight.div_(best)
    head.bias.copy_((head.bias + 1) / best - 1)
    return best


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=24)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=61)
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    torch.manual_seed(chosen.seed)
    both = processor()
    words = both.tokenizer
    trained = model(words)
    update = optimizer(trained, chosen.rate, 0.02)
    random, drawn = Random(chosen.seed), batches(chosen.seed, chosen.batch)
    started, step, due = clock(), 0, 0.5
    trained.train()
    while (elapsed := (clock() - started) / 60) < chosen.minutes:
        scale = min(1.0, (step + 1) / 100) * (
            0.49 * (1 + math.cos(math.pi * elapsed / chosen.minutes)) + 0.02
        )
        for group in update.param_groups:
            group["lr"] = chosen.rate * scale
        pixels, wanted = next(drawn)
        names, places = losses(*forward(trained, pixels, asked(words, random)), wanted)
        update.zero_grad(set_to_none=True)
        (names + places).backward()
        torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        update.step()
        step += 1
        if elapsed >= due:
            due += 2
            shown = f"losses {float(names.detach()):.3f} {float(places.detach()):.3f}"
            print(f"{elapsed:6.1f} min, step {step}, {shown}", flush=True)
            save(trained, both, chosen.out)
            print(detected(Detector(Parameters(model_id=str(chosen.out))), HELD_OUT, 50), flush=True)
    trained.eval()
    temperature = cool(trained, words, HELD_OUT + 1, 1000)
    save(trained, both, chosen.out)
    print(f"{step} steps, temperature {temperature:.2f}", flush=True)
    print(detected(Detector(Parameters(model_id=str(chosen.out))), HELD_OUT, 500), flush=True)


if __name__ == "__main__":
    main()
