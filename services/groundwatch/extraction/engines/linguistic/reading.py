"""Where a reader of clauses stands: what was just read, what the clause is about, and what is said of it."""

from collections.abc import Sequence

from groundwatch.extraction.engines.linguistic import rendering as r
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.entities import Entities
from groundwatch.extraction.engines.linguistic.lookahead import read_governed
from groundwatch.extraction.engines.linguistic.phrases import (
    Noun,
    Verb,
    read_nouns,
    says_something,
    starts_clause,
)
from groundwatch.extraction.engines.linguistic.tagging import Token


class Reading:
    """The state of reading one answer.

    `_subjects` are what the clause is about, `_last` the phrase that was just read (a participle or a
    "with" after it belongs to it), `_governed` whether that phrase was governed by a preposition.
    `_waiting` says that the subject has not met its verb yet, `_verb` is the verb whose object was read
    last, `_host` what was located by the phrase before, near it if `_host_near`. `_place` is where the
    sentence says that things are before it names them, `_exists` that it lists them after "there is".
    """

    def __init__(self) -> None:
        self._entities = Entities()
        self._tokens: Sequence[Token] = ()
        self._at = 0
        self._subjects: list[Noun] = []
        self._last: list[Noun] = []
        self._governed = False
        self._trail: list[Noun] = []
        self._place: tuple[str, Noun] | None = None
        self._exists = False
        self._focus: Noun | None = None
        self._begins = False
        self._waiting = False
        self._host: list[Noun] = []
        self._host_near = False
        self._verb = ""

    def _read_governed(self) -> tuple[list[Noun], list[Noun]]:
        """The noun phrases after a preposition, and those among them that belong to the clause's subject."""
        nouns, joined, self._at = read_governed(
            self._tokens, self._at, self._subjects if self._waiting else ()
        )
        return nouns, joined

    def _peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _follow(self, nouns: list[Noun], *, governed: bool = False) -> None:
        if nouns:
            self._last, self._governed = nouns, governed
            if not governed:
                self._host, self._verb = [], ""
            self._trail = [*self._trail[-8:], *nouns]

    def _skip_object(self) -> None:
        """What follows "to smile at a dog" or "without" is not there for sure: it is not stated."""
        self._last, self._at = read_nouns(self._tokens, self._at)

    def _compare(self, things: list[Noun], comparison: str) -> None:
        """ "larger than the ball": what is larger than "a house" needs no house."""
        nouns, joined = self._read_governed()
        if not joined and starts_clause(self._tokens, self._at) and not self._waiting:
            self._at = len(self._tokens)  # "taller than it is wide"
            return
        known = [noun for noun in nouns if noun.determiner not in {"a", "an"} or noun.pronoun]
        self._entities.introduce(known, governed=True, besides=things)
        targets = [self._entities.memory.resolve(noun, things) for noun in nouns]
        for thing in things:
            for target in targets:
                if thing.is_thing and target.is_thing:
                    self._entities.say(r.relation(thing, f"{r.be(thing)} {comparison}", target))
        self._follow(targets, governed=True)
        self._subjects = [*self._subjects, *self._entities.introduce(joined)]

    def _locate(self, things: list[Noun], preposition: str, target: Noun) -> None:
        if target.is_picture or w.abstract(target.lemma) or target.is_bare:
            return
        for thing in things:
            if target.is_frameless_side and not _may_be_aside(thing, target):
                continue
            if thing.is_thing:
                self._entities.say(r.relation(thing, f"{r.be(thing)} {preposition}", target))

    def _own(self, owners: list[Noun], things: list[Noun]) -> None:
        for owner in owners:
            for thing in things:
                if thing.lemma == owner.lemma:
                    continue
                if thing.determiner in w.POSSESSIVES and owner.possessor is not None:
                    owner = owner.possessor
                if owner.is_thing and (thing.is_thing or thing.lemma in w.QUALITIES):
                    self._entities.say(r.owns(owner, thing))

    def _relate(self, subjects: list[Noun], verb: Verb, objects: list[Noun], preposition: str = "") -> None:
        link = f" {preposition}" if preposition else ""
        for subject in subjects:
            if subject.is_picture or not says_something(subject, verb):
                continue
            for target in objects:
                if (w.abstract(target.lemma) and not preposition) or target.lemma in w.MANNERS:
                    continue
                if target.determiner in {"no", "any"} and not verb.negated:
                    continue
                if verb.lemma == "include" and target.lemma == subject.lemma:
                    continue
                self._entities.say(r.relation(subject, r.phrase(verb, subject) + link, target))


def _may_be_aside(thing: Noun, side: Noun) -> bool:
    """ "The ball is on the left" can be checked; "on the side" cannot, nor what "another" is left of."""
    return side.lemma != "side" and not thing.other and thing.determiner not in w.STAND_INS
