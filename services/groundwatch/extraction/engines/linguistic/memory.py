"""What an answer has spoken of: the antecedents of its pronouns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.phrases import Noun

_SINGULAR_PEOPLE = frozenset({"he", "him", "she", "her"})
_PARTS = frozenset({"one", "another", "other", "others", "some", "each", "many", "most", "both"})
_PLURALS = frozenset({"they", "them"})
_ONE_OF = {"glasses": "glass", "stairs": "stair", "steps": "step"}
"""Of what otherwise has no singular."""


class Memory:
    """The entities named so far, the latest last."""

    def __init__(self) -> None:
        self._things: list[Noun] = []
        self._topics: list[Noun] = []

    def remember(self, noun: Noun) -> None:
        """Name an entity."""
        if _is_thing(noun):
            self._things = [*self._things[-40:], noun]

    def talk_about(self, nouns: list[Noun]) -> None:
        """Make these the topic: what "it" means first."""
        known = [noun for noun in nouns if _is_thing(noun)]
        self._topics = [*self._topics[-6:], *known]

    def anyone(self) -> list[Noun]:
        """Whom a participle without a subject is about: the latest person."""
        found = self._latest(lambda thing: w.person(thing.lemma))
        return [found] if found is not None else []

    def resolve(self, noun: Noun, besides: Sequence[Noun] = ()) -> Noun:
        """The entity that a pronoun means, or the phrase itself; `besides` are not meant."""
        word = noun.pronoun
        if not word:
            return noun
        names = {other.head for other in besides}
        found = None
        if word in _SINGULAR_PEOPLE:
            barred = w.WOMEN if word.startswith("h") and word != "her" else w.MEN
            found = self._latest(
                lambda thing: not thing.plural and w.person(thing.lemma) and thing.lemma not in barred
            ) or self._latest(lambda thing: not thing.plural and thing.lemma in w.ANIMALS)
        elif word in _PLURALS:
            found = (
                self._latest(lambda t: t.plural and w.person(t.lemma) and t.head not in names)
                or self._latest(lambda t: t.plural and t.head not in names and not _owned(t))
                or self._latest(lambda t: w.person(t.lemma) and t.head not in names)
            )
        elif word == "it":
            found = self._latest(
                lambda thing: not thing.plural and not w.person(thing.lemma) and thing.head not in names
            )
        elif word in _PARTS or word in w.NUMBERS:
            return self.part(noun)
        if found is None:
            return noun
        return msgspec.structs.replace(found, determiner="the", number="", other=False, possessor=None)

    def group(self, nouns: Sequence[Noun]) -> None:
        """ "a man and a woman" are people: who "they" are afterwards."""
        if len(nouns) > 1 and all(w.person(noun.lemma) for noun in nouns):
            self.remember(Noun(determiner="the", nouns=["people"], adjectives=[], plural=True))

    def part(self, noun: Noun, whole: Noun | None = None) -> Noun:
        """ "one", "some", "the others" of a plural, or of what was last named in the plural."""
        word = noun.pronoun
        whole = whole or self._latest(lambda thing: thing.plural)
        if whole is None:
            return noun
        single = word in {"one", "another", "each"} or (word == "other" and noun.determiner == "the")
        return msgspec.structs.replace(
            whole,
            nouns=[*whole.nouns[:-1], _ONE_OF.get(whole.head, whole.lemma) if single else whole.nouns[-1]],
            plural=not single,
            determiner="the" if word in {"other", "others"} else word,
            other=word in {"other", "others"},
            number="",
            possessor=None,
        )

    def _latest(self, fits: Callable[[Noun], bool]) -> Noun | None:
        recent = (*reversed(self._topics), *reversed(self._things))
        return next((thing for thing in recent if fits(thing)), None)


def _owned(noun: Noun) -> bool:
    """ "their feet" are not what "they" are."""
    return noun.possessor is not None or noun.determiner in w.POSSESSIVES


def _is_thing(noun: Noun) -> bool:
    return bool(noun.nouns) and noun.lemma not in w.SPOTS | w.PICTURES and not w.abstract(noun.lemma)
