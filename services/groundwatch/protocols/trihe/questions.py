"""Tri-HE's questions to an LLM and how its replies are read (section 3.3; prompts in Appendix E).

Where the paper asks once for each triplet, here all triplets of a response are judged in one call, each
under its number; a reply must account for every one of them exactly once.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Literal

import msgspec

from groundwatch.events import Claim, Decision, Label, Reference, ResponseRecorded, SubSentence, Verdict
from groundwatch.protocols.base import Stage, Step
from groundwatch.protocols.faithscore.subsentences import split
from groundwatch.protocols.prompts import Prompt, combined_digest, load, numbered, read_reply, reply_schema
from groundwatch.protocols.trihe.scoring import Triplet
from groundwatch.protocols.trihe.wording import blame, claim_of

EXTRACTION_STEPS = 1

_PACKAGE = "groundwatch.protocols.trihe"
_PROMPTS = {Stage.EXTRACTION: "extract", Stage.VERIFICATION: "judge"}


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the replies' forms: strict, as their schemas are."""


class _Triplet(_Form, frozen=True):
    piece: int
    object1: str
    relation: str
    object2: str


class _Triplets(_Form, frozen=True):
    triplets: list[_Triplet]


class _Judged(_Form, frozen=True):
    index: int
    supported: Literal["yes", "no"]
    wrong: Literal["object1", "relation", "object2", "none"]


class _Judgements(_Form, frozen=True):
    judgements: list[_Judged]


def prompt_digest(stage: Stage) -> str:
    """Digest of the prompt that `stage` uses; empty for a stage without any."""
    return combined_digest([load(_PACKAGE, _PROMPTS[stage])]) if stage in _PROMPTS else ""


def extraction_step(response: ResponseRecorded) -> Step | None:
    """The call that finds an answer's triplets; None for an answer that says nothing."""
    pieces = _units(response)
    if not pieces:
        return None
    return _step(
        Stage.EXTRACTION,
        _Triplets,
        question=response.prompt.strip() or "(not known)",
        answer=response.answer,
        pieces=numbered((at, piece.text) for at, piece in enumerate(pieces)),
    )


def read_extraction(
    reply: object, response: ResponseRecorded
) -> tuple[tuple[SubSentence, ...], tuple[Claim, ...]]:
    """The answer's pieces and its triplets, each once and in the pieces' order. Raises `ValueError`."""
    units = _units(response)
    kept: dict[Triplet, Claim] = {}
    for one in read_reply(reply, _Triplets).triplets:
        if not 0 <= one.piece < len(units):
            raise ValueError(f"piece {one.piece} is not one of the numbered pieces")
        parts = _clean(one.object1), _clean(one.relation), _clean(one.object2)
        if not all(parts):
            raise ValueError(f"a triplet of piece {one.piece} has an empty part")
        folded = parts[0].casefold(), parts[1].casefold(), parts[2].casefold()
        kept.setdefault(folded, claim_of(parts, unit=one.piece))
    return units, tuple(sorted(kept.values(), key=lambda claim: claim.unit))


def verification_step(response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
    """The call that judges all triplets of a response against the scene graph in its reference.

    The paper's judge reads the graph and sees no image; without a reference the images have to do.
    """
    return _step(
        Stage.VERIFICATION,
        _Judgements,
        reference=_graph(response.reference) if response.reference else "(nothing: look at what is attached)",
        claims=numbered((at, _quoted(claim)) for at, claim in enumerate(claims)),
    )


def read_verification(reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
    """One verdict for each triplet, in order, with the part that is wrong. Raises `ValueError`."""
    found = read_reply(reply, _Judgements).judgements
    times = Counter(one.index for one in found)
    for at in range(len(claims)):
        if times[at] != 1:
            raise ValueError(f"claim {at} is there {times[at]} times, not once")
    if len(found) != len(claims):
        raise ValueError(f"{len(found)} judgements for {len(claims)} claims")
    for one in found:
        if one.supported == "no" and one.wrong == "none":
            raise ValueError(f"claim {one.index} is not supported, but no wrong part is named")
    return tuple(_verdict(one) for one in sorted(found, key=lambda one: one.index))


def _verdict(judged: _Judged) -> Verdict:
    if judged.supported == "yes":
        return Verdict(decision=Decision.SUPPORTED)
    part = judged.wrong if judged.wrong != "none" else None
    return Verdict(decision=Decision.REFUTED, evidence=blame(part))


def _units(response: ResponseRecorded) -> tuple[SubSentence, ...]:
    answer = response.answer
    return tuple(
        SubSentence(
            start=span.start, end=span.end, text=answer[span.start : span.end], label=Label.DESCRIPTIVE
        )
        for span in split(answer)
    )


def _step(stage: Stage, form: type[_Form], **data: str) -> Step:
    prompt: Prompt = load(_PACKAGE, _PROMPTS[stage])
    return Step(name=prompt.name, system=prompt.system, user=prompt.fill(**data), schema=reply_schema(form))


def _graph(reference: Reference) -> str:
    """The reference line by line, its texts as JSON strings, so that none can pass for another line."""
    lines = [f"triplet: {' '.join(map(_json, triplet))}" for triplet in reference.triplets]
    lines += [f"object: {_json(name)}" for name in dict.fromkeys(reference.objects)]
    lines += [f"{'true' if fact.holds else 'false'}: {_json(fact.text)}" for fact in reference.facts]
    return "\n".join(lines) or "(nothing)"


def _quoted(claim: Claim) -> str:
    return f"({', '.join(claim.parts)})" if claim.parts else claim.text


def _json(text: str) -> str:
    return json.dumps(_clean(text), ensure_ascii=False)


def _clean(text: str) -> str:
    return " ".join(text.split())
