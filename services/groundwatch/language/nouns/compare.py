"""How one name of a thing relates to another: the same, broader, or neither.

In order: the same lemma; synonyms of our own lexicon, of WordNet and of `likeness.json`; a name that only
adds words to the other ("stone arch bridge", "wooden table"); what lies above in either lexicon.
"""

from difflib import SequenceMatcher
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

import msgspec

from groundwatch.events import digest
from groundwatch.language.lexicon import lexicon
from groundwatch.language.lexicon.phrases import DETERMINERS
from groundwatch.language.nouns.wordnet import nouns
from groundwatch.language.tokens import plain_words

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

    def knows(self, text: str) -> bool:
        return self.name(text).known

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
        heads = [one.whole] if one.known else [one.head]
        for broad in heads:
            if broad in self._data.empty:
                continue
            if not one.known and one.before and broad.split()[-1] == other.whole.split()[-1]:
                continue
            if self._above(broad, other.whole) or (not other.known and self._above(broad, other.head)):
                return Likeness.BROADER
        return Likeness.NONE

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
        if min(len(one), len(other)) < LONG_ENOUGH or (self.knows(one) and self.knows(other)):
            return False
        return SequenceMatcher(None, one, other, autojunk=False).ratio() >= NEARLY

    def _concept(self, words: str) -> str:
        return lexicon().concept(tuple(words.split()))

    def _only_describe(self, words: tuple[str, ...] | list[str]) -> bool:
        return bool(words) and all(lexicon().attribute(word) is not None for word in words)

    def _conflict(self, one: Name, other: Name) -> bool:
        first = [found for word in one.before if (found := lexicon().attribute(word))]
        second = [found for word in other.before if (found := lexicon().attribute(word))]
        return any(lexicon().conflicting_values(here, there) for here in first for there in second)

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
    """The comparison of this process, read once."""
    return Likenesses(resources.files("groundwatch.language.nouns").joinpath("likeness.json").read_bytes())


def compare(generated: str, reference: str) -> Likeness:
    """How one name relates to another, by the lexicons alone."""
    return likenesses().compare(generated, reference)


def _squeezed(words: str) -> str:
    return words.replace(" ", "").replace("-", "")
