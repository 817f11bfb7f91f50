"""How two statements about things relate: "(red, apple)", or "the cup is to the left of the jug"."""

import re
from collections.abc import Callable
from functools import lru_cache

from groundwatch.language.lexicon import Attribute, lexicon
from groundwatch.language.nouns.compare import Likeness, compare
from groundwatch.language.tokens import plain_words

Comparer = Callable[[str, str], Likeness]

NEARNESS = frozenset({"near", "at", "around", "with", "along"})
DIRECTIONS = frozenset({"left", "right", "front", "behind", "on", "above", "under", "in", "between", "among"})
LOOSE = (frozenset({"on", "in", "at"}), frozenset({"on", "above"}))
"""Prepositions between which people do not choose with care: on or in the field, on or above the water."""

IMAGE = frozenset({"image", "picture", "photo", "photograph", "frame", "scene", "view"})
UNTOLD = frozenset({"", "unknown", "unspecified", "none", "n/a", "not specified", "not mentioned"})

_JOINED = re.compile(r"\s*(?:,|/|&|\band\b|\bor\b)\s*")
_SIDES = re.compile(
    r"\b(?:on|to|at|in) the (?:far )?(left|right)(?:[- ]hand)?(?: side| corner| part)?\b(?! of)"
)


def compare_pair(
    generated: tuple[str, str], reference: tuple[str, str], things: Comparer = compare
) -> Likeness:
    """An (attribute, object) pair against another: the same only when both parts are."""
    parts = (compare_attribute(generated[0], reference[0]), things(generated[1], reference[1]))
    if Likeness.NONE in parts:
        return Likeness.NONE
    return Likeness.BROADER if Likeness.BROADER in parts else Likeness.SAME


def compare_attribute(generated: str, reference: str) -> Likeness:
    """A colour, pattern, material or number against another; "blue" is broader than "light blue"."""
    one, other = _values(generated), _values(reference)
    if not one or not other:
        return Likeness.SAME if generated.strip() == reference.strip() else Likeness.NONE
    if all(any(_is(value, known) for known in other) for value in one):
        if len(one) == len(other) or len(other) == 1:
            return Likeness.SAME
        return Likeness.BROADER
    if len(one) == len(other) == 1 and lexicon().entails_value(other[0], one[0]):
        return Likeness.BROADER
    return Likeness.NONE


def compare_relation(generated: str, reference: str, things: Comparer = compare) -> Likeness:
    """A positional relation against another, said from either side.

    "Near" and its like are broader than a direction (Appendix E, table 16).
    """
    if generated.strip().casefold() == reference.strip().casefold():
        return Likeness.SAME
    one, other = read_relation(generated), read_relation(reference)
    if one is None or other is None:
        return Likeness.NONE
    found = [
        _compare_read((subject, place, thing), other, things)
        for subject, place, thing in (one, *_turned(one))
    ]
    if Likeness.SAME in found:
        return Likeness.SAME
    return Likeness.BROADER if Likeness.BROADER in found else Likeness.NONE


@lru_cache(maxsize=8192)
def read_relation(text: str) -> tuple[str, str, str] | None:
    """(thing, place, other thing) of a sentence, the place as the lexicon's name for it; None for another."""
    words = plain_words(_SIDES.sub(r"to the \1 of the image", text[:400].casefold()))
    forms = lexicon().prepositions
    for at in range(1, len(words)):
        for size in range(min(lexicon().longest_preposition, len(words) - at - 1), 0, -1):
            form = " ".join(words[at : at + size])
            if form not in forms or forms[form] in ("of", "as", "for", "to"):
                continue
            subject = [word for word in words[:at] if word not in lexicon().relations.copulas]
            while len(subject) > 1 and subject[-1].endswith("ing"):
                subject.pop()
            thing = words[at + size :]
            return (" ".join(subject), forms[form], " ".join(thing)) if subject and thing else None
    return None


def _turned(relation: tuple[str, str, str]) -> list[tuple[str, str, str]]:
    subject, place, thing = relation
    inverse = lexicon().relations.prepositions[place].inverse
    return [(thing, inverse, subject)] if inverse else []


def _compare_read(one: tuple[str, str, str], other: tuple[str, str, str], things: Comparer) -> Likeness:
    parts = (_thing(one[0], other[0], things), _place(one[1], other[1]), _thing(one[2], other[2], things))
    if Likeness.NONE in parts:
        return Likeness.NONE
    return Likeness.BROADER if Likeness.BROADER in parts else Likeness.SAME


def _place(one: str, other: str) -> Likeness:
    if one == other or any(one in group and other in group for group in LOOSE):
        return Likeness.SAME
    return Likeness.BROADER if one in NEARNESS and other in DIRECTIONS else Likeness.NONE


def _thing(one: str, other: str, things: Comparer) -> Likeness:
    first, second = (set(text.split()) & IMAGE for text in (one, other))
    if first or second:
        return Likeness.SAME if first and second else Likeness.NONE
    return things(one, other)


def _values(text: str) -> list[Attribute]:
    words = text.strip().casefold()
    if words in UNTOLD:
        return []
    whole = lexicon().attribute(words)
    if whole is not None:
        return [whole]
    return [_value(part) for part in _JOINED.split(words) if part]


def _value(words: str) -> Attribute:
    """One attribute; a shade before a known colour is kept, an unknown word is a value of its own."""
    known = lexicon().attribute(words)
    if known is not None:
        return known
    number = lexicon().number(words)
    if number is not None:
        return Attribute("number", str(number))
    shade, _, base = words.rpartition(" ")
    found = lexicon().attribute(base)
    if found is not None and shade in lexicon().attributes.shades:
        return Attribute(found.kind, f"{shade} {found.value}")
    return Attribute("", words)


def _is(value: Attribute, known: Attribute) -> bool:
    return value == known or (value.kind != "" and lexicon().entails_value(value, known))
