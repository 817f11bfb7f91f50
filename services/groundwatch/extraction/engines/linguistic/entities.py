"""The entities that an answer names, each stated once with its number, colours and other attributes."""

from collections.abc import Callable, Sequence

import msgspec

from groundwatch.extraction.engines.linguistic import rendering as r
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.phrases import Noun, is_person
from groundwatch.extraction.engines.linguistic.rendering import AtomicFact

_SINGULAR_PEOPLE = frozenset({"he", "him", "she", "her"})
_PARTS = frozenset({"one", "another", "other", "others", "some", "each", "many", "most", "both"})
_PLURALS = frozenset({"they", "them"})
_ONE_OF = {"glasses": "glass", "stairs": "stair", "steps": "step"}
"""Of what otherwise has no singular."""


_SOMEBODY = frozenset({"he", "she", "him", "someone", "somebody"})
"""Pronouns that name a person even when no person was named before."""


class Memory:
    """The entities named so far, the latest last."""

    def __init__(self) -> None:
        self._things: list[Noun] = []
        self._topics: list[Noun] = []

    def remember(self, noun: Noun) -> None:
        if _can_be_meant(noun):
            self._things = [*self._things[-40:], noun]

    def talk_about(self, nouns: list[Noun]) -> None:
        known = [noun for noun in nouns if _can_be_meant(noun)]
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
                or self._latest(lambda t: t.plural and t.head not in names and not t.is_owned)
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
            self.remember(Noun(determiner="the", nouns=["people"], plural=True))

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


def _can_be_meant(noun: Noun) -> bool:
    return bool(noun.nouns) and noun.lemma not in w.SPOTS | w.PICTURES and not w.abstract(noun.lemma)


class Entities:
    """Collects facts, and states an entity when it is named."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.facts: list[AtomicFact] = []

    def say(self, fact: AtomicFact, *, known: bool = False) -> None:
        self.facts.append(msgspec.structs.replace(fact, known=True) if known else fact)

    def introduce(
        self, nouns: list[Noun], *, governed: bool = False, besides: Sequence[Noun] = ()
    ) -> list[Noun]:
        """State the entities of these phrases with their attributes; gives them with pronouns resolved."""
        found = []
        shared = nouns[0].possessor if nouns else None
        for noun in nouns:
            if shared is not None and noun.possessor is None and not noun.determiner and noun.nouns:
                noun.possessor = shared
            if not noun.determiner and not noun.plural and nouns[0].determiner in {"a", "an"}:
                noun.determiner = "a"
            if noun.pronoun and noun.of is not None and noun.of.nouns and noun.of.core.is_thing:
                self.introduce([noun.of])
                found.append(self.memory.part(noun, noun.of.core))
                continue
            resolved = self.memory.resolve(noun, besides)
            if resolved is noun and noun.pronoun in _SOMEBODY:
                resolved = Noun(determiner="the", nouns=["person"])
                self.memory.remember(resolved)
                self._state(resolved)
            if resolved is not noun:
                found.append(resolved)
                continue
            thing = noun.core
            if governed and noun.lemma in w.SPOTS and not noun.is_thing:
                if noun.of is not None:
                    self.introduce([noun.of])
                found.append(noun)
                continue
            if thing.pronoun and thing.pronoun != "each other":
                thing = self.memory.resolve(thing)
                if thing.pronoun:
                    continue
            found.append(thing)
            if noun.lemma == "scene" and len(noun.nouns) > 1:
                self._scene(noun)
            known = thing.other and not thing.plural and thing.determiner == "the"
            if thing.is_thing and not known and not (governed and thing.is_bare):
                self.memory.remember(thing)
                self._state(thing)
        self.memory.group(found)
        return found

    def _scene(self, noun: Noun) -> None:
        """ "a busy street scene": there is a street, and the scene is busy."""
        self.introduce([Noun(determiner="the" if noun.is_known else "a", nouns=noun.nouns[:-1])])
        for word in noun.adjectives:
            if word not in w.EMPTY_ADJECTIVES:
                self.say(r.attribute(noun, [word]), known=noun.is_known)

    def _state(self, thing: Noun) -> None:
        owner = None
        if thing.possessor is not None and thing.possessor.nouns:
            owner = thing.possessor
            if is_person([owner]):
                (owner,) = self.introduce([owner]) or (None,)
        known = thing.is_known
        self.say(r.there_are_so_many(thing) if thing.counted else r.there_is(thing), known=known)
        if owner is not None and owner.is_thing:
            self.say(r.owns(owner, thing), known=known)
        if thing.of is not None and thing.of.nouns:
            if thing.lemma in {"pair", "piece", "slice"}:
                self._describe(thing.of)
            elif thing.lemma != "body":
                self.introduce([thing.of])
        if thing.lemma not in w.AREAS:
            self._describe(thing)

    def _describe(self, thing: Noun) -> None:
        adjectives = [word for word in thing.adjectives if word not in w.EMPTY_ADJECTIVES | w.POSITIONAL]
        colors = [word for word in adjectives if word in w.COLORS]
        for word in adjectives:
            if word not in w.COLORS:
                self.say(r.attribute(thing, [word]), known=thing.is_known)
        if colors:
            self.say(r.attribute(thing, colors), known=thing.is_known)
