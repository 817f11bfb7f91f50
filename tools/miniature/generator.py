"""Trains the text-to-image generator: `python -m tools.miniature.generator OUT --minutes 40`.

Flow matching in pixels with a small PixArt transformer that predicts the clean image: in patches of 8 by 8
an image has as many tokens as its captions, and needs no autoencoder.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, PixArtTransformer2DModel
from PIL import Image
from tools.miniature.answers import answer
from tools.miniature.loop import clock, optimizer
from tools.miniature.pipeline import MiniaturePipeline
from tools.miniature.prompts import drawing_prompt
from tools.miniature.texts import reference
from torch.nn import functional
from transformers import T5Config, T5EncoderModel

from groundwatch.miniature.world import COLORS, KINDS, PLACES, SIDE, SIZES, Scene, draw, scenes
from tools.miniature import build
from tools.miniature import pipeline as pipeline_code

HELD_OUT = 10**9 + 7
MANNERS = (0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 4, 5, -1)
"""How often each manner of describing is the prompt; -1 is a reference caption."""

PLACED = 0.3
"""Weight of the questions about corners beside the loss in pixels."""

NEARNESS = 1.0
"""How fast the encoder's first head turns from words farther away, for each word; the next ones half as fast.

A thing's color, size and corner stand beside it in a text. With attention that begins near (the linear biases
of Press et al., 2022) the encoder learns in a minute what belongs together; from none it had not in twenty.
"""

UNPROMPTED = 0.1
"""Share of images without a prompt, so that guidance has something to lead away from."""


class Corners(torch.nn.Module):
    """What the text says of each corner, read off the encoder's states: kind, color and size, or nothing.

    A part of training alone. From pixels the transformer soon learns what is in a text and only very late
    where it is; these questions ask the encoder for it directly, and the transformer then finds it there.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries = torch.nn.Parameter(torch.randn(len(PLACES), width) / width**0.5)
        self.keys = torch.nn.Linear(width, width)
        self.heads = torch.nn.ModuleList(
            torch.nn.Linear(width, 1 + len(values)) for values in (KINDS, COLORS, SIZES)
        )

    def forward(self, states: torch.Tensor, mask: torch.Tensor, shown: Sequence[Scene]) -> torch.Tensor:
        """Mean cross-entropy over corners and attributes; `states` (B, L, width), `mask` (B, L)."""
        scores = self.keys(states) @ self.queries.T
        weights = scores.masked_fill(mask[..., None] == 0, -1e9).softmax(1)
        pooled = weights.transpose(1, 2) @ states
        truth = torch.zeros(len(shown), len(PLACES), len(self.heads), dtype=torch.long)
        for at, one in enumerate(shown):
            for thing in one.things:
                values = (KINDS.index(thing.kind), [*COLORS].index(thing.color), [*SIZES].index(thing.size))
                truth[at, PLACES.index(thing.place)] = 1 + torch.tensor(values)
        losses = [
            functional.cross_entropy(head(pooled).flatten(0, 1), truth[..., at].flatten())
            for at, head in enumerate(self.heads)
        ]
        return torch.stack(losses).mean()


def learn_corners(
    pipe: Any, corners: Corners, *, minutes: float, rate: float, random: Random, drawn: Iterator[Scene]
) -> None:
    """Teach the text encoder alone, without images, which thing is in which corner."""
    both = torch.nn.ModuleList([pipe.text_encoder, corners])
    update = optimizer(both, rate, 0.01)
    started, step, running = clock(), 0, 2.0
    while (elapsed := (clock() - started) / 60) < minutes:
        for group in update.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 100) * (1 - 0.9 * elapsed / minutes)
        shown = list(islice(drawn, 32))
        states, mask = pipe._encode([drawing_prompt(answer(one, 0), random) for one in shown])
        loss = corners(states, mask, shown)
        update.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        update.step()
        step += 1
        running += 0.02 * (float(loss.detach()) - running)
        if step % 100 == 0:
            print(f"{elapsed:6.1f} min, step {step}, corners {running:.4f}", flush=True)


def models(words: Any, *, width: int, layers: int) -> tuple[Any, Any]:
    """A T5 encoder and the transformer, random weights."""
    heads = width // 32
    encoder = T5EncoderModel(
        T5Config(
            vocab_size=len(words), d_model=128, d_kv=32, d_ff=384, num_layers=2, num_heads=4, dropout_rate=0.0
        )
    )
    begin_near(encoder)
    transformer = PixArtTransformer2DModel(
        num_attention_heads=heads,
        attention_head_dim=32,
        in_channels=3,
        out_channels=3,
        num_layers=layers,
        cross_attention_dim=width,
        sample_size=SIDE,
        patch_size=8,
        caption_channels=128,
        use_additional_conditions=False,
    )
    return encoder, transformer


def begin_near(encoder: Any) -> None:
    """Set the encoder's biases by distance to -`NEARNESS` * words / 2**head; they are learnt from there."""
    attention = encoder.encoder.block[0].layer[0].SelfAttention
    reach = attention.relative_attention_max_distance
    offsets = torch.arange(-reach, reach + 1)
    buckets = attention._relative_position_bucket(
        offsets, num_buckets=attention.relative_attention_num_buckets, max_distance=reach
    )
    biases = attention.relative_attention_bias.weight
    slopes = NEARNESS / 2.0 ** torch.arange(biases.shape[1])
    with torch.no_grad():
        for bucket in buckets.unique():
            biases[bucket] = -slopes * offsets[buckets == bucket].abs().float().mean()


def prompt_of(shown: Scene, manner: int, random: Random) -> str:
    """A description of a scene in one of `MANNERS`."""
    return drawing_prompt(reference(shown, random) if manner < 0 else answer(shown, manner), random)


def save(pipe: Any, folder: Path) -> None:
    """Write the pipeline in half precision, with its own code beside it."""
    copies = {
        name: {key: value.detach().clone() for key, value in getattr(pipe, name).state_dict().items()}
        for name in ("text_encoder", "transformer")
    }
    for name in copies:
        getattr(pipe, name).half()
    pipe.save_pretrained(folder)
    file = folder / "transformer" / "config.json"
    config = json.loads(file.read_text("utf-8"))
    config.pop("_name_or_path", None)  # a path of this machine, where training went on from a checkpoint
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
    for name, weights in copies.items():
        getattr(pipe, name).float().load_state_dict(weights)
    shutil.copy(pipeline_code.__file__, folder / "pipeline.py")


def sheet(images: list[Image.Image], columns: int) -> Image.Image:
    """Images side by side, to look at."""
    rows = math.ceil(len(images) / columns)
    whole = Image.new("RGB", (columns * SIDE, rows * SIDE))
    for at, image in enumerate(images):
        whole.paste(image, (at % columns * SIDE, at // columns * SIDE))
    return whole


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--start", type=Path, help="a checkpoint to go on from")
    parser.add_argument(
        "--noise",
        type=float,
        default=2.0,
        help="mean of the noise's log-odds: the higher, the more only the prompt can say what is there",
    )
    parser.add_argument(
        "--words",
        type=float,
        default=2.5,
        help="minutes in which the text encoder first learns alone what is where; 0: never asked",
    )
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    torch.manual_seed(chosen.seed)
    words = build.tokenizer()
    encoder, transformer = models(words, width=chosen.width, layers=chosen.layers)
    if chosen.start is not None:
        encoder = T5EncoderModel.from_pretrained(chosen.start / "text_encoder", dtype=torch.float32)
        transformer = PixArtTransformer2DModel.from_pretrained(
            chosen.start / "transformer", dtype=torch.float32
        )
    pipe: Any = MiniaturePipeline(words, encoder, transformer, FlowMatchEulerDiscreteScheduler(shift=2.0))
    corners = Corners(encoder.config.d_model)
    both = torch.nn.ModuleList([encoder, transformer, corners])
    print(f"{sum(weight.numel() for weight in both.parameters()) / 1e6:.2f} million weights", flush=True)
    update = optimizer(both, chosen.rate, 0.01)
    random, drawn = Random(chosen.seed), scenes(chosen.seed)
    learn_corners(pipe, corners, minutes=chosen.words, rate=1.5e-3, random=random, drawn=drawn)
    held_out = list(islice(scenes(HELD_OUT), 12))
    started, step, due, running = clock(), 0, 3.0, 0.0
    while (elapsed := (clock() - started) / 60) < chosen.minutes:
        scale = min(1.0, (step + 1) / 100) * (
            0.49 * (1 + math.cos(math.pi * elapsed / chosen.minutes)) + 0.02
        )
        for group in update.param_groups:
            group["lr"] = chosen.rate * scale
        shown = list(islice(drawn, chosen.batch))
        pixels = np.stack([np.asarray(draw(one, plain=True), np.float32) for one in shown])
        clean = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 127.5 - 1
        manners = [random.choice(MANNERS) for _ in shown]
        prompts = [
            "" if random.random() < UNPROMPTED else prompt_of(one, manner, random)
            for one, manner in zip(shown, manners, strict=True)
        ]
        states, mask = pipe._encode(prompts)
        told = [at for at, manner in enumerate(manners) if manner == 0 and prompts[at]]
        sigma = torch.sigmoid(torch.randn(len(shown)) * 1.2 + chosen.noise)[:, None, None, None]
        noisy = (1 - sigma) * clean + sigma * torch.randn_like(clean)
        guessed = transformer(
            noisy,
            encoder_hidden_states=states,
            encoder_attention_mask=mask,
            timestep=sigma.flatten() * 1000,
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
        ).sample
        loss = functional.mse_loss(guessed, clean)
        if told and chosen.words:
            placed = corners(states[told], mask[told], [shown[at] for at in told])
            loss = loss + PLACED * placed
        update.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        update.step()
        step += 1
        running += (0.02 if step > 50 else 1 / step) * (float(loss.detach()) - running)
        if elapsed >= due or step == 20:
            due += 3.0 if elapsed >= due else 0.0
            print(f"{elapsed:6.1f} min, step {step}, loss {running:.4f}", flush=True)
            if step > 20:
                save(pipe, chosen.out)
                dice = [torch.Generator().manual_seed(at) for at in range(len(held_out))]
                pipe.set_progress_bar_config(disable=True)
                both.eval()
                made = pipe([answer(one, 0) for one in held_out], generator=dice).images
                both.train()
                sheet([draw(one, plain=True) for one in held_out] + list(made), len(held_out)).save(
                    chosen.out.with_suffix(".png")
                )
    save(pipe, chosen.out)
    print(f"{step} steps", flush=True)


if __name__ == "__main__":
    main()
