"""FaithScore's questions to an LLM and how its replies are read (section 3.2; prompts in Appendix L).

Where the paper has the LLM cut the answer while labelling it, the cut here is `subsentences.split`, so that
offsets are certain and every judge labels the same pieces. Replies must account for each piece and each
fact exactly once: a reply that skips or repeats one raises `ValueError`, and nothing is guessed in its place.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from groundwatch.events import Claim, Decision, Label, Reference, ResponseRecorded, SubSentence, Verdict
from groundwatch.protocols.base import Stage, Step
from groundwatch.protocols.faithscore.subsentences import split
from groundwatch.protocols.prompts import Prompt, combined_digest, load, numbered, read_reply, reply_schema

EXTRACTION_STEPS = 2
"""Recognise the descriptive sub-sentences, then decompose them."""

_PACKAGE = "groundwatch.protocols.faithscore"
_PROMPTS = {Stage.EXTRACTION: ("recognise", "decompose"), Stage.VERIFICATION: ("verify",)}


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the replies' forms: strict, as their schemas are."""


class _Labelled(_Form, frozen=True):
    index: int
    label: Literal["descriptive", "analytical"]


class _Labels(_Form, frozen=True):
    labels: list[_Labelled]


class _Fact(_Form, frozen=True):
    sub_sentence: int
    category: Literal["entity", "relation", "color", "count", "other"]
    text: str


class _Facts(_Form, frozen=True):
    facts: list[_Fact]


class _Judged(_Form, frozen=True):
    index: int
    verdict: Literal["supported", "refuted", "undecided"]


class _Verdicts(_Form, frozen=True):
    verdicts: list[_Judged]


def prompt_digest(stage: Stage) -> str:
    """Digest of the prompts that `stage` uses; empty for a stage without any."""
    names = _PROMPTS.get(stage, ())
    return combined_digest(_prompt(name) for name in names) if names else ""


def extraction_step(index: int, response: ResponseRecorded, units: tuple[SubSentence, ...]) -> Step | None:
    """Call 0 labels the answer's sub-sentences, call 1 takes the descriptive ones apart.

    None for an answer that says nothing and when nothing in it is descriptive.
    """
    if index == 0:
        pieces = [response.answer[span.start : span.end] for span in split(response.answer)]
        return _step(
            "recognise",
            _Labels,
            pieces,
            question=response.prompt.strip() or "(not known)",
            answer=response.answer,
            sub_sentences=numbered(enumerate(pieces)),
        )
    descriptive = [(at, units[at].text) for at in _descriptive(units)]
    return _step("decompose", _Facts, descriptive, answer=response.answer, descriptive=numbered(descriptive))


def read_extraction(
    index: int, reply: object, response: ResponseRecorded, units: tuple[SubSentence, ...]
) -> tuple[tuple[SubSentence, ...], tuple[Claim, ...]]:
    """The labelled sub-sentences after call 0, and with the atomic facts after call 1.

    Facts come in their sub-sentences' order; one that is said twice of the same sub-sentence is kept once
    (Appendix G counts duplicates among the decomposer's errors). Raises `ValueError`.
    """
    if index == 0:
        return _read_labels(reply, response), ()
    return units, _read_facts(reply, units)


def verification_step(response: ResponseRecorded, claims: tuple[Claim, ...]) -> Step:
    """The call that checks all facts of a response at once.

    With images the reference is left out: FaithScore is free of references, and a judge that saw one would
    not be comparable with a judge that saw none.
    """
    reference = None if response.images else response.reference
    prompt = _prompt("verify")
    return Step(
        name=prompt.name,
        system=prompt.system,
        user=prompt.fill(
            reference=_describe(reference) if reference else "(nothing: look at what is attached)",
            facts=numbered((at, claim.text) for at, claim in enumerate(claims)),
        ),
        schema=reply_schema(_Verdicts),
    )


def read_verification(reply: object, claims: tuple[Claim, ...]) -> tuple[Verdict, ...]:
    """One verdict for each fact, in the facts' order. Raises `ValueError`."""
    verdicts = read_reply(reply, _Verdicts).verdicts
    _account("fact", [judged.index for judged in verdicts], range(len(claims)))
    found = {judged.index: Decision(judged.verdict) for judged in verdicts}
    return tuple(Verdict(decision=found[at]) for at in range(len(claims)))


def _prompt(name: str) -> Prompt:
    return load(_PACKAGE, name)


def _step(name: str, form: type[_Form], asked: Collection[object], **data: str) -> Step | None:
    if not asked:
        return None
    prompt = _prompt(name)
    return Step(name=name, system=prompt.system, user=prompt.fill(**data), schema=reply_schema(form))


def _descriptive(units: tuple[SubSentence, ...]) -> list[int]:
    return [at for at, unit in enumerate(units) if unit.label is Label.DESCRIPTIVE]


def _read_labels(reply: object, response: ResponseRecorded) -> tuple[SubSentence, ...]:
    spans = split(response.answer)
    labels = read_reply(reply, _Labels).labels
    _account("sub-sentence", [labelled.index for labelled in labels], range(len(spans)))
    found = {labelled.index: Label(labelled.label) for labelled in labels}
    return tuple(
        SubSentence(
            start=span.start, end=span.end, text=response.answer[span.start : span.end], label=found[at]
        )
        for at, span in enumerate(spans)
    )


def _read_facts(reply: object, units: tuple[SubSentence, ...]) -> tuple[Claim, ...]:
    facts = read_reply(reply, _Facts).facts
    offered = set(_descriptive(units))
    kept: dict[tuple[int, str], Claim] = {}
    for fact in facts:
        text = " ".join(fact.text.split())
        if fact.sub_sentence not in offered:
            raise ValueError(f"sub_sentence {fact.sub_sentence} is not one of the numbered pieces")
        if not any(character.isalnum() for character in text):
            raise ValueError(f"a fact of sub_sentence {fact.sub_sentence} has no text")
        claim = Claim(text=text, category=fact.category, unit=fact.sub_sentence)
        kept.setdefault((claim.unit, text.casefold().rstrip(".")), claim)
    return tuple(sorted(kept.values(), key=lambda claim: claim.unit))


def _account(what: str, given: list[int], asked: Iterable[int]) -> None:
    expected = set(asked)
    repeated = sorted(index for index, times in Counter(given).items() if times > 1)
    missing = sorted(expected.difference(given))
    unknown = sorted(set(given) - expected)
    for indexes, fault in (
        (unknown, "does not exist"),
        (repeated, "is there twice"),
        (missing, "is missing"),
    ):
        if indexes:
            raise ValueError(f"{what} {indexes[0]} {fault} ({len(indexes)} such)")


def _describe(reference: Reference) -> str:
    """The reference line by line, its texts as JSON strings, so that none can pass for another line."""
    lines = [f"complete: {'yes' if reference.complete else 'no'}"]
    lines += [f"{'true' if fact.holds else 'false'}: {_quote(fact.text)}" for fact in reference.facts]
    lines += [f"object: {_quote(name)}" for name in reference.objects]
    lines += [f"triplet: {' '.join(map(_quote, triplet))}" for triplet in reference.triplets]
    return "\n".join(lines)


def _quote(text: str) -> str:
    return json.dumps(" ".join(text.split()), ensure_ascii=False)
