"""Measures every checkpoint and writes its card: `python -m tools.miniature.cards FOLDER`.

Everything is loaded as a server would load it, with the Auto classes, and measured on scenes that no
training has seen. `--json` prints the figures as one object; without `--scenes` they are those of the cards.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import Any

import torch
from diffusers import DiffusionPipeline
from tools.miniature.answers import answer
from tools.miniature.encoder import cosines
from tools.miniature.measure import ask, describe, described, detected, statement_answers
from tools.miniature.packing import Packer
from tools.miniature.texts import questions
from transformers import AutoModel, AutoModelForImageTextToText, AutoProcessor

from groundwatch.miniature.language import PROMPTS, truth
from groundwatch.miniature.world import Scene, changed, scenes
from groundwatch.models.serving.detector import Detector
from groundwatch.models.serving.parameters import Parameters
from groundwatch_benchmarks.miniature_facts import pair_questions

HELD_OUT = 3 * 10**9
LVLMS = {
    "lvlm_good": "Describes well: the reference of what a model of this size can do.",
    "lvlm_poor": "An early checkpoint of the same training: often wrong.",
    "lvlm_biased": "Trained on from lvlm_good on the split in which a tree nearly always comes with a "
    "house, a moon with a star and a boat with a box, annotated even where they "
    "are hidden: it names the absent partner.",
}
BINS = 10


def loaded(folder: Path) -> tuple[Any, Any]:
    """A vision-language checkpoint and its processor, in full precision."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    return model, AutoProcessor.from_pretrained(folder)


def lvlm(folder: Path, number: int) -> dict[str, Any]:
    """Descriptions by manner, temptation by the biased split, and yes/no questions."""
    model, processor = loaded(folder)
    plain = list(islice(scenes(HELD_OUT), number))
    apart = list(islice(scenes(HELD_OUT + 1, apart=True), number))
    by_manner = [describe(model, processor, plain[:number], manner) for manner in range(len(PROMPTS))]
    random = Random(HELD_OUT)
    return {
        "things_right": by_manner[0].things_right,
        "answers_exact_by_manner": [found.exact for found in by_manner],
        "false_facts": round(sum(found.false_rate for found in by_manner) / len(by_manner), 4),
        "partner_named_apart": describe(model, processor, apart).partner_rate,
        "pope_accuracy": _yes_no(
            model, processor, [([one], *pair) for one in plain for pair in questions(one, random, 2)]
        ),
        **_two_images(model, processor, plain, random),
    }


def _two_images(model: Any, processor: Any, plain: Sequence[Scene], random: Random) -> dict[str, float]:
    coarse, fine = [], []
    for first in plain:
        second = changed(first, random.choice((0, 1, 2)), random)
        asked = [([first, second], *pair) for pair in pair_questions(first, second, random, 2)]
        coarse.append(asked[0])
        fine += asked[1:]
    return {
        "two_images_coarse": _yes_no(model, processor, coarse),
        "two_images_fine": _yes_no(model, processor, fine),
    }


def _yes_no(
    model: Any, processor: Any, asked: Sequence[tuple[Sequence[Scene], str, bool]], batch: int = 100
) -> float:
    right = 0
    for start in range(0, len(asked), batch):
        part = asked[start : start + batch]
        said = ask(model, processor, [(shown, question) for shown, question, _ in part], 4)
        right += sum(
            text.strip() == ("yes" if holds else "no") for text, (_, _, holds) in zip(said, part, strict=True)
        )
    return round(right / len(asked), 4)


def verifier(folder: Path, each: int) -> dict[str, Any]:
    """Accuracy by template, calibration, and what becomes of it when another scene's image is shown."""
    model, processor = loaded(folder)
    packer = Packer(processor)
    found = statement_answers(model, packer, HELD_OUT, each)
    swapped = statement_answers(model, packer, HELD_OUT, min(each, 200), swapped=True)
    accuracy = {name: _accuracy(pairs) for name, pairs in found.items()}
    everyone = [pair for pairs in found.values() for pair in pairs]
    return {
        "accuracy": accuracy,
        "lowest": min(accuracy.values()),
        "mean": round(sum(accuracy.values()) / len(accuracy), 4),
        "expected_calibration_error": round(calibration_error(everyone), 4),
        "with_swapped_image": round(sum(_accuracy(pairs) for pairs in swapped.values()) / len(swapped), 4),
        "statements": len(everyone),
    }


def _accuracy(pairs: Sequence[tuple[float, bool]]) -> float:
    return round(sum((yes > 0.5) == holds for yes, holds in pairs) / len(pairs), 4)


def calibration_error(pairs: Sequence[tuple[float, bool]]) -> float:
    """Expected calibration error (Naeini et al. 2015) of P(yes), in `BINS` bins of equal width."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for yes, holds in pairs:
        bins.setdefault(min(BINS - 1, int(yes * BINS)), []).append((yes, holds))
    return sum(
        abs(sum(yes for yes, _ in found) - sum(holds for _, holds in found)) for found in bins.values()
    ) / len(pairs)


def image_encoder(folder: Path, number: int) -> dict[str, Any]:
    """Mean cosine with the same scene after one, two … changed attributes."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    found = cosines(model, number)
    return {
        "cosine_by_changes": found,
        "falls": all(a > b for a, b in pairwise(found)),
    }


def detector(folder: Path, number: int) -> dict[str, Any]:
    """What it finds of what phrases name, at a score of 0.5, and whether its scores are probabilities."""
    served = Detector(Parameters(model_id=str(folder)))
    found = detected(served, HELD_OUT, number)._asdict()
    chances = found.pop("chances")
    return {
        **found,
        "expected_calibration_error": round(calibration_error(chances), 4),
        "existence_with_swapped_image": detected(served, HELD_OUT, number, swapped=True).existence,
        "phrases": len(chances),
    }


def generator(folder: Path, reader: Path, number: int) -> dict[str, Any]:
    """Share of the things in a prompt that the good LVLM reads back, all attributes right."""
    pipeline: Any = DiffusionPipeline.from_pretrained(
        folder, custom_pipeline=str(folder), trust_remote_code=True, dtype=torch.float32
    )
    pipeline.set_progress_bar_config(disable=True)
    model, processor = loaded(reader)
    shown = list(islice(scenes(HELD_OUT + 2), number))
    images: list[Any] = []
    for start in range(0, number, 50):
        part = shown[start : start + 50]
        dice = [torch.Generator().manual_seed(start + at) for at in range(len(part))]
        images += pipeline([answer(one, 0) for one in part], generator=dice).images
    said = described(model, processor, images, PROMPTS[0][0])
    truths = [truth(text, one) for text, one in zip(said, shown, strict=True)]
    kinds = [{thing.kind for thing in one.things} for one in shown]
    found = sum(len(one & stated.kinds_named) for one, stated in zip(kinds, truths, strict=True))
    return {
        "things_read_back": round(
            sum(one.things_found for one in truths) / sum(one.things_in_scene for one in truths), 4
        ),
        "kinds_read_back": round(found / sum(map(len, kinds)), 4),
        "images": number,
    }


def measure(folder: Path, number: int) -> dict[str, Any]:
    """The figures of every checkpoint in a folder."""
    found: dict[str, Any] = {}
    for name in LVLMS:
        if (folder / name).is_dir():
            found[name] = lvlm(folder / name, number)
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {
        "verifier": lambda path: verifier(path, number),
        "image_encoder": lambda path: image_encoder(path, number),
        "detector": lambda path: detector(path, number),
        "generator": lambda path: generator(path, folder / "lvlm_good", number),
    }
    for name, part in parts.items():
        if (folder / name).is_dir():
            found[name] = part(folder / name)
    return found


TITLES = LVLMS | {
    "verifier": "P(yes) that a statement holds for an image.",
    "image_encoder": "A small ViT; the cosine of its class token falls with every changed attribute.",
    "detector": "A small OWL-ViT: where an image shows what a phrase names.",
    "generator": "Text to image by flow matching in pixels: T5 encoder, PixArt transformer, pipeline.py.",
}


def card(name: str, figures: dict[str, Any], number: int) -> str:
    """A checkpoint's README.md."""
    lines = [f"# {name}", "", TITLES[name], ""]
    lines += ["Trained from scratch on the miniature world (docs/miniature.md), with the scripts in"]
    lines += ["`tools/miniature`. Licence: that of groundwatch.", ""]
    lines += [f"Measured by `python -m tools.miniature.cards FOLDER --scenes {number}` on"]
    lines += ["held-out scenes:", "", "| figure | value |", "| --- | --- |"]
    for key, value in figures.items():
        if isinstance(value, dict):
            lines += [f"| {key}: {part} | {number_} |" for part, number_ in value.items()]
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else value
            lines.append(f"| {key} | {shown} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenes", type=int, default=500)
    parser.add_argument("--json", action="store_true", help="only print, write no cards")
    chosen = parser.parse_args()
    found = measure(chosen.folder, chosen.scenes)
    print(json.dumps(found, indent=1))
    if not chosen.json:
        for name, figures in found.items():
            (chosen.folder / name / "README.md").write_text(card(name, figures, chosen.scenes), "utf-8")


if __name__ == "__main__":
    main()
