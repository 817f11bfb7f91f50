"""Noun phrases: "two large wooden chairs" into a concept, its attributes and how many."""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from groundwatch.language.lexicon.tables import Attribute, Lexicon

ARTICLES = frozenset({"a", "an", "the", "this", "that", "these", "those"})
_OWNERS = frozenset({"his", "her", "its", "their", "my", "your", "our"})
DETERMINERS = ARTICLES | _OWNERS | frozenset({"such", "same", "main", "only", "first", "no"})
_HEDGES = frozenset({"at", "least", "about", "around", "exactly", "only", "just"})
MAX_WORDS = 80
"""A longer text is no atomic fact; it is compared as a whole and not taken apart."""


class NounPhrase(msgspec.Struct, frozen=True):
    """A thing as a text names it. `low` and `high` bound its number where the text gives one."""

    concept: str
    attributes: tuple[Attribute, ...] = ()
    low: int | None = None
    high: int | None = None
    plural: bool = False
    owner: str = ""
    of: str = ""

    @property
    def counted(self) -> bool:
        """Whether the text says how many, beyond "a" and "some"."""
        return self.low is not None and (self.low > 1 or self.high is not None)


def noun_phrases(words: Sequence[str], lexicon: Lexicon) -> list[NounPhrase]:
    """The things in "a hat and two red gloves"; at most `MAX_WORDS` words are looked at."""
    joints = ("and", ",", "or", "&", "plus")
    parts = [list(part) for joint, part in groupby(words[:MAX_WORDS], joints.__contains__) if not joint]
    merged: list[list[str]] = [[]]
    for index, part in enumerate(parts, start=1):
        merged[-1] += part
        describes = all(
            word in DETERMINERS or lexicon.attribute(word) or word in lexicon.attributes.shades
            for word in part
        )
        if not describes and index < len(parts):
            merged.append([])
    found = (_noun_phrase(part, lexicon) for part in merged if part)
    return [phrase for phrase in found if phrase is not None]


def _noun_phrase(words: list[str], lexicon: Lexicon) -> NounPhrase | None:
    owner = ""
    if "'s" in words:
        at = words.index("'s")
        possessor = _noun_phrase(words[:at], lexicon)
        owner = possessor.concept if possessor else ""
        words = words[at + 1 :]
    if "of" in words[1:-1]:
        at = words.index("of", 1)
        return _of_phrase(words[:at], words[at + 1 :], owner, lexicon)
    low: int | None = None
    high: int | None = None
    open_ended = "least" in words[:-1]
    while words and (words[0] in DETERMINERS or lexicon.number(words[0]) or words[0] in _HEDGES):
        number = lexicon.number(words[0])
        if number and len(words) == 1:
            if words[0] in lexicon.numbers and words[0] != "one":
                low, high = number
            break
        low, high = number or (low, high)
        words = words[1:]
    if open_ended:
        high = None
    if not words:
        return None
    attributes, rest = _attributes(words, lexicon)
    head = rest[-1]
    concept = lexicon.nouns.pronouns.get(head) if len(rest) == 1 else None
    concept = concept or lexicon.concept(tuple(rest))
    named = " ".join(rest[-2:])
    plural = lexicon.singular(named) != named or head in ("people", "cattle", "they", "them")
    return NounPhrase(concept, tuple(attributes), low, high, plural, owner)


def _of_phrase(words: list[str], rest: list[str], owner: str, lexicon: Lexicon) -> NounPhrase | None:
    """ "A group of people" is people; "the head of the giraffe" is a head."""
    outer = _noun_phrase(words, lexicon)
    inner = _noun_phrase(rest, lexicon)
    if outer is None or inner is None:
        return inner or outer
    joined = lexicon.concept((lexicon.singular(words[-1]), "of", *rest))
    if joined in lexicon.known:
        return msgspec.structs.replace(outer, concept=joined, owner=owner)
    measure = lexicon.singular(words[-1])
    if measure not in lexicon.nouns.quantities:
        if rest[0] not in DETERMINERS and " " not in inner.concept and inner.concept != outer.concept:
            outer = msgspec.structs.replace(outer, concept=f"{inner.concept} {outer.concept}")
        return msgspec.structs.replace(outer, owner=owner, of=inner.concept)
    low, high = inner.low, inner.high
    if low is None:
        paired = inner.concept in lexicon.nouns.pairs and measure == "pair"
        several = measure in lexicon.nouns.plural_quantities and inner.plural
        vague = lexicon.number(measure) or ((2, None) if several else (low, high))
        low, high = (outer.low, outer.high) if measure == "piece" or paired else vague
    attributes, plural = tuple(dict.fromkeys(inner.attributes)), inner.plural and measure != "piece"
    return msgspec.structs.replace(
        inner, attributes=attributes, low=low, high=high, plural=plural, owner=owner
    )


def _attributes(words: list[str], lexicon: Lexicon) -> tuple[list[Attribute], list[str]]:
    """Split the words before the head into attribute values and the rest, a compound noun."""
    sizes = range(min(len(words), lexicon.longest), 1, -1)
    known = (size for size in sizes if lexicon.singular(" ".join(words[-size:])) in lexicon.known)
    longest = next(known, 1)
    attributes: list[Attribute] = []
    compound: list[str] = []
    before = words[:-longest]
    for index, word in enumerate(before):
        if word in lexicon.relations.adverbs or word in DETERMINERS or word == "-":
            continue
        following = before[index + 1] if index + 1 < len(before) else ""
        shaded = lexicon.attribute(following)
        if word in lexicon.attributes.shades and shaded and shaded.kind == "color":
            continue
        value = lexicon.attribute(word)
        if value is None and word.endswith(("ing", "ed")) and lexicon.verb(word) is not None:
            value = Attribute("", lexicon.guessed_verb(word))
        if value is None:
            compound.append(word)
            continue
        shade = before[index - 1] if index else ""
        if value.kind == "color" and shade in lexicon.attributes.shades:
            value = Attribute("color", f"{shade} {value.value}")
        attributes.append(value)
    return attributes, [*compound, *words[-longest:]]
