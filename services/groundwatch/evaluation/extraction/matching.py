"""Pairs facts that were read with facts of a gold annotation, one to one.

Two say the same when their wordings are equal; or when their sentences are close (MiniLM) and nothing sets
them apart: the same things in the same order, the same denial, numbers, colours and places, no opposites.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from groundwatch.evaluation.extraction.wording import (
    ARTICLES,
    BE,
    COLORS,
    DENIALS,
    FILLERS,
    NEUTRAL,
    NO_THINGS,
    NUMBERS,
    OPPOSITES,
    PLACES,
    denies,
    is_existence,
    stem,
    wording,
    words,
)
from groundwatch.models.embeddings import SentenceEmbedder

CLOSE = 0.85
"""Cosine from which two sentences can say the same."""

_QUALITIES_ALIKE, _WORDS_ALIKE = 0.6, 0.5


class GoldFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of an annotated answer; `alt` are other wordings of it, `polarity` is "-" for a denial."""

    text: str
    category: str
    polarity: str = "+"
    hedged: bool = False
    optional: bool = False
    alt: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text, *self.alt)


class Matcher:
    """Compares facts; `known` are the facts whose things count as things."""

    def __init__(self, known: Iterable[GoldFact], embedder: SentenceEmbedder) -> None:
        self._embedder = embedder
        said = (
            wording(text)
            for fact in known
            if fact.category == "entity" or (is_existence(fact.text) and fact.polarity == "-")
            for text in fact.texts
        )
        self._things = {one.about[0] for one in said if one.form == "exists"} - NO_THINGS

    def pairs(self, texts: Sequence[str], facts: Sequence[GoldFact]) -> dict[int, int]:
        """Indices of texts with those of their facts, of the greatest total; required facts come first."""
        from scipy.optimize import linear_sum_assignment

        if not texts or not facts:
            return {}
        qualities = qualities_of(facts)
        scores = np.array(
            [
                [
                    (same + 0.1 * (not fact.optional)) if (same := self.same(text, fact, qualities)) else 0.0
                    for fact in facts
                ]
                for text in texts
            ]
        )
        return {
            int(row): int(column)
            for row, column in zip(*linear_sum_assignment(-scores), strict=True)
            if scores[row, column] > 0
        }

    def same(self, text: str, fact: GoldFact, qualities: Mapping[str, frozenset[str]]) -> float:
        """2 for an equal wording, a cosine for a close one, 0 for another fact."""
        if fact.category == "entity" and not is_existence(text):
            return 0.0
        texts = dict.fromkeys((*fact.texts, *(self._plain(one, qualities) for one in fact.texts)))
        plain = self._plain(text, qualities)
        if any(wording(one) in (wording(text), wording(plain)) for one in texts):
            return 2.0
        denied, best = denies(plain), 0.0
        for one in texts:
            other = fact.polarity == "-" if one == fact.text else denies(one)
            if denied == other or denied is None or other is None:
                best = max(best, self._close(plain, one, qualities))
        return best

    def inverted(self, text: str, facts: Sequence[GoldFact]) -> bool:
        """Whether a text says of one of the facts the contrary."""
        own = wording(text)
        if denies(text) is None:
            return False
        for fact in facts:
            for one in fact.texts:
                other = wording(one)
                if other[:3] == own[:3] and other.denied != own.denied and denies(one) is not None:
                    return True
                if fact.polarity == "-" and denies(one) and denies(text) is False and other.form == own.form:
                    affirmed = re.sub(r"\b(?:no|not|any)\b ?", "", one)
                    if self._close(text, affirmed, {}):
                        return True
        return False

    def _plain(self, text: str, qualities: Mapping[str, frozenset[str]]) -> str:
        """ "The ginger cat is on …" is "The cat is on …" where the answer says that the cat is ginger."""
        if is_existence(text):
            return text
        spelt = text.rstrip(".").split()
        return " ".join(word for at, word in enumerate(spelt) if not _is_known(spelt, at, qualities)) + "."

    def _close(self, text: str, gold: str, qualities: Mapping[str, frozenset[str]]) -> float:
        own, other = wording(text), wording(gold)
        things = self._nouns(text)
        if own.denied != other.denied or not things or things != self._nouns(gold):
            return 0.0
        if (own.form == "exists") != (other.form == "exists") or _set_apart(text, gold, own.form == "exists"):
            return 0.0
        if own.form == "exists":
            mine, theirs = frozenset(own.rest), frozenset(other.rest)
            if own.about != other.about or (not theirs and not is_existence(text)):
                return 0.0
            if bool(mine) != bool(theirs):
                if theirs or mine & qualities.get(other.about[0], frozenset()):
                    return 0.0
            elif mine and not mine & theirs and self._cosine(mine, theirs) < _QUALITIES_ALIKE:
                return 0.0
        elif not self._same_words(text, gold, things):
            return 0.0
        cosine = self._cosine([text], [gold])
        return cosine if cosine >= CLOSE else 0.0

    def _same_words(self, text: str, gold: str, things: Sequence[str]) -> bool:
        """Who does it to whom, and a word in common, or words alike, beside the things."""
        left_out = ARTICLES | BE | FILLERS | NEUTRAL
        mine, theirs = ([stem(word) for word in words(one) if word not in left_out] for one in (text, gold))
        shared = set(mine) & set(theirs)
        if [w for w in dict.fromkeys(mine) if w in shared] != [
            w for w in dict.fromkeys(theirs) if w in shared
        ]:
            return False
        rest, other = (
            {stem(word) for word in words(one) if word not in left_out and word not in PLACES} - set(things)
            for one in (text, gold)
        )
        return (
            rest == other
            or bool(rest & other)
            or self._cosine(rest or {"be"}, other or {"be"}) >= _WORDS_ALIKE
        )

    def _nouns(self, text: str) -> list[str]:
        stems = [stem(word) for word in words(text) if word not in ARTICLES]
        heads = [word in self._things for word in stems]
        return [word for at, word in enumerate(stems) if heads[at] and not any(heads[at + 1 : at + 2])]

    def _cosine(self, mine: Iterable[str], theirs: Iterable[str]) -> float:
        first, second = self._embedder.encode([" ".join(sorted(mine)), " ".join(sorted(theirs))])
        return float(first @ second)


def qualities_of(facts: Sequence[GoldFact]) -> dict[str, frozenset[str]]:
    """What the facts say of each thing."""
    qualities: dict[str, frozenset[str]] = defaultdict(frozenset)
    for fact in facts:
        for text in fact.texts:
            said = wording(text)
            if said.form == "exists":
                named = frozenset(word for word in said.rest if not any(map(str.isdigit, word)))
                qualities[said.about[0]] |= named
    return qualities


def _is_known(spelt: Sequence[str], at: int, qualities: Mapping[str, frozenset[str]]) -> bool:
    following = [stem(word.lower()) for word in spelt[at + 1 : at + 4]]
    head = next((word for word in following if word in qualities), None)
    if head is None:
        return False
    gap = following[: following.index(head)]
    between = {word.lower() for word in spelt[at : at + 1 + len(gap)]}
    if between & (BE | PLACES.keys() | {"has", "have"}):
        return False
    return {stem(spelt[at].lower()), *gap} <= qualities[head]


def _set_apart(text: str, gold: str, exists: bool) -> bool:
    mine, theirs = words(text), words(gold)
    if _numbers(mine) != _numbers(theirs):
        return True
    colors, others = _colors(mine), _colors(theirs)
    if colors != others and (exists or (colors and others)):
        return True
    if {PLACES[word] for word in mine if word in PLACES} != {
        PLACES[word] for word in theirs if word in PLACES
    }:
        return True
    return any(
        opposites & set(mine) and opposites & set(theirs) and opposites & set(mine) != opposites & set(theirs)
        for opposites in OPPOSITES
    )


def _numbers(spelt: Sequence[str]) -> set[str]:
    return {NUMBERS.get(word, word) for word in spelt if word in NUMBERS or any(map(str.isdigit, word))}


def _colors(spelt: Sequence[str]) -> set[str]:
    return {part for word in spelt for part in word.split("-")} & COLORS


def is_forbidden(text: str, forbidden: Sequence[str]) -> bool:
    """Whether a gold set says that this must not be read: by a pattern, to the letter, or by wording."""
    for one in forbidden:
        if one.startswith("re:"):
            if re.search(one[3:], text.lower()):
                return True
        elif set(words(one)) & (DENIALS | NUMBERS.keys()) or re.search(r"\d|dozen|no one", one):
            if _letters(one) == _letters(text):
                return True
        elif wording(one) == wording(text):
            return True
    return False


def _letters(text: str) -> list[str]:
    return re.findall(r"[\w:.$%]+", text.lower().rstrip("."))
