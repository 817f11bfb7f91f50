"""How one name of a thing relates to another: the same, broader, or neither; by WordNet and our own lists.

In order: the same lemma; synonyms of our own lexicon, of WordNet and of `likeness.json`; a name that only
adds words to the other ("stone arch bridge", "wooden table"); what lies above in either lexicon. Of WordNet
3.0 `tools/wordnet.py` keeps which nouns mean the same, and what is above them, in `wordnet.json`,
from Debian's package `wordnet-base`; its licence is `LICENSE.md`. `likeness.json` is our own.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from itertools import product
from typing import NamedTuple

import msgspec

from groundwatch.keys import digest
from groundwatch.language.lexicon import DETERMINERS, Attribute, lexicon
from groundwatch.language.tokens import plain_words


class Nouns:
    """Looks up meanings by word. Words are lower-case lemmas, several joined by blanks."""

    def __init__(self, data: bytes) -> None:
        self.digest = digest(data.decode())[:12]
        self._meanings: dict[str, list[int]] = defaultdict(list)
        self._above: list[tuple[int, ...]] = []
        self._names: list[str] = []
        for number, text in enumerate(msgspec.json.decode(data, type=dict[str, list[str]])["synsets"]):
            words, _, above = text.partition("#")
            self._above.append(tuple(map(int, above.split())))
            self._names.append(words.partition("|")[0])
            for word in words.split("|"):
                self._meanings[word].append(number)
        self._closure = lru_cache(maxsize=8192)(self._climb)

    def __contains__(self, word: str) -> bool:
        return word in self._meanings

    def meanings(self, word: str) -> int:
        return len(self._meanings.get(word, ()))

    def synset(self, word: str) -> str | None:
        """The name of the word's synset, its first word ("auto": "car"); None for a word that is not here.

        Which sense is the commonest is not kept, so a synset that is named after the word goes first.
        """
        names = [self._names[meaning] for meaning in self._meanings.get(word, ())]
        return word if word in names else next(iter(names), None)

    def same(self, one: str, other: str) -> bool:
        return not set(self._meanings.get(one, ())).isdisjoint(self._meanings.get(other, ()))

    def steps(self, narrow: str, broad: str) -> int | None:
        """How many steps a meaning of `broad` lies above one of `narrow`; None when it does not."""
        above = self._closure(narrow)
        found = [above[meaning] for meaning in self._meanings.get(broad, ()) if above.get(meaning)]
        return min(found, default=None)

    def _climb(self, word: str) -> dict[int, int]:
        found = dict.fromkeys(self._meanings.get(word, ()), 0)
        level = list(found)
        step = 0
        while level:
            step += 1
            level = [above for meaning in level for above in self._above[meaning] if above not in found]
            found.update(dict.fromkeys(level, step))
        return found


@cache
def nouns() -> Nouns:
    return Nouns(resources.files("groundwatch.language.nouns").joinpath("wordnet.json").read_bytes())


HIGHEST = 8
"""So many steps up in WordNet at most; further up are words that nobody uses for what they see."""


LONG_ENOUGH, NEARLY = 5, 0.86
"""A word of so many letters is taken for another one's misspelling when they are so similar (difflib)."""


class Likeness(StrEnum):
    """How a generated name relates to one of the reference."""

    SAME = "matched"
    BROADER = "broader"
    NONE = "none"


class Name(NamedTuple):
    """A thing's name taken apart: `whole` without articles and asides, `head` its longest known ending."""

    whole: str
    head: str
    before: tuple[str, ...]
    known: bool


class _Data(msgspec.Struct, frozen=True):
    same: list[list[str]]
    broader: dict[str, list[str]]
    apart: list[list[str]]
    portions: frozenset[str]
    ends: frozenset[str]
    empty: frozenset[str]


class Likenesses:
    """The two lexicons and our own list, asked together."""

    def __init__(self, data: bytes) -> None:
        self._data = msgspec.json.decode(data, type=_Data)
        self.digest = digest(data.decode(), nouns().digest, lexicon().digest)[:12]
        self._apart = {frozenset(pair) for pair in self._data.apart}
        self._same = {
            frozenset((one, other)) for group in self._data.same for one in group for other in group
        }
        self._groups = {group[0]: tuple(group[1:]) for group in lexicon().nouns.synonyms}
        self.name = lru_cache(maxsize=16384)(self._name)

    def compare(self, generated: str, reference: str) -> Likeness:
        one, other = self.name(generated), self.name(reference)
        if not one.whole or not other.whole:
            return Likeness.NONE
        if self._listed(one.whole, other.whole):
            return Likeness.BROADER
        if self._alike(one.whole, other.whole):
            return Likeness.SAME
        if frozenset((one.whole, other.whole)) in self._apart:
            return Likeness.NONE
        return self._by_words(one, other) or self._by_kind(one, other)

    def open(self, generated: str, reference: str) -> bool:
        """Whether the lexicons leave it to a model: they know no relation that makes two things of the names.

        Two names are not open when the lexicons have both, when the generated one is narrower, when both
        are kinds of one thing, or when one is made with the other's word ("bus driver", "bus").
        """
        one, other = self.name(generated), self.name(reference)
        first, second = one.whole, other.whole
        if not first or not second or (one.known and other.known):
            return False
        if frozenset((first, second)) in self._apart or self._above(second, first):
            return False
        if lexicon().ancestors(self._concept(first)) & lexicon().ancestors(self._concept(second)):
            return False
        return not any(word[:4] == there[:4] for word in first.split() for there in second.split())

    def _by_words(self, one: Name, other: Name) -> Likeness | None:
        """What follows when one name is the other with more words before it."""
        if self._ends_with(one, other.whole):
            return Likeness.SAME
        if self._ends_with(other, one.whole):
            added = other.whole.split()[: -len(one.whole.split())] or other.before
            described = other.whole not in nouns() and self._only_describe(added)
            return Likeness.SAME if described else Likeness.BROADER
        if one.before and other.before and self._alike(one.head, other.head):
            described = self._only_describe(one.before) or self._only_describe(other.before)
            return Likeness.SAME if described and not self._conflict(one, other) else Likeness.NONE
        return None

    def _by_kind(self, one: Name, other: Name) -> Likeness:
        broad = one.whole if one.known else one.head
        alike = not one.known and one.before and broad.split()[-1] == other.whole.split()[-1]
        if broad in self._data.empty or alike:
            return Likeness.NONE
        above = self._above(broad, other.whole) or (not other.known and self._above(broad, other.head))
        return Likeness.BROADER if above else Likeness.NONE

    def _ends_with(self, longer: Name, shorter: str) -> bool:
        """Whether `longer` is `shorter` with words before it, and really a kind of it."""
        if not longer.before and not longer.whole.endswith(" " + shorter):
            return False
        if longer.known:
            return longer.whole.endswith(" " + shorter) and (
                self._above(shorter, longer.whole) or longer.whole not in nouns()
            )
        return self._alike(longer.head, shorter)

    def _alike(self, one: str, other: str) -> bool:
        if one == other or _squeezed(one) == _squeezed(other) or frozenset((one, other)) in self._same:
            return True
        if frozenset((one, other)) in self._apart or self._listed(one, other) or self._listed(other, one):
            return False
        return (
            self._concept(one) == self._concept(other)
            or nouns().same(one, other)
            or self._misspelt(one, other)
        )

    def _above(self, broad: str, narrow: str) -> bool:
        if frozenset((broad, narrow)) in self._apart:
            return False
        if self._listed(broad, narrow) or lexicon().is_a(self._concept(narrow), self._concept(broad)):
            return True
        if nouns().steps(broad, narrow):
            return False
        steps = [nouns().steps(word, broad) for word in self._synonyms(narrow)]
        return any(step is not None and 0 < step <= HIGHEST for step in steps)

    def _listed(self, broad: str, narrow: str) -> bool:
        return narrow in self._data.broader.get(broad, ())

    def _synonyms(self, word: str) -> tuple[str, ...]:
        """The word, and its synonyms in our lexicon that WordNet has in one meaning only."""
        group = self._groups.get(self._concept(word), ())
        return (word, *(other for other in group if nouns().meanings(other) == 1))

    def _misspelt(self, one: str, other: str) -> bool:
        """Whether a word that no lexicon has is nearly the other: annotators write "motocycle" too."""
        if min(len(one), len(other)) < LONG_ENOUGH or (self.name(one).known and self.name(other).known):
            return False
        return SequenceMatcher(None, one, other, autojunk=False).ratio() >= NEARLY

    def _concept(self, words: str) -> str:
        return lexicon().concept(tuple(words.split()))

    def _only_describe(self, words: tuple[str, ...] | list[str]) -> bool:
        return bool(words) and all(lexicon().attribute(word) is not None for word in words)

    def _conflict(self, one: Name, other: Name) -> bool:
        first, second = (filter(None, map(lexicon().attribute, name.before)) for name in (one, other))
        return any(lexicon().conflicting_values(here, there) for here, there in product(first, second))

    def _name(self, text: str) -> Name:
        words = [word for word in plain_words(text) if word not in DETERMINERS and word != ","][:12]
        while len(words) > 1 and lexicon().number(words[0]) is not None:
            words = words[1:]
        whole = self._lemma(words)
        if whole is None:
            words = self._cut(words)
            whole = self._lemma(words)
        if whole is not None:
            return Name(whole, whole, tuple(words[:-1]), True)
        for start in range(1, len(words)):
            head = self._lemma(words[start:])
            if head is not None:
                before = tuple(words[:start])
                return Name(" ".join((*before, head)), head, before, False)
        plain = lexicon().singular(" ".join(words))
        return Name(plain, plain.rpartition(" ")[2], tuple(words[:-1]), False)

    def _cut(self, words: list[str]) -> list[str]:
        """Without what follows the thing ("man in white"), and without a portion ("slice of pizza")."""
        for at, word in enumerate(words):
            if not at or word not in self._data.ends:
                continue
            if word == "of" and lexicon().singular(words[at - 1]) in self._data.portions and words[at + 1 :]:
                return self._cut(words[at + 1 :])
            return words[:at]
        return words

    def _lemma(self, words: list[str]) -> str | None:
        if not words:
            return None
        start = words[:-1]
        for last in (lexicon().singular(" ".join(words[-2:])).rpartition(" ")[2], words[-1]):
            forms = (" ".join((*start, last)), "".join((*start, last)), "-".join((*start, last)))
            for joined in forms[:1] if self._only_describe(start) else forms:
                if joined in lexicon().known or joined in nouns():
                    return joined
        return None


@cache
def likenesses() -> Likenesses:
    return Likenesses(resources.files("groundwatch.language.nouns").joinpath("likeness.json").read_bytes())


def compare(generated: str, reference: str) -> Likeness:
    return likenesses().compare(generated, reference)


def _squeezed(words: str) -> str:
    return words.replace(" ", "").replace("-", "")


Comparer = Callable[[str, str], Likeness]

NEARNESS = frozenset({"near", "at", "around", "with", "along"})
DIRECTIONS = frozenset({"left", "right", "front", "behind", "on", "above", "under", "in", "between", "among"})
LOOSE = (frozenset({"on", "in", "at"}), frozenset({"on", "above"}))
"""Prepositions between which people do not choose with care: on or in the field, on or above the water."""

IMAGE = frozenset({"image", "picture", "photo", "photograph", "frame", "scene", "view"})
UNTOLD = frozenset({"", "unknown", "unspecified", "none", "n/a", "not specified", "not mentioned"})

_JOINED = re.compile(r" ?(?:,|/|&|\band\b|\bor\b) ?")
_SIDES = re.compile(
    r"\b(?:on|to|at|in) the (?:far )?(left|right)(?:[- ]hand)?(?: side| corner| part)?\b(?! of)"
)


def compare_pair(
    generated: tuple[str, str], reference: tuple[str, str], things: Comparer = compare
) -> Likeness:
    """An (attribute, object) pair against another: the same only when both parts are."""
    return _together(compare_attribute(generated[0], reference[0]), things(generated[1], reference[1]))


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
    found = [_compare_read(said, other, things) for said in (one, *_turned(one))]
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
    return _together(
        _thing(one[0], other[0], things), _place(one[1], other[1]), _thing(one[2], other[2], things)
    )


def _together(*parts: Likeness) -> Likeness:
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
    words = " ".join(text.casefold().split())
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
