"""How good a model is, on scenes that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Any, NamedTuple

import torch
from PIL import Image
from tools.miniature.answers import answer
from tools.miniature.packing import ANSWER, Packer, forward
from tools.miniature.texts import TEMPLATES

from groundwatch.miniature.language import PROMPTS, truth
from groundwatch.miniature.world import Scene, Thing, boxes, draw, missing_partners, png, scenes
from groundwatch.models.serving.detector import DetectionRequest, Detector, overlaps


@torch.inference_mode()
def statement_answers(
    model: Any, packer: Packer, seed: int, each: int, *, swapped: bool = False
) -> dict[str, list[tuple[float, bool]]]:
    """P(yes) and truth for each template, on `each` balanced pairs about held-out scenes.

    With `swapped` every statement is about another scene than the image: a model that looks is then at
    chance.
    """
    random, drawn = Random(seed), scenes(seed)
    found: dict[str, list[tuple[float, bool]]] = {name: [] for name in TEMPLATES}
    groups = {name: at for at, name in enumerate(TEMPLATES)}
    names = list(TEMPLATES)
    while any(len(pairs) < 2 * each for pairs in found.values()):
        shown = [next(drawn) for _ in range(50)]
        pictures = [draw(one) for one in shown]
        if swapped:
            pictures = pictures[1:] + pictures[:1]
        rows = []
        for one, picture in zip(shown, pictures, strict=True):
            branches = []
            for name, template in TEMPLATES.items():
                pair = template(one, random) if len(found[name]) < 2 * each else None
                if pair is not None:
                    branches.append(packer.statement(pair[0], True, groups[name]))
                    branches.append(packer.statement(pair[1], False, groups[name]))
            rows.append(([picture], branches))
        trained = forward(model, packer.batch(rows))
        asked = trained.roles == ANSWER
        yes = trained.logits[asked][:, [packer.yes, packer.no]].softmax(-1)[:, 0]
        holds = trained.labels[asked] == packer.yes
        for group, one_yes, one_holds in zip(
            trained.groups[asked].tolist(), yes.tolist(), holds.tolist(), strict=True
        ):
            found[names[group]].append((one_yes, one_holds))
    return found


def statement_accuracy(model: Any, packer: Packer, seed: int, each: int) -> dict[str, float]:
    """Accuracy for each template on `each` balanced pairs about held-out scenes."""
    return {
        name: round(sum((yes > 0.5) == holds for yes, holds in pairs) / len(pairs), 3)
        for name, pairs in statement_answers(model, packer, seed, each).items()
    }


@torch.inference_mode()
def ask(
    model: Any, processor: Any, asked: Sequence[tuple[Sequence[Scene | Image.Image], str]], tokens: int
) -> list[str]:
    """Greedy answers to prompts about one or several images each, as one batch."""
    chats = []
    for shown, prompt in asked:
        pictures = [one if isinstance(one, Image.Image) else draw(one) for one in shown]
        content: list[dict[str, Any]] = [{"type": "image", "image": picture} for picture in pictures]
        chats.append([{"role": "user", "content": [*content, {"type": "text", "text": prompt}]}])
    inputs = processor.apply_chat_template(
        chats, tokenize=True, return_dict=True, return_tensors="pt", processor_kwargs={"padding": True}
    )
    inputs.pop("token_type_ids", None)
    written = model.generate(**inputs, max_new_tokens=tokens, do_sample=False)
    new = written[:, inputs["input_ids"].shape[1] :]
    return list(processor.batch_decode(new, skip_special_tokens=True))


def described(
    model: Any, processor: Any, pictures: Sequence[Scene | Image.Image], prompt: str, batch: int = 100
) -> list[str]:
    """Greedy answers to one prompt about many images."""
    said: list[str] = []
    for start in range(0, len(pictures), batch):
        said += ask(model, processor, [([one], prompt) for one in pictures[start : start + batch]], 120)
    return said


class Described(NamedTuple):
    """How well a model describes, over held-out scenes."""

    things_right: float
    exact: float
    false_rate: float
    partner_rate: float
    answers: list[str]


def describe(model: Any, processor: Any, shown: Sequence[Scene], manner: int = 0) -> Described:
    """Greedy answers to the first prompt of a manner, compared with the truth.

    `things_right` is the share of things that are found with all attributes; `partner_rate` the share of
    scenes with a kind without its partner in which the answer names the absent partner.
    """
    answers = described(model, processor, shown, PROMPTS[manner][0])
    truths = [truth(text, one) for text, one in zip(answers, shown, strict=True)]
    things = sum(one.things_in_scene for one in truths)
    facts = sum(one.facts for one in truths)
    apart = [(one, missing_partners(scene)) for one, scene in zip(truths, shown, strict=True)]
    tempted = [(one, partners) for one, partners in apart if partners]
    return Described(
        things_right=round(sum(one.things_found for one in truths) / things, 4),
        exact=round(
            sum(text.strip() == answer(one, manner) for text, one in zip(answers, shown, strict=True))
            / len(shown),
            4,
        ),
        false_rate=round(sum(one.false_facts for one in truths) / max(1, facts), 4),
        partner_rate=round(
            sum(bool(set(partners) & set(one.false_kinds)) for one, partners in tempted)
            / max(1, len(tempted)),
            4,
        ),
        answers=answers,
    )


SURE = 0.5
"""A detector's score from which a thing counts as found."""

HIT = 0.5
"""Intersection over union from which a box is a thing's."""


class Found(NamedTuple):
    """How well a detector finds what phrases name, and knows what is not there.

    `recall` is over things and the phrases that fit them, `precision` over boxes; `existence` and `counted`
    are shares of the phrases, half of which name what is not there. `chances` are the highest scores with the
    truth.
    """

    recall: float
    precision: float
    mean_iou: float
    existence: float
    counted: float
    chances: list[tuple[float, bool]]

    def __repr__(self) -> str:
        return " ".join(
            f"{name} {value:.3f}" for name, value in zip(self._fields[:-1], self[:-1], strict=True)
        )


def detected(detector: Detector, seed: int, number: int, *, swapped: bool = False) -> Found:
    """Four phrases for each thing of held-out scenes, and as many that differ from them and fit none.

    With `swapped` every scene is asked about on another's image.
    """
    random = Random(seed)
    things, told, hits, exists, counts = 0, 0, [], 0, 0
    chances: list[tuple[float, bool]] = []
    drawn = list(islice(scenes(seed), number))
    for shown, pictured in zip(drawn, drawn[1:] + drawn[:1] if swapped else drawn, strict=True):
        fits = [_phrases(thing) for thing in shown.things]
        true = sorted(set().union(*fits))
        others = [thing.changed(random, name) for thing in shown.things for name in ("kind", "color", "size")]
        false = sorted(set().union(*map(_phrases, others)) - set(true))
        texts = true + random.sample(false, min(len(false), len(true)))
        [found] = detector.detect([DetectionRequest(image=png(pictured), texts=tuple(texts))])
        if isinstance(found, Exception):
            raise found
        places = torch.tensor(boxes(shown))
        for at, text in enumerate(texts):
            mine = [one for one in found if one.text == at]
            chances.append((max((one.score for one in mine), default=0.0), text in true))
            sure = [one.box for one in mine if one.score >= SURE]
            wanted = places[[text in one for one in fits]]
            near = overlaps(torch.tensor(sure).reshape(-1, 4), wanted)
            best = near.max(0).values.tolist() if sure and len(wanted) else []
            hits += [one for one in best if one >= HIT]
            things += len(wanted)
            told += len(sure)
            exists += bool(sure) == (text in true)
            counts += len(sure) == len(wanted)
    return Found(
        recall=round(len(hits) / things, 4),
        precision=round(len(hits) / max(1, told), 4),
        mean_iou=round(sum(hits) / max(1, len(hits)), 4),
        existence=round(exists / len(chances), 4),
        counted=round(counts / len(chances), 4),
        chances=chances,
    )


def _phrases(thing: Thing) -> set[str]:
    """ "ball", "red ball", "small ball", "small red ball"."""
    kind, color, size = thing.kind, thing.color, thing.size
    return {kind, f"{color} {kind}", f"{size} {kind}", f"{size} {color} {kind}"}
