"""VALOR's features from the decomposer's facts (section 4.1, by rules in the place of an LLM).

An entity is an object, its colour an (attribute, object) pair, as often as the answer counts it; what lies
where is a positional relation. Sizes are ranked in the order in which the things are spoken of, as the
paper's prompt has it for answers that do not say more (table 12); what is said to be larger comes first.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from groundwatch.events import Claim
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.rendering import COLOR, COUNT, ENTITY, AtomicFact
from groundwatch.language.lexicon import lexicon
from groundwatch.language.nouns import DIRECTIONS, NEARNESS, Likeness, compare, likenesses, read_relation
from groundwatch.protocols.features import ATTRIBUTE, OBJECT, RANK, RELATION, pair_text
from groundwatch.protocols.valor.scoring import Subset

MOST_ALIKE = 50
"""A count beyond this gives no more features: "hundreds of birds" is not a hundred annotations."""

WORN = ("clothing", "footwear", "accessory", "hat", "bag", "glove", "scarf", "glasses", "jewelry")

_BY = re.compile(r"\wed by\b", re.IGNORECASE)
_LARGER, _SMALLER = frozenset({"larger", "bigger"}), frozenset({"smaller", "tinier"})


def features(facts: Sequence[AtomicFact], subset: Subset) -> tuple[Claim, ...]:
    """The features of an answer; what it says twice is one: features are what there is, not what is said."""
    once: dict[str, AtomicFact] = {}
    for fact in facts:
        once.setdefault(fact.text.lower(), fact)
    return tuple(_READERS[subset](tuple(once.values())))


def _ranked(facts: Sequence[AtomicFact]) -> Iterator[Claim]:
    """In the order of speech, but a thing said to be larger than another stands before it."""
    ranks = list(_named(facts, RANK))
    for larger, smaller in _comparisons(facts):
        at = {claim.text: index for index, claim in enumerate(ranks)}
        if at.get(larger, -1) > at.get(smaller, len(ranks)):
            ranks.insert(at[smaller], ranks.pop(at[larger]))
    yield from ranks


def _comparisons(facts: Sequence[AtomicFact]) -> Iterator[tuple[str, str]]:
    for fact in facts:
        match fact.relation.split():
            case ["is" | "are", how, "than"] if how in _LARGER | _SMALLER:
                pair = _name(fact.subject), _name(fact.object)
                yield pair if how in _LARGER else (pair[1], pair[0])


def _named(facts: Iterable[AtomicFact], category: str) -> Iterator[Claim]:
    seen = set()
    for fact in facts:
        name = _thing(fact)
        if name and name not in seen:
            seen.add(name)
            yield Claim(text=name, category=category, unit=fact.unit, parts=(name,))


def _pairs(facts: Sequence[AtomicFact], *, worn: bool) -> Iterator[Claim]:
    counts = {name: number for fact in facts if (number := _count(fact)) and (name := _thing(fact))}
    for fact in facts:
        name = _name(fact.subject) if fact.category == COLOR else ""
        if not name or _is_a(WORN, name) is not worn or _is_a(("person",), name):
            continue
        parts = (fact.object, name)
        claim = Claim(text=pair_text(*parts), category=ATTRIBUTE, unit=fact.unit, parts=parts)
        yield from [claim] * counts.pop(name, 1)


def _count(fact: AtomicFact) -> int:
    low, high = (lexicon().number(fact.object) or (0, 0)) if fact.category == COUNT else (0, 0)
    return min(low, MOST_ALIKE) if low == high else 0


def _relations(facts: Iterable[AtomicFact]) -> Iterator[Claim]:
    for fact in facts:
        placed = fact.category == "relation" and not _BY.search(fact.text)
        read = read_relation(fact.text) if placed else None
        if read is None or read[1] not in DIRECTIONS | NEARNESS - {"with", "along"}:
            continue
        yield Claim(text=fact.text.rstrip("."), category=RELATION, unit=fact.unit, parts=read)


def _thing(fact: AtomicFact) -> str:
    """The name of what there is, by a fact that says so."""
    if fact.category not in (ENTITY, COUNT):
        return ""
    return _name(fact.object if fact.category == ENTITY else fact.subject)


def _name(text: str) -> str:
    """A thing's name in the singular, without articles; empty for what is no thing in the picture."""
    name = likenesses().name(text).whole
    return "" if name.rpartition(" ")[2] in w.NOTIONS or name.count(" ") > 4 else name


def _is_a(kinds: Iterable[str], name: str) -> bool:
    return any(compare(kind, name) is not Likeness.NONE for kind in kinds)


_READERS: dict[Subset, Callable[[Sequence[AtomicFact]], Iterator[Claim]]] = {
    Subset.OBJECT_EXISTENCE: lambda facts: _named(facts, OBJECT),
    Subset.ATTRIBUTE_OBJECT: lambda facts: _pairs(facts, worn=False),
    Subset.ATTRIBUTE_PEOPLE: lambda facts: _pairs(facts, worn=True),
    Subset.RELATION_POSITIONAL: _relations,
    Subset.RELATION_COMPARATIVE: _ranked,
}
