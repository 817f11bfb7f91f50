"""`validate extraction`: what an engine reads of annotated answers, against their facts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.evaluation.extraction.matching import GoldFact, Matcher, is_forbidden, qualities_of
from groundwatch.evaluation.extraction.wording import wording
from groundwatch.events import Claim, Decision, Judge, KnownFact, Reference, ResponseRecorded
from groundwatch.extraction.engines.base import Extraction, ExtractionEngine
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.protocols import registry
from groundwatch.protocols.method import Progress, Result
from groundwatch.protocols.published import read_lines
from groundwatch.reading.document import REASONING_ONLY, keep_languages, read_document
from groundwatch.reporting.report import OTHER_LANGUAGE, Counts, Faultless
from groundwatch.verification.engines.reference.engine import rule
from groundwatch.verification.engines.reference.knowledge import knowledge

FACTS = "facts"
_NOTHING = "nothing_to_verify"
_REASONS = {
    _NOTHING: re.compile("nothing_to_verify|no_claim_in_answer|refus"),
    "another_language": re.compile("another_language"),
    "reasoning_only": re.compile("reasoning_only"),
}


class GoldAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An annotated answer. `expected` are facts, or why there are none; `never` must not be read in it."""

    id: str
    style: str
    prompt: str
    answer: str
    facts: tuple[GoldFact, ...] = ()
    never: tuple[str, ...] = ()
    expected: str = FACTS


class Read(msgspec.Struct, frozen=True, kw_only=True):
    claims: tuple[Claim, ...] = ()
    reason: str = ""


async def measure(file: Path, engine: ExtractionEngine, protocol: str, progress: Progress) -> Result:
    """Figures over English answers, over all, and by style.

    `alone` is what extraction alone makes of faultless answers: the share of decided facts that the reference
    judge refutes where all annotated facts are known to hold, and nothing else is there.
    """
    answers = [answer for _, answer in read_lines(file, GoldAnswer)]
    read: list[Read] = []
    for start in range(0, len(answers), 32):
        read += await read_answers(answers[start : start + 32], engine, protocol)
        progress("answers", len(read), len(answers))
    by = {"protocol": protocol, "judge": msgspec.to_builtins(engine.judge(registry.get(protocol)))}
    return by | figures(answers, read, SentenceEmbedder(cached=50_000))


def faultless(found: Mapping[str, Any]) -> Faultless:
    """What of the figures ships, to stand beside rates."""
    return Faultless(
        protocol=found["protocol"],
        judge=msgspec.convert(found["judge"], Judge),
        styles={
            style: Counts(refuted=one["refuted"], decided=one["decided"])
            for style, one in found["styles"].items()
            if style != OTHER_LANGUAGE and one["decided"]
        },
    )


async def read_answers(answers: Sequence[GoldAnswer], engine: ExtractionEngine, protocol: str) -> list[Read]:
    """What the extraction stage makes of each answer for a protocol whose claims are facts."""
    ends: dict[str, Read] = {}
    responses = []
    for answer in answers:
        document = read_document(answer.answer)
        try:
            if document.silent:
                raise Unscorable(REASONING_ONLY)
            document = keep_languages(document, engine.languages, answer.prompt)
        except Unscorable as error:
            ends[answer.id] = Read(reason=error.reason)
            continue
        responses.append(
            ResponseRecorded(id=answer.id, model="gold", prompt=answer.prompt, answer=document.text)
        )
    results = await engine.extract(responses, registry.get(protocol))
    for response, result in zip(responses, results, strict=True):
        match result:
            case Extraction(claims=()):
                ends[response.id] = Read(reason=_NOTHING)
            case Extraction():
                ends[response.id] = Read(claims=result.claims)
            case Unscorable():
                ends[response.id] = Read(reason=result.reason)
            case GroundwatchError():
                raise result
    return [ends[answer.id] for answer in answers]


def figures(answers: Sequence[GoldAnswer], read: Sequence[Read], embedder: SentenceEmbedder) -> Result:
    matcher = Matcher((fact for answer in answers for fact in answer.facts), embedder)
    styles: dict[str, Counter[str]] = defaultdict(Counter)
    for answer, end in zip(answers, read, strict=True):
        styles[answer.style] += _count(answer, end, matcher)
    english = sum((count for style, count in styles.items() if style != OTHER_LANGUAGE), Counter[str]())
    return {
        "english": _view(english),
        "all": _view(sum(styles.values(), Counter[str]())),
        "styles": {style: _view(count) for style, count in sorted(styles.items())},
    }


def _count(answer: GoldAnswer, end: Read, matcher: Matcher) -> Counter[str]:
    texts = [claim.text for claim in end.claims]
    pairs = matcher.pairs(texts, answer.facts)
    gold = tuple(KnownFact(text=text, holds=True) for fact in answer.facts for text in fact.texts)
    known = knowledge(Reference(facts=gold, complete=True))
    alone = Counter(rule(text, known).decision for text in texts)
    said = {wording(texts[at]) for at in pairs}
    qualities = qualities_of(answer.facts)
    count = Counter(answers=1, claims=len(texts), wrong_outcomes=not _as_expected(answer, end))
    count.update(refuted=alone[Decision.REFUTED], decided=alone.total() - alone[Decision.UNDECIDED])
    for at, text in enumerate(texts):
        if at in pairs:
            count["optional" if answer.facts[pairs[at]].optional else "right"] += 1
        elif wording(text) not in said and not any(
            matcher.same(text, fact, qualities) == 2.0 for fact in answer.facts
        ):
            # What is said again, in other words too, counts neither for nor against.
            count["wrong"] += 1
            count["inverted"] += matcher.inverted(text, answer.facts)
            count["forbidden"] += is_forbidden(text, answer.never)
    read = {fact: at for at, fact in pairs.items()}
    for number, fact in enumerate(answer.facts):
        if fact.optional:
            continue
        count["facts"] += 1
        count["missed"] += number not in read
        if fact.polarity == "-":
            count["denials"] += 1
            count["denials_read"] += number in read
        if fact.hedged:
            count["hedged"] += 1
            count["hedged_marked"] += number in read and end.claims[read[number]].hedged
    return count


def _as_expected(answer: GoldAnswer, end: Read) -> bool:
    if answer.expected == FACTS:
        return bool(end.claims)
    reason = _REASONS.get(answer.expected) or re.compile(re.escape(answer.expected))
    return not end.claims and reason.search(end.reason) is not None


_COUNTS = (
    *("answers", "facts", "claims", "right", "wrong", "missed", "optional", "inverted", "forbidden"),
    *("wrong_outcomes", "denials", "denials_read", "hedged", "hedged_marked", "refuted", "decided"),
)


def _view(count: Counter[str]) -> dict[str, float | int | None]:
    right = count["right"]
    precision = right / read if (read := right + count["wrong"]) else None
    recall = right / known if (known := right + count["missed"]) else None
    both = 2 * right / (2 * right + count["wrong"] + count["missed"]) if right else None
    alone = count["refuted"] / count["decided"] if count["decided"] else None
    figures = {"precision": precision, "recall": recall, "f1": both, "alone": alone}
    return {**figures, **{name: count[name] for name in _COUNTS}}
