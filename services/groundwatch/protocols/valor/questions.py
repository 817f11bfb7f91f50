"""VALOR's questions to an LLM: features of an answer, and their counterparts (section 4.1; Appendices D, E).

The prompts are our own words; what is compared is numbered, so that no reply can invent a feature. One
answer is one unit: features have no sub-sentences.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from groundwatch.events import Claim, ClaimsExtracted, Label, Match, ResponseRecorded, SubSentence
from groundwatch.protocols.base import Stage, Step
from groundwatch.protocols.prompts import Prompt, combined_digest, load, numbered, read_reply, reply_schema
from groundwatch.protocols.valor.features import (
    ATTRIBUTE,
    CATEGORIES,
    OBJECT,
    RANK,
    RELATION,
    pair_text,
    read_written,
)
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


class _Counterpart(_Form, frozen=True):
    described: int
    annotated: int
    kind: Literal["matched", "broader"]


class _Counterparts(_Form, frozen=True):
    matches: list[_Counterpart]


def prompt_digest(subset: Subset, stage: Stage) -> str:
    """Digest of the prompt that the subset uses at this stage; empty for a stage without any."""
    match stage:
        case Stage.EXTRACTION:
            return combined_digest([_prompt(subset)])
        case Stage.MATCHING:
            return combined_digest([_matching_prompt(subset)])
        case _:
            return ""


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


def matching_step(subset: Subset, extracted: ClaimsExtracted) -> Step:
    """The call that finds each claim's counterpart among the reference's features."""
    prompt = _matching_prompt(subset)
    return Step(
        name=prompt.name,
        system=prompt.system,
        user=prompt.fill(
            described=numbered(enumerate(claim.text for claim in extracted.claims)),
            annotated=numbered(enumerate(_annotated(extracted))),
        ),
        schema=reply_schema(_Counterparts),
    )


def read_matching(subset: Subset, reply: object, extracted: ClaimsExtracted) -> tuple[Match, ...]:
    """The matches in the claims' order. Raises `ValueError` for a number that was not listed or comes twice.

    Where features are numbered, each annotated one may be taken once.
    """
    annotated = _annotated(extracted)
    matches: dict[int, Match] = {}
    taken: set[int] = set()
    for found in read_reply(reply, _Counterparts).matches:
        if not 0 <= found.described < len(extracted.claims):
            raise ValueError(f"no described item {found.described}")
        if not 0 <= found.annotated < len(annotated):
            raise ValueError(f"no annotated item {found.annotated}")
        if found.described in matches:
            raise ValueError(f"described item {found.described} has two entries")
        if CATEGORIES[subset] == ATTRIBUTE and found.annotated in taken:
            raise ValueError(f"annotated item {found.annotated} is taken twice")
        taken.add(found.annotated)
        wording = read_written(annotated[found.annotated])[0]
        matches[found.described] = Match(claim=found.described, reference=wording, kind=found.kind)
    return tuple(matches[number] for number in sorted(matches))


def _annotated(extracted: ClaimsExtracted) -> tuple[str, ...]:
    reference = extracted.response.reference
    return reference.objects if reference else ()


def _matching_prompt(subset: Subset) -> Prompt:
    names = {
        OBJECT: "match-names",
        RANK: "match-names",
        ATTRIBUTE: "match-pairs",
        RELATION: "match-relations",
    }
    return load(_PACKAGE, names[CATEGORIES[subset]])


def _said(text: str) -> str:
    found = " ".join(text.split())
    if not found:
        raise ValueError("a feature is empty")
    return found


def _prompt(subset: Subset) -> Prompt:
    return load(_PACKAGE, subset.value)
