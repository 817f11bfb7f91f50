"""How good a model is, on scenes that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import torch

from groundwatch.miniature.language import PROMPTS, answer
from groundwatch.miniature.reading import truth
from groundwatch.miniature.statements import TEMPLATES
from groundwatch.miniature.training.packing import ANSWER, Packer, forward
from groundwatch.miniature.world import Scene, draw, missing_partners, scenes


@torch.inference_mode()
def statement_accuracy(model: Any, packer: Packer, seed: int, each: int) -> dict[str, float]:
    """Accuracy for each template on `each` balanced pairs of held-out scenes."""
    random, drawn = Random(seed), scenes(seed)
    found: dict[str, list[bool]] = {name: [] for name in TEMPLATES}
    groups = {name: at for at, name in enumerate(TEMPLATES)}
    names = list(TEMPLATES)
    while any(len(right) < 2 * each for right in found.values()):
        rows = []
        for _ in range(50):
            shown = next(drawn)
            branches = []
            for name, template in TEMPLATES.items():
                pair = template(shown, random) if len(found[name]) < 2 * each else None
                if pair is not None:
                    branches.append(packer.statement(pair[0], True, groups[name]))
                    branches.append(packer.statement(pair[1], False, groups[name]))
            rows.append(([draw(shown)], branches))
        trained = forward(model, packer.batch(rows))
        asked = trained.roles == ANSWER
        logits = trained.logits[asked]
        right = (logits[:, packer.yes] > logits[:, packer.no]) == (trained.labels[asked] == packer.yes)
        for group, good in zip(trained.groups[asked].tolist(), right.tolist(), strict=True):
            found[names[group]].append(good)
    return {name: round(sum(right) / len(right), 3) for name, right in found.items()}


class Described(NamedTuple):
    """How well a model describes, over held-out scenes."""

    things_right: float
    exact: float
    false_rate: float
    partner_rate: float
    answers: list[str]


@torch.inference_mode()
def describe(
    model: Any, processor: Any, shown: Sequence[Scene], manner: int = 0, batch: int = 100
) -> Described:
    """Greedy answers to the first prompt of a manner, compared with the truth.

    `things_right` is the share of things that are found with all attributes; `partner_rate` the share of
    scenes with a kind without its partner in which the answer names the absent partner.
    """
    answers: list[str] = []
    for start in range(0, len(shown), batch):
        chats = [
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "image": draw(one)},
                        {"type": "text", "text": PROMPTS[manner][0]},
                    ],
                }
            ]
            for one in shown[start : start + batch]
        ]
        inputs = processor.apply_chat_template(
            chats, tokenize=True, return_dict=True, return_tensors="pt", processor_kwargs={"padding": True}
        )
        inputs.pop("token_type_ids", None)
        written = model.generate(**inputs, max_new_tokens=120, do_sample=False)
        new = written[:, inputs["input_ids"].shape[1] :]
        answers += processor.batch_decode(new, skip_special_tokens=True)
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
