"""From phrases to facts: who does what to what, and where."""

from __future__ import annotations

from collections.abc import Sequence

from groundwatch.extraction.engines.linguistic import rendering as r
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.entities import Entities
from groundwatch.extraction.engines.linguistic.lookahead import (
    LISTING,
    is_subject,
    list_follows,
    picture_follows,
    spot_follows,
)
from groundwatch.extraction.engines.linguistic.phrases import Noun, Verb, read_nouns, read_verb, starts_clause
from groundwatch.extraction.engines.linguistic.rendering import Fact
from groundwatch.extraction.engines.linguistic.tagging import ADJECTIVES, Token
from groundwatch.extraction.engines.linguistic.things import is_bare, is_person, is_picture, is_thing

_EXCEPT = frozenset({"without", "instead of", "rather than", "except", "other than", "despite"})
_NOTICED = frozenset({"seen", "pictured", "found", "spotted", "noticed", "observed"})
_GUESSING = frozenset({"could", "might", "may", "would", "should", "must", "will"})


class Reader:
    """Reads the sub-sentences of one answer in order and remembers what they were about.

    `_subjects` are what the clause is about, `_last` the phrase that was just read (a participle or a
    "with" after it belongs to it), `_governed` whether that phrase was governed by a preposition.
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
        self._focus: Noun | None = None
        self._begins = False

    def read(self, tokens: Sequence[Token], *, opens_sentence: bool) -> list[Fact]:
        """The facts of the next sub-sentence, in order."""
        self._entities.facts, self._tokens, self._at = [], tokens, 0
        self._last, self._governed, self._focus, self._begins = [], False, None, False
        if opens_sentence:
            self._place = None
            self._trail = []
            if not tokens or tokens[0].tag not in {"VBG", "VBN"}:
                self._subjects = []
        while self._at < len(tokens):
            before = self._at
            self._step()
            self._at = max(self._at, before + 1)
        return self._entities.facts

    def _peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _step(self) -> None:
        token = self._tokens[self._at]
        if token.tag == "EX":
            self._existence()
        elif token.tag == "W":
            self._relative(token.lower)
        elif token.tag == "SUB":
            self._last, self._begins = [], True
        elif token.lower == "with":
            self._with()
        elif token.lower in LISTING:
            self._listing()
        elif token.lower in _EXCEPT:
            self._at += 1
            self._skip_object()
        elif token.tag in {"IN", "TO"}:
            self._preposition(token.lower)
        elif token.tag == "CC":
            if (verb := read_verb(self._tokens, self._at + 1)[0]) is not None and verb.bare:
                self._last = []
        elif token.tag == "RB" and read_verb(self._tokens, self._at)[0] is None:
            return
        else:
            self._clause_or_list(token)

    def _clause_or_list(self, token: Token) -> None:
        if token.tag not in {"DT", "PRP", "PRP$", "CD", "PRO"}:
            guess = any(
                part.lower in _GUESSING for part in self._tokens[self._at : self._at + 3] if part.tag == "MD"
            )
            verb, end = read_verb(self._tokens, self._at)
            if verb is not None:
                self._at = end
                if guess:
                    self._at = len(self._tokens)
                elif verb.shape == "to":
                    self._skip_object()
                else:
                    self._predicate(self._doers(verb), verb)
                return
        nouns, end = read_nouns(self._tokens, self._at, subject=True)
        if not nouns:
            return
        self._at = end
        if nouns[0].pronoun in w.STAND_INS | {"other"} or is_subject(self._tokens, end):
            self._subject(nouns)
            return
        found = self._entities.introduce(nouns)
        self._subjects = found if self._begins else self._subjects or found
        self._begins = False
        self._follow(found)

    def _subject(self, nouns: list[Noun]) -> None:
        self._focus = None
        (head,) = nouns[:1]
        if head.lemma in w.FOCUSES and head.adjectives and not head.plural:
            self._focus = head
            self._subjects = self._last = [head]
            return
        if head.lemma in w.FOCUSES and list_follows(self._tokens, self._at, qualified=bool(head.adjectives)):
            self._subjects, self._last = [head], []
            return
        if head.lemma in w.QUALITIES and head.of is not None and len(nouns) == 1:
            self._subjects = self._last = self._entities.introduce([head.of])
            return
        self._subjects = self._entities.introduce(nouns)
        self._follow(self._subjects)
        self._entities.memory.talk_about(self._subjects)

    def _doers(self, verb: Verb) -> list[Noun]:
        """Whose verb it is: a participle after a noun is that noun's; otherwise it is the clause's."""
        if verb.bare and verb.shape in {"ing", "en"} and self._last:
            if verb.shape == "ing" and self._governed and verb.lemma not in w.STATES:
                near, clause = is_person(self._last), is_person(self._subjects)
                if clause and not near:
                    return self._subjects
            mixed = is_person(self._last[-1:]) != is_person(self._last[:1])
            return self._last[-1:] if mixed else self._last
        return self._subjects or self._last

    def _skip_object(self) -> None:
        _, self._at = read_nouns(self._tokens, self._at)
        self._last = []

    def _follow(self, nouns: list[Noun], *, governed: bool = False) -> None:
        if nouns:
            self._last, self._governed = nouns, governed
            self._trail = [*self._trail[-8:], *nouns]

    def _existence(self) -> None:
        self._at += 1
        _, self._at = read_verb(self._tokens, self._at)
        while (token := self._peek()) is not None and token.tag == "RB" and token.lower != "at least":
            self._at += 1
        nouns, self._at = read_nouns(self._tokens, self._at)
        found = self._entities.introduce(nouns)
        self._subjects = found
        self._follow(found)
        self._entities.memory.talk_about(found)
        if self._place is not None:
            self._locate(found, *self._place)
        self._presence(found)

    def _presence(self, things: list[Noun]) -> None:
        """ "visible in the image" is a fact of its own to the annotators."""
        state, where = self._peek(), self._peek(1)
        if state is None or where is None or state.lower not in {"visible", "present"} or where.tag != "IN":
            return
        nouns, end = read_nouns(self._tokens, self._at + 2)
        if nouns and nouns[0].lemma in w.PICTURES:
            self._at = end
            for thing in things:
                if is_thing(thing):
                    middle = f"{r.be(thing)} {state.lower} {where.lower}"
                    self._entities.say(r.relation(thing, middle, nouns[0], r.OTHER))

    def _listing(self) -> None:
        self._at += 1
        nouns, self._at = read_nouns(self._tokens, self._at)
        self._follow(self._entities.introduce(nouns))

    def _relative(self, word: str) -> None:
        self._at += 1
        if not starts_clause(self._tokens, self._at):
            return
        plural = self._tokens[self._at].lower in {"are", "were", "have"}
        singular = self._tokens[self._at].lower in {"is", "was", "has"}
        for noun in reversed(self._last or self._trail):
            if (word == "who" and not w.person(noun.lemma)) or (plural and not noun.plural):
                continue
            if singular and noun.plural:
                continue
            self._subjects = [noun]
            return
        self._subjects = self._last or self._subjects

    def _with(self) -> None:
        """ "with a hat" is had; "with a dog lying nearby" is a clause of its own."""
        self._at += 1
        nouns, self._at = read_nouns(self._tokens, self._at)
        owners = self._owners(nouns)
        if not nouns:
            return
        found = self._entities.introduce(nouns)
        follower = self._peek()
        clause = follower is not None and (
            follower.tag in {"VBG", "VBN", "RB", "JJ"}
            or (follower.tag == "IN" and follower.lower in w.PLACES)
        )
        if clause and follower is not None and self._owners_act(owners, found, follower):
            self._own(owners, found)
            self._last = owners
            return
        near = follower is not None and follower.tag == "IN" and not nouns[0].pronoun
        if not clause or (near and not spot_follows(self._tokens, self._at + 1)):
            self._own(owners, found)
        if clause:
            self._subjects = found
        self._follow(found)

    def _owners(self, things: list[Noun]) -> list[Noun]:
        """Who has what "with" names: the person, where there is one, else the phrase just before."""
        near = self._last or self._subjects
        theirs = self._governed or (bool(things) and things[0].determiner in {"his", "her"})
        if theirs and not is_person(near) and is_person(self._subjects):
            return self._subjects
        return near

    def _owners_act(self, owners: list[Noun], nouns: list[Noun], follower: Token) -> bool:
        """ "a man with long hair wearing a tie": hair wears nothing."""
        return w.verb(follower.lower) in w.DONE_BY_PEOPLE and is_person(owners) and not is_person(nouns)

    def _own(self, owners: list[Noun], things: list[Noun]) -> None:
        for owner in owners:
            for thing in things:
                if thing.determiner in w.POSSESSIVES and owner.possessor is not None:
                    owner = owner.possessor
                if is_thing(owner) and (is_thing(thing) or thing.lemma in w.QUALITIES):
                    self._entities.say(r.owns(owner, thing))

    def _preposition(self, preposition: str) -> None:
        self._at += 1
        following = self._peek()
        if following is not None and following.tag in {"VBG", "VB"}:
            self._last = []
            return
        nouns, self._at = read_nouns(self._tokens, self._at)
        if not nouns:
            return
        holders = self._last or self._subjects
        targets = self._entities.introduce(nouns, governed=True, besides=holders)
        listed = (
            bool(holders) and holders[0].lemma in w.FOCUSES and holders == self._subjects and not self._last
        )
        if not holders or listed:
            if targets and is_thing(targets[0]) and preposition in w.PLACES:
                self._place = (preposition, targets[0])
            return
        if preposition in w.PLACES and not self._focus:
            self._locate(holders, preposition, targets[0] if targets else nouns[0])
        self._follow([target for target in targets if is_thing(target)], governed=True)

    def _locate(self, things: list[Noun], preposition: str, target: Noun) -> None:
        if is_picture(target) or w.abstract(target.lemma) or is_bare(target):
            return
        for thing in things:
            if is_thing(thing):
                self._entities.say(r.relation(thing, f"{r.be(thing)} {preposition}", target))

    def _predicate(self, subjects: list[Noun], verb: Verb) -> None:
        subjects = subjects or self._entities.memory.anyone()
        frame = any(is_picture(subject) or subject.lemma in w.FOCUSES for subject in subjects)
        if frame and verb.shape != "en" and not self._focus:
            nouns, self._at = read_nouns(self._tokens, self._at)
            found = self._entities.introduce(nouns)
            self._subjects = found or self._subjects
            self._follow(found)
            self._entities.memory.talk_about(found)
            if self._place is not None:
                self._locate(found, *self._place)
            return
        if self._focus and verb.lemma in {"be", "include", "consist"}:
            self._focused()
            return
        if verb.word in _NOTICED or (
            verb.shape == "en" and verb.lemma in w.SHOWING and picture_follows(self._tokens, self._at + 1)
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
        nouns, self._at = read_nouns(self._tokens, self._at)
        if nouns:
            objects = self._entities.introduce(nouns)
            if verb.shape != "en":
                self._relate(subjects, verb, objects)
            self._follow(objects)
            return
        if not self._governs(subjects, verb):
            self._bare_predicate(subjects, verb)

    def _denied(self, subjects: list[Noun], verb: Verb) -> None:
        """ "is not wearing a hat" states no hat."""
        nouns, self._at = read_nouns(self._tokens, self._at)
        self._relate(subjects, verb, nouns)
        if not nouns:
            self._at = len(self._tokens)
        self._last = []

    def _governs(self, subjects: list[Noun], verb: Verb) -> bool:
        """Read "on a bench" after a verb, or pass over the "to smile" that follows one."""
        token, following = self._peek(), self._peek(1)
        if token is not None and token.tag == "RB" and following is not None and following.tag == "IN":
            self._at += 1
            token = following
        if token is None or token.tag not in {"IN", "TO"} or token.lower in LISTING | {"as"}:
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
        found = self._entities.introduce(targets, governed=True)
        self._relate(subjects, verb, found, token.lower)
        self._follow([target for target in found if is_thing(target)], governed=True)
        return True

    def _bare_predicate(self, subjects: list[Noun], verb: Verb) -> None:
        token, adverb = self._peek(), ""
        if token is not None and token.tag == "RB":
            adverb = f" {token.lower}"
            self._at += 1
        for subject in subjects:
            if not is_picture(subject):
                self._entities.say(r.relation(subject, r.phrase(verb, subject) + adverb, None, r.OTHER))
        self._last = []

    def _relate(self, subjects: list[Noun], verb: Verb, objects: list[Noun], preposition: str = "") -> None:
        link = f" {preposition}" if preposition else ""
        for subject in subjects:
            if is_picture(subject):
                continue
            for target in objects:
                if target.determiner in {"no", "any"} and not verb.negated:
                    continue
                if verb.lemma == "include" and target.lemma == subject.lemma:
                    continue
                self._entities.say(r.relation(subject, r.phrase(verb, subject) + link, target))

    def _focused(self) -> None:
        """ "The main object in the image is a clock"."""
        head = self._focus
        if head is None:
            return
        nouns, self._at = read_nouns(self._tokens, self._at)
        found = self._entities.introduce(nouns)
        for noun in found:
            if is_thing(noun):
                self._entities.say(r.focus(noun, head))
        self._subjects, self._focus = found, None
        self._follow(found)
        self._entities.memory.talk_about(found)

    def _copula(self, subjects: list[Noun], verb: Verb) -> None:
        while (token := self._peek()) is not None and token.lower in {"both", "all"}:
            self._at += 1
        if verb.negated or (token is not None and token.lower in {"not", "never", "no"}):
            self._at = len(self._tokens)
            return
        nouns, end = read_nouns(self._tokens, self._at)
        if nouns:
            self._at = end
            found = self._entities.introduce(nouns)
            self._identify(subjects, nouns, found)
            self._follow(found)
            return
        adjectives, at = [], self._at
        while at < len(self._tokens) and self._tokens[at].tag in ADJECTIVES | {"RB", "CC"}:
            if self._tokens[at].tag in ADJECTIVES:
                adjectives.append(self._tokens[at].lower)
            elif self._tokens[at].tag == "CC" and not adjectives:
                break
            at += 1
        self._last, self._governed = subjects, False
        if not adjectives:
            token = self._peek()
            if token is not None and token.tag == "RB" and self._peek(1) is None:
                for subject in subjects:
                    self._entities.say(r.relation(subject, f"{r.be(subject)} {token.lower}", None, r.OTHER))
            return
        self._at = at
        if not self._complement(subjects, adjectives):
            for subject in subjects:
                if not is_picture(subject):
                    self._entities.say(r.attribute(subject, adjectives))

    def _identify(self, subjects: list[Noun], nouns: list[Noun], found: list[Noun]) -> None:
        """ "The tree is an oak", "The dog is the main focus"."""
        for subject in subjects:
            if not subject.nouns or subject.lemma in w.FOCUSES:
                continue
            for noun in nouns:
                if noun.lemma in w.FOCUSES and noun.adjectives and not noun.plural:
                    self._entities.say(r.focus(subject, noun))
            for noun in found:
                if is_thing(noun) and noun.lemma not in w.FOCUSES and noun.plural == subject.plural:
                    self._entities.say(r.relation(subject, r.be(subject), noun, r.OTHER))

    def _complement(self, subjects: list[Noun], adjectives: list[str]) -> bool:
        """ "full of apples", "visible in the scene"."""
        token = self._peek()
        if token is None or token.tag != "IN" or token.lower in LISTING:
            return False
        targets, end = read_nouns(self._tokens, self._at + 1)
        if not targets:
            return False
        self._at = end
        found = self._entities.introduce(targets, governed=True)
        for subject in subjects:
            for target in found:
                if not is_picture(subject):
                    middle = f"{r.be(subject)} {' and '.join(adjectives)} {token.lower}"
                    self._entities.say(r.relation(subject, middle, target))
        self._follow([target for target in found if is_thing(target)], governed=True)
        return True
