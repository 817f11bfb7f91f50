"""VALOR's features from the decomposer's facts (section 4.1, by rules in the place of an LLM).

An entity is an object, its colour an (attribute, object) pair, as often as the answer counts it; what lies
where is a positional relation. Sizes are ranked in the order in which the things are spoken of, as the
paper's prompt has it for answers that do not say more (table 12); what is said to be larger comes first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from groundwatch.events import Claim
from groundwatch.language.lexicon import lexicon
from groundwatch.language.nouns.compare import Likeness, compare, likenesses
from groundwatch.language.nouns.statements import DIRECTIONS, NEARNESS, read_relation
from groundwatch.language.tokens import plain_words
from groundwatch.protocols.valor.features import ATTRIBUTE, OBJECT, RANK, RELATION, pair_text
from groundwatch.protocols.valor.scoring import Subset

MOST_ALIKE = 50
"""A count beyond this gives no more features: "hundreds of birds" is not a hundred annotations."""

ABSTRACT = frozenset(
    {"day", "time", "scene", "moment", "image", "picture", "photo", "game", "sport", "setting", "plot"}
    | {"atmosphere", "surroundings", "surrounding", "group", "excitement", "enthusiasm", "foreground"}
    | {"background", "left", "right", "side", "middle", "center", "top", "bottom", "front", "view", "area"}
    | {"nothing", "something", "anything", "everything", "thing", "item", "object", "order", "size"}
    | {"event", "activity", "position", "sense", "overall", "environment", "color", "number", "variety"}
)
"""What table 8's prompt leaves out: notions, moods and places in the picture."""

WORN = ("clothing", "footwear", "accessory", "hat", "bag", "glove", "scarf", "glasses", "jewelry")

_THERE = re.compile(r"^there (?:is|are) (?P<thing>.+?)\.?$", re.IGNORECASE)
_BY = re.compile(r"\w+ed by\b", re.IGNORECASE)
_THAN = re.compile(
    r"^(?P<one>.+?) (?:is|are) (?P<how>larger|bigger|smaller|tinier) than (?P<other>.+?)\.?$", re.IGNORECASE
)
_LARGER = frozenset({"larger", "bigger"})
_IS = re.compile(r"^(?P<thing>.+?) (?:is|are) (?P<value>.+?)\.?$", re.IGNORECASE)


def features(facts: Sequence[Claim], subset: Subset) -> tuple[Claim, ...]:
    """The claims of one answer for one subset, in the answer's order."""
    return tuple(_READERS[subset](facts))


def _objects(facts: Iterable[Claim]) -> Iterator[Claim]:
    return _named(facts, OBJECT)


def _ranked(facts: Sequence[Claim]) -> Iterator[Claim]:
    """In the order of speech, but a thing said to be larger than another stands before it."""
    ranks = list(_named(facts, RANK))
    for larger, smaller in _comparisons(facts):
        at = {claim.text: index for index, claim in enumerate(ranks)}
        if at.get(larger, -1) > at.get(smaller, len(ranks)):
            ranks.insert(at[smaller], ranks.pop(at[larger]))
    yield from ranks


def _comparisons(facts: Sequence[Claim]) -> Iterator[tuple[str, str]]:
    for fact in facts:
        found = _THAN.match(fact.text) if fact.category == "relation" else None
        if found is not None:
            pair = _name(found["one"]), _name(found["other"])
            yield pair if found["how"].lower() in _LARGER else (pair[1], pair[0])


def _named(facts: Iterable[Claim], category: str) -> Iterator[Claim]:
    seen = set()
    for fact in facts:
        found = _THERE.match(fact.text) if fact.category in ("entity", "count") else None
        name = _name(found["thing"]) if found else ""
        if name and name not in seen:
            seen.add(name)
            yield Claim(text=name, category=category, unit=fact.unit, parts=(name,))


def _pairs(facts: Sequence[Claim], *, worn: bool) -> Iterator[Claim]:
    counts = {name: number for fact in facts if fact.category == "count" for name, number in _count(fact)}
    for fact in facts:
        found = _IS.match(fact.text) if fact.category == "color" else None
        name = _name(found["thing"]) if found else ""
        if found is None or not name or _is_worn(name) is not worn or _is_person(name):
            continue
        claim = Claim(
            text=pair_text(found["value"], name),
            category=ATTRIBUTE,
            unit=fact.unit,
            parts=(found["value"], name),
        )
        yield from [claim] * counts.pop(name, 1)


def _count(fact: Claim) -> Iterator[tuple[str, int]]:
    found = _THERE.match(fact.text)
    words = plain_words(found["thing"]) if found else []
    number = lexicon().number(words[0]) if len(words) > 1 else None
    if number is not None and number[0] == number[1] and number[0] > 0:
        yield _name(" ".join(words[1:])), min(number[0], MOST_ALIKE)


def _relations(facts: Iterable[Claim]) -> Iterator[Claim]:
    for fact in facts:
        told = fact.category == "relation" and not _BY.search(fact.text)
        read = read_relation(fact.text) if told else None
        if read is None or read[1] not in DIRECTIONS | NEARNESS - {"with", "along"}:
            continue
        yield Claim(text=fact.text.rstrip("."), category=RELATION, unit=fact.unit, parts=read)


def _name(text: str) -> str:
    """A thing's name in the singular, without articles; empty for what is no thing in the picture."""
    name = likenesses().name(text).whole
    return "" if name.rpartition(" ")[2] in ABSTRACT or name.count(" ") > 4 else name


def _is_worn(name: str) -> bool:
    return any(compare(kind, name) is not Likeness.NONE for kind in WORN)


def _is_person(name: str) -> bool:
    return compare("person", name) is not Likeness.NONE


_READERS: dict[Subset, Callable[[Sequence[Claim]], Iterator[Claim]]] = {
    Subset.OBJECT_EXISTENCE: _objects,
    Subset.ATTRIBUTE_OBJECT: lambda facts: _pairs(facts, worn=False),
    Subset.ATTRIBUTE_PEOPLE: lambda facts: _pairs(facts, worn=True),
    Subset.RELATION_POSITIONAL: _relations,
    Subset.RELATION_COMPARATIVE: _ranked,
}
