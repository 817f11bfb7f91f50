"""What a verb says of its subjects, and where a reader of clauses stands."""

from collections.abc import Sequence

from groundwatch.extraction.engines.linguistic import rendering as r
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.entities import Entities
from groundwatch.extraction.engines.linguistic.phrases import (
    LISTING,
    Noun,
    Verb,
    follows,
    is_person,
    read_governed,
    read_nouns,
    read_verb,
    says_something,
    starts_clause,
)
from groundwatch.extraction.engines.linguistic.tagging import ADJECTIVES, END, Token, look

_AS_IF = frozenset({"like", "as"})
_NOTICED = frozenset({"seen", "pictured", "found", "spotted", "noticed", "observed"})


class Predicates:
    """Reads from a verb to the end of its predicate, in the state of reading one answer.

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
        subjects = self._subjects if self._waiting else ()
        nouns, joined, self._at = read_governed(self._tokens, self._at, subjects)
        return nouns, joined

    def _peek(self, ahead: int = 0) -> Token:
        return look(self._tokens, self._at + ahead)

    def _nouns(self) -> list[Noun]:
        nouns, self._at = read_nouns(self._tokens, self._at)
        return nouns

    def _introduce(self, nouns: list[Noun]) -> list[Noun]:
        """State what the clause is about from here on, so that what follows may mean it."""
        found = self._entities.introduce(nouns)
        self._follow(found)
        self._entities.memory.talk_about(found)
        return found

    def _follow(self, nouns: list[Noun], *, governed: bool = False) -> None:
        if nouns:
            self._last, self._governed = nouns, governed
            if not governed:
                self._host, self._verb = [], ""
            self._trail = [*self._trail[-8:], *nouns]

    def _skip_object(self) -> None:
        """What follows "to smile at a dog" or "without" is not there for sure: it is not stated."""
        self._last = self._nouns()

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
            if thing.is_thing and (not target.is_frameless_side or _may_be_aside(thing, target)):
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
                unseen = (w.abstract(target.lemma) and not preposition) or target.lemma in w.MANNERS
                absent = target.determiner in {"no", "any"} and not verb.negated
                itself = verb.lemma == "include" and target.lemma == subject.lemma
                if not (unseen or absent or itself):
                    self._entities.say(r.relation(subject, r.phrase(verb, subject) + link, target))

    def _predicate(self, subjects: list[Noun], verb: Verb) -> None:
        subjects = subjects or self._entities.memory.anyone()
        self._waiting = self._waiting and verb.bare and verb.shape in {"ing", "en"}
        if verb.lemma in w.RESEMBLING and self._peek().lower in _AS_IF:
            self._at = len(self._tokens)
            return
        frame = any(subject.is_picture or subject.lemma in w.FOCUSES for subject in subjects)
        if frame and verb.shape != "en" and not self._focus:
            found = self._introduce(self._nouns())
            self._subjects = found or self._subjects
            if self._place is not None:
                self._locate(found, *self._place)
            return
        if self._focus and verb.lemma in {"be", "include", "consist"}:
            self._focused(self._focus)
            return
        if verb.word in _NOTICED or (
            verb.shape == "en" and verb.lemma in w.SHOWING and follows(self._tokens, self._at + 1, w.PICTURES)
        ):
            self._last = subjects
            return
        if verb.lemma in w.INTERPRETING and verb.shape != "en":
            self._at = len(self._tokens)
            return
        if verb.shape == "be":
            self._copula(subjects, verb)
            return
        if verb.negated:
            self._denied(subjects, verb)
            return
        if verb.lemma in w.STATES and verb.shape in {"ing", "finite"}:
            verb = Verb("finite", "have" if verb.lemma == "feature" else verb.lemma)
        if nouns := self._nouns():
            objects = self._entities.introduce(nouns)
            if verb.shape != "en":
                self._relate(subjects, verb, objects)
            self._follow(objects)
            self._verb = verb.lemma
            if verb.lemma in w.HOLDING and not is_person(subjects):
                self._subjects = objects
            return
        if not self._governs(subjects, verb):
            self._bare_predicate(subjects, verb)

    def _denied(self, subjects: list[Noun], verb: Verb) -> None:
        """ "is not wearing a hat" states no hat."""
        nouns = self._nouns()
        self._relate(subjects, verb, nouns)
        if not nouns:
            self._at = len(self._tokens)
        self._last = []

    def _governs(self, subjects: list[Noun], verb: Verb) -> bool:
        """Read "on a bench" after a verb, or pass over the "to smile" that follows one."""
        if self._peek().tag == "RB" and self._peek(1).tag == "IN":
            self._at += 1
        token = self._peek()
        if token.tag not in {"IN", "TO"} or token.lower in LISTING | {"as"}:
            return False
        targets, end = read_nouns(self._tokens, self._at + 1)
        if not targets:
            infinitive, end = read_verb(self._tokens, self._at + 1)
            if token.lower == "to" and infinitive is not None:
                self._at = end
                self._skip_object()
                return True
            return False
        self._at = end
        found = self._entities.introduce(targets, governed=True, besides=subjects)
        self._relate(subjects, verb, found, token.lower)
        self._follow([target for target in found if target.is_thing], governed=True)
        self._host, self._host_near = subjects, token.lower in w.CLOSE
        return True

    def _bare_predicate(self, subjects: list[Noun], verb: Verb) -> None:
        token, adverb = self._peek(), ""
        if token.tag == "RB":
            adverb = f" {token.lower}"
            self._at += 1
        for subject in subjects:
            if not subject.is_picture:
                self._entities.say(r.relation(subject, r.phrase(verb, subject) + adverb, None, r.OTHER))
        self._last = []

    def _focused(self, head: Noun) -> None:
        """ "The main object in the image is a clock"."""
        self._subjects = self._introduce(self._nouns())
        for noun in self._subjects:
            if noun.is_thing:
                self._entities.say(r.focus(noun, head))
        self._focus = None

    def _copula(self, subjects: list[Noun], verb: Verb) -> None:
        while self._peek().lower in {"both", "all"}:
            self._at += 1
        if verb.negated or self._peek().lower in {"not", "never", "no"}:
            self._at = len(self._tokens)
            return
        if nouns := self._nouns():
            found = self._entities.introduce(nouns)
            self._identify(subjects, nouns, found)
            self._follow(found)
            return
        adjectives, ahead = [], 0
        while (token := self._peek(ahead)).tag in ADJECTIVES | {"RB", "CC"}:
            if token.tag in ADJECTIVES:
                adjectives.append(token.lower)
            elif token.tag == "CC" and not adjectives:
                break
            ahead += 1
        self._last, self._governed = subjects, False
        if not adjectives:
            token = self._peek()
            if token.tag == "RB" and self._peek(1) is END:
                for subject in subjects:
                    self._entities.say(r.relation(subject, f"{r.be(subject)} {token.lower}", None, r.OTHER))
            return
        self._at += ahead
        if not self._complement(subjects, adjectives):
            for subject in subjects:
                if not subject.is_picture:
                    self._describe(subject, adjectives)

    def _describe(self, subject: Noun, adjectives: list[str]) -> None:
        """ "red and large" are two facts, of two categories; "black and white" is one."""
        colors = [word for word in adjectives if word in w.COLORS]
        others = [word for word in adjectives if word not in w.COLORS]
        for alike in (colors, others):
            if alike:
                self._entities.say(r.attribute(subject, alike))

    def _identify(self, subjects: list[Noun], nouns: list[Noun], found: list[Noun]) -> None:
        """ "The tree is an oak", "The dog is the main focus"."""
        for subject in subjects:
            if not subject.nouns or subject.lemma in w.FOCUSES:
                continue
            for noun in nouns:
                if noun.lemma in w.FOCUSES and noun.adjectives and not noun.plural:
                    self._entities.say(r.focus(subject, noun))
            for noun in found:
                # "The room is a living room": the living room has been stated.
                again = noun.lemma == subject.lemma and len(noun.nouns) > 1
                told = noun.lemma in w.FOCUSES or again
                if noun.is_thing and not told and noun.plural == subject.plural:
                    self._entities.say(r.relation(subject, r.be(subject), noun, r.OTHER))

    def _complement(self, subjects: list[Noun], adjectives: list[str]) -> bool:
        """ "full of apples", "visible in the scene"."""
        token = self._peek()
        if token.tag != "IN" or token.lower in LISTING:
            return False
        targets, end = read_nouns(self._tokens, self._at + 1)
        if not targets:
            return False
        self._at = end
        found = self._entities.introduce(targets, governed=True)
        for subject in subjects:
            for target in found:
                if not subject.is_picture:
                    middle = f"{r.be(subject)} {' and '.join(adjectives)} {token.lower}"
                    self._entities.say(r.relation(subject, middle, target))
        self._follow([target for target in found if target.is_thing], governed=True)
        return True


def _may_be_aside(thing: Noun, side: Noun) -> bool:
    """ "The ball is on the left" can be checked; "on the side" cannot, nor what "another" is left of."""
    return side.lemma != "side" and not thing.other and thing.determiner not in w.STAND_INS
