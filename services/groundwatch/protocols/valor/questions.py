"""VALOR's extraction with an LLM: one question for each subset (section 4.1; Appendix D).

The prompts are our own words. One answer is one unit: features have no sub-sentences.
"""

from __future__ import annotations

import msgspec

from groundwatch.events import Claim, Label, ResponseRecorded, SubSentence
from groundwatch.protocols.base import Stage, Step
from groundwatch.protocols.prompts import Prompt, combined_digest, load, read_reply, reply_schema
from groundwatch.protocols.valor.features import ATTRIBUTE, CATEGORIES, RANK, pair_text
from groundwatch.protocols.valor.scoring import Subset

EXTRACTION_STEPS = 1

_PACKAGE = "groundwatch.protocols.valor"


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the replies' forms: strict, as their schemas are."""


class _Pair(_Form, frozen=True):
    attribute: str
    object: str


class _Pairs(_Form, frozen=True):
    pairs: list[_Pair]


class _Features(_Form, frozen=True):
    features: list[str]


def prompt_digest(subset: Subset, stage: Stage) -> str:
    """Digest of the prompt that the subset's extraction uses; empty for the other stages."""
    return combined_digest([_prompt(subset)]) if stage is Stage.EXTRACTION else ""


def extraction_step(subset: Subset, response: ResponseRecorded) -> Step | None:
    """The one question; None for an answer without a word."""
    if not response.answer.strip():
        return None
    prompt = _prompt(subset)
    form = _Pairs if CATEGORIES[subset] == ATTRIBUTE else _Features
    return Step(
        name=f"valor-{prompt.name}",
        system=prompt.system,
        user=prompt.fill(answer=response.answer),
        schema=reply_schema(form),
    )


def read_extraction(
    subset: Subset, reply: object, response: ResponseRecorded
) -> tuple[tuple[SubSentence, ...], tuple[Claim, ...]]:
    """The features in the reply's order. Raises `ValueError` for an empty one."""
    answer = response.answer
    unit = SubSentence(start=0, end=len(answer), text=answer, label=Label.DESCRIPTIVE)
    category = CATEGORIES[subset]
    if category == ATTRIBUTE:
        pairs = read_reply(reply, _Pairs).pairs
        texts = [pair_text(_said(pair.attribute), _said(pair.object)) for pair in pairs]
        parts = [(pair.attribute, pair.object) for pair in pairs]
        return (unit,), tuple(
            Claim(text=text, category=category, parts=part) for text, part in zip(texts, parts, strict=True)
        )
    named = [_said(text) for text in read_reply(reply, _Features).features]
    if category != RANK:
        named = list(dict.fromkeys(named))
    return (unit,), tuple(Claim(text=text, category=category) for text in named)


def _said(text: str) -> str:
    found = " ".join(text.split())
    if not found:
        raise ValueError("a feature is empty")
    return found


def _prompt(subset: Subset) -> Prompt:
    return load(_PACKAGE, subset.value)
