"""Tri-HE's triplets from the decomposer's facts (section 3.3, by rules in the place of an LLM).

A relation or a quality is a triplet, with articles and the verb "to be" before another verb or a preposition
left out: ("man", "riding", "horse"), ("horse", "is", "brown"). That something is there at all is no triplet,
for it has no second object.
"""

from __future__ import annotations

from collections.abc import Sequence

from groundwatch.events import Claim
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.tagging import NOUNS, Token, tag
from groundwatch.protocols.trihe.scoring import Triplet
from groundwatch.protocols.trihe.wording import claim_of

_BE = frozenset({"is", "are"})
_INNER = frozenset({"DT", "PRP$", "CD", "JJ", "JJR", "JJS", "VBN"}) | NOUNS


def triplets(facts: Sequence[Claim]) -> tuple[Claim, ...]:
    """The triplets of one answer, each once, in the facts' order and with their sub-sentences."""
    found: dict[Triplet, Claim] = {}
    for fact in facts:
        read = _read(fact)
        if read is not None:
            found.setdefault(read, claim_of(read, unit=fact.unit))
    return tuple(found.values())


def _read(fact: Claim) -> Triplet | None:
    if fact.category == "entity":
        return None
    words = tag(fact.text.rstrip("."))
    if words and words[0].lower == "there":
        return None if fact.category != "count" else _count(words)
    verb = next((at for at, word in enumerate(words) if at and _is_verb(word)), None)
    if verb is None:
        return None
    subject = _name(words[:verb])
    rest = list(words[verb:])
    if not subject or len(rest) < 2:
        return _intransitive(subject, rest)
    start = _object(rest)
    if fact.category in ("color", "other") and rest[0].lower in _BE:
        start = 1
    if start >= len(rest):
        return _intransitive(subject, rest)
    relation = [word.text for word in rest[:start]]
    if len(relation) > 1 and relation[0].lower() in _BE and relation[1].lower() != "not":
        relation = relation[1:]
    thing = _name(rest[start:]) or " ".join(word.text for word in rest[start:])
    return subject, " ".join(relation), thing


def _count(words: Sequence[Token]) -> Triplet | None:
    """ "There are two hens" as ("hens", "are", "two")."""
    if len(words) < 4 or words[1].lower not in _BE:
        return None
    return " ".join(word.text for word in words[3:]), words[1].text, words[2].text


def _intransitive(subject: str, rest: Sequence[Token]) -> Triplet | None:
    """ "The birds fly away" as ("birds", "is", "flying away"), in the words of scene graphs."""
    if not subject or not rest or not rest[0].tag.startswith("VB"):
        return None
    doing = w.inflect(w.verb(rest[0].lower), "VBG")
    return subject, "is", " ".join([doing, *(word.text for word in rest[1:])])


def _object(rest: Sequence[Token]) -> int:
    """Where the last noun phrase begins; a phrase with "of" is one."""
    at = len(rest)
    while at > 1 and rest[at - 1].tag in _INNER:
        at -= 1
        if at > 2 and rest[at - 1].lower == "of" and rest[at - 2].tag in NOUNS:
            at -= 1
    while at < len(rest) and rest[at].tag == "VBN":
        at += 1
    return at


def _is_verb(word: Token) -> bool:
    return word.tag in {"BE", "HV", "MD"} or (word.tag.startswith("VB") and word.tag not in {"VBN", "VBG"})


def _name(words: Sequence[Token]) -> str:
    kept = [word.text for at, word in enumerate(words) if at or word.tag not in {"DT", "PRP$"}]
    return " ".join(kept)
