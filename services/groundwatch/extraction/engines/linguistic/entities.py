"""The entities that an answer names, each stated once with its number, colours and other attributes."""

from __future__ import annotations

from collections.abc import Sequence

from groundwatch.extraction.engines.linguistic import rendering as r
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.memory import Memory
from groundwatch.extraction.engines.linguistic.phrases import Noun
from groundwatch.extraction.engines.linguistic.rendering import Fact
from groundwatch.extraction.engines.linguistic.things import core, counted, is_bare, is_person, is_thing

_SOMEBODY = frozenset({"he", "she", "him", "someone", "somebody"})
"""Pronouns that name a person even when no person was named before."""


class Entities:
    """Collects facts, and states an entity when it is named."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.facts: list[Fact] = []

    def say(self, fact: Fact) -> None:
        """State one fact."""
        self.facts.append(fact)

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
            if noun.pronoun and noun.of is not None and noun.of.nouns and is_thing(core(noun.of)):
                self.introduce([noun.of])
                found.append(self.memory.part(noun, core(noun.of)))
                continue
            resolved = self.memory.resolve(noun, besides)
            if resolved is noun and noun.pronoun in _SOMEBODY:
                resolved = Noun(determiner="the", nouns=["person"], adjectives=[])
                self.memory.remember(resolved)
                self._state(resolved)
            if resolved is not noun:
                found.append(resolved)
                continue
            thing = core(noun)
            if governed and noun.lemma in w.SPOTS and not is_thing(noun):
                if noun.of is not None:
                    self.introduce([noun.of])
                found.append(noun)
                continue
            if thing.pronoun == "each other":
                found.append(thing)
                continue
            if thing.pronoun:
                thing = self.memory.resolve(thing)
                if thing.pronoun:
                    continue
            found.append(thing)
            if noun.lemma == "scene" and len(noun.nouns) > 1:
                self._scene(noun)
            if not is_thing(thing):
                continue
            if thing.other and not thing.plural and thing.determiner == "the":
                continue
            if governed and is_bare(thing):
                continue
            self.memory.remember(thing)
            self._state(thing)
        self.memory.group(found)
        return found

    def _scene(self, noun: Noun) -> None:
        """ "a busy street scene": there is a street, and the scene is busy."""
        self.introduce([Noun(determiner="a", nouns=noun.nouns[:-1], adjectives=[])])
        for word in noun.adjectives:
            if word not in w.EMPTY_ADJECTIVES:
                self.say(r.attribute(noun, [word]))

    def _state(self, thing: Noun) -> None:
        owner = None
        if thing.possessor is not None and thing.possessor.nouns:
            owner = thing.possessor
            if is_person([owner]):
                (owner,) = self.introduce([owner]) or (None,)
        self.say(r.there_are_so_many(thing) if counted(thing) else r.there_is(thing))
        if owner is not None and is_thing(owner):
            self.say(r.owns(owner, thing))
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
                self.say(r.attribute(thing, [word]))
        if colors:
            self.say(r.attribute(thing, colors))
