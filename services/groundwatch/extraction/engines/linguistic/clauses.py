"""From phrases to facts: who does what to what, and where."""

from __future__ import annotations

from collections.abc import Sequence

from groundwatch.extraction.engines.linguistic import rendering as r
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.memory import Memory
from groundwatch.extraction.engines.linguistic.phrases import Noun, Verb, read_nouns, read_verb, starts_clause
from groundwatch.extraction.engines.linguistic.rendering import Fact
from groundwatch.extraction.engines.linguistic.tagging import ADJECTIVES, FINITE, Token

_LISTING = frozenset({"including", "such as", "like", "in addition to", "along with", "together with"})
_GUESSING = frozenset({"could", "might", "may", "would", "should", "must", "will"})


class Reader:
    """Reads the sub-sentences of one answer in order and remembers what they were about.

    `_subjects` are what the clause is about, `_last` the phrase that was just read (a participle or a
    "with" after it belongs to it), `_object` whether that phrase was governed by a preposition, `_frame`
    the verb whose list of objects may go on in the next sub-sentence.
    """

    def __init__(self) -> None:
        self._memory = Memory()
        self._facts: list[Fact] = []
        self._tokens: Sequence[Token] = ()
        self._at = 0
        self._subjects: list[Noun] = []
        self._last: list[Noun] = []
        self._governed = False
        self._trail: list[Noun] = []
        self._frame: tuple[list[Noun], Verb, str] | None = None
        self._place: tuple[str, Noun] | None = None
        self._focus = ""

    def read(self, tokens: Sequence[Token], *, opens_sentence: bool) -> list[Fact]:
        """The facts of the next sub-sentence, in order."""
        self._facts, self._tokens, self._at = [], tokens, 0
        self._last, self._governed, self._focus = [], False, ""
        if opens_sentence:
            self._frame = self._place = None
            self._trail = []
            if not tokens or tokens[0].tag not in {"VBG", "VBN"}:
                self._subjects = []
        while self._at < len(tokens):
            before = self._at
            self._step()
            self._at = max(self._at, before + 1)
        return self._facts

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
            self._frame = None
            self._last = []
        elif token.lower == "with":
            self._with()
        elif token.lower in _LISTING:
            self._listing()
        elif token.tag in {"IN", "TO"}:
            self._preposition(token.lower)
        elif token.tag in {"CC", "RB"} and not self._adverbs_lead_to_verb():
            return
        else:
            self._clause_or_list(token)

    def _adverbs_lead_to_verb(self) -> bool:
        return read_verb(self._tokens, self._at)[0] is not None

    def _clause_or_list(self, token: Token) -> None:
        if token.tag not in {"DT", "PRP", "PRP$", "CD", "PRO"}:
            guess = any(
                part.lower in _GUESSING for part in self._tokens[self._at : self._at + 3] if part.tag == "MD"
            )
            verb, end = read_verb(self._tokens, self._at)
            if verb is not None:
                self._at = end
                if guess or verb.shape == "to":
                    self._skip_object()
                else:
                    self._predicate(self._doers(verb), verb)
                return
        nouns, end = read_nouns(self._tokens, self._at)
        if not nouns:
            return
        self._at = end
        if starts_clause(self._tokens, end):
            self._subject(nouns)
            return
        frame = self._frame
        found = self._introduce(nouns)
        if frame is not None:
            self._relate(frame[0], frame[1], found, frame[2])
        else:
            self._subjects = found or self._subjects
        self._follow(found)

    def _subject(self, nouns: list[Noun]) -> None:
        self._frame = None
        self._focus = ""
        (head,) = nouns[:1]
        if head.lemma in w.FOCUSES and head.adjectives:
            self._focus = f"{' '.join(head.adjectives)} {' '.join(head.nouns)}"
            if head.of is not None and not is_picture(head.of):
                self._focus += f" of {r.mention(head.of)}"
            self._subjects = self._last = [head]
            return
        if head.lemma in w.QUALITIES and head.of is not None and len(nouns) == 1:
            self._subjects = self._last = self._introduce([head.of])
            return
        self._subjects = self._introduce(nouns)
        self._follow(self._subjects)
        self._memory.talk_about(self._subjects)

    def _doers(self, verb: Verb) -> list[Noun]:
        """Whose verb it is: a participle after a noun is that noun's; otherwise it is the clause's."""
        if verb.bare and verb.shape in {"ing", "en"} and self._last:
            return self._last
        return self._subjects or self._last

    def _skip_object(self) -> None:
        nouns, self._at = read_nouns(self._tokens, self._at)
        self._last = []
        self._frame = None
        del nouns

    def _follow(self, nouns: list[Noun], *, governed: bool = False) -> None:
        if nouns:
            self._last, self._governed = nouns, governed
            self._trail = [*self._trail[-8:], *nouns]

    def _existence(self) -> None:
        self._at += 1
        _, self._at = read_verb(self._tokens, self._at)
        nouns, self._at = read_nouns(self._tokens, self._at)
        found = self._introduce(nouns)
        self._subjects, self._frame = found, None
        self._follow(found)
        self._memory.talk_about(found)
        if self._place is not None:
            self._locate(found, *self._place)

    def _listing(self) -> None:
        self._at += 1
        nouns, self._at = read_nouns(self._tokens, self._at)
        self._follow(self._introduce(nouns))

    def _relative(self, word: str) -> None:
        self._at += 1
        self._frame = None
        if not starts_clause(self._tokens, self._at):
            return
        plural = self._tokens[self._at].lower in {"are", "were", "have"}
        singular = self._tokens[self._at].lower in {"is", "was", "has"}
        for noun in reversed(self._last or self._trail):
            if (word == "who" and noun.lemma not in w.PEOPLE) or (plural and not noun.plural):
                continue
            if singular and noun.plural:
                continue
            self._subjects = [noun]
            return
        self._subjects = self._last or self._subjects

    def _with(self) -> None:
        """ "with a hat" is had; "with a dog lying nearby" is a clause of its own."""
        self._at += 1
        owners = self._subjects if self._governed and self._subjects else self._last or self._subjects
        nouns, self._at = read_nouns(self._tokens, self._at)
        if not nouns:
            return
        found = self._introduce(nouns)
        follower = self._peek()
        clause = follower is not None and (
            follower.tag in {"VBG", "VBN", "RB", "JJ"}
            or (follower.tag == "IN" and follower.lower in w.PLACES)
        )
        if not clause or (follower is not None and follower.tag == "IN"):
            for owner in owners:
                for noun in found:
                    if is_thing(owner) and is_thing(noun):
                        self._facts.append(r.owns(owner, noun))
        if clause:
            self._subjects = found
        self._follow(found)

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
        targets = self._introduce(nouns, governed=True)
        if not holders:
            if targets and is_thing(targets[0]) and preposition in w.PLACES:
                self._place = (preposition, targets[0])
            return
        if preposition in w.PLACES and not self._focus:
            self._locate(holders, preposition, targets[0] if targets else nouns[0])
        self._follow([target for target in targets if is_thing(target)], governed=True)

    def _locate(self, things: list[Noun], preposition: str, target: Noun) -> None:
        if is_picture(target):
            return
        for thing in things:
            if is_thing(thing):
                self._facts.append(r.relation(thing, f"{r.be(thing)} {preposition}", target))

    def _predicate(self, subjects: list[Noun], verb: Verb) -> None:
        subjects = subjects or self._memory.anyone()
        if any(is_picture(subject) for subject in subjects):
            if verb.shape != "be" or not self._focus:
                nouns, self._at = read_nouns(self._tokens, self._at)
                found = self._introduce(nouns)
                self._subjects = found or self._subjects
                self._frame = None
                self._follow(found)
                self._memory.talk_about(found)
                return
        if self._focus and verb.lemma in {"be", "include", "consist"}:
            self._focused(subjects)
            return
        if verb.word == "seen":
            self._last = subjects
            return
        if verb.shape == "be":
            self._copula(subjects, verb)
            return
        if verb.lemma in w.STATES and verb.shape == "ing":
            verb = Verb("finite", verb.lemma)
        nouns, self._at = read_nouns(self._tokens, self._at)
        if nouns:
            objects = self._introduce(nouns)
            self._relate(subjects, verb, objects)
            self._frame = (subjects, verb, "")
            self._follow(objects)
            return
        token = self._peek()
        if (token is not None and token.tag == "IN" and token.lower not in {"by", "as"} | _LISTING) or (
            token is not None and token.lower == "by" and verb.shape == "en"
        ):
            self._at += 1
            targets, end = read_nouns(self._tokens, self._at)
            if targets:
                self._at = end
                found = self._introduce(targets, governed=True)
                self._relate(subjects, verb, found, token.lower)
                self._frame = (subjects, verb, token.lower)
                self._follow([target for target in found if is_thing(target)], governed=True)
                return
        adverb = ""
        if token is not None and token.tag == "RB":
            adverb = f" {token.lower}"
            self._at += 1
        for subject in subjects:
            self._facts.append(r.relation(subject, r.phrase(verb, subject) + adverb, None, r.OTHER))
        self._last = []

    def _relate(self, subjects: list[Noun], verb: Verb, objects: list[Noun], preposition: str = "") -> None:
        link = f" {preposition}" if preposition else ""
        for subject in subjects:
            if is_picture(subject):
                continue
            for target in objects:
                self._facts.append(r.relation(subject, r.phrase(verb, subject) + link, target))

    def _focused(self, subjects: list[Noun]) -> None:
        """ "The main object in the image is a clock"."""
        nouns, self._at = read_nouns(self._tokens, self._at)
        found = self._introduce(nouns)
        for noun in found:
            if is_thing(noun):
                self._facts.append(
                    Fact(f"The {r.name(noun)} {r.be(noun)} the {self._focus} in the image.", r.OTHER)
                )
        del subjects
        self._subjects, self._focus = found, ""
        self._follow(found)
        self._memory.talk_about(found)

    def _copula(self, subjects: list[Noun], verb: Verb) -> None:
        while (token := self._peek()) is not None and token.lower in {"both", "all"}:
            self._at += 1
        nouns, end = read_nouns(self._tokens, self._at)
        if nouns:
            self._at = end
            found = self._introduce(nouns)
            for subject in subjects:
                if subject.nouns and subject.lemma not in w.FOCUSES:
                    for noun in found:
                        self._facts.append(r.relation(subject, r.be(subject), noun, r.OTHER))
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
                    self._facts.append(r.relation(subject, f"{r.be(subject)} {token.lower}", None, r.OTHER))
            return
        self._at = at
        for subject in subjects:
            if not is_picture(subject):
                self._facts.append(r.attribute(subject, adjectives))

    def _introduce(self, nouns: list[Noun], *, governed: bool = False) -> list[Noun]:
        """State the entities of these phrases with their attributes; gives them with pronouns resolved."""
        found = []
        shared = nouns[0].possessor if nouns else None
        for noun in nouns:
            if shared is not None and noun.possessor is None and not noun.determiner and noun.nouns:
                noun.possessor = shared
            resolved = self._memory.resolve(noun)
            if resolved is not noun:
                found.append(resolved)
                continue
            thing = core(noun)
            if thing.pronoun:
                thing = self._memory.resolve(thing)
                if thing.pronoun:
                    continue
            found.append(thing)
            if not is_thing(thing):
                continue
            bare = not thing.determiner and not thing.number and not thing.plural and not thing.adjectives
            if governed and bare and thing.head not in w.MASS and len(thing.nouns) == 1:
                continue
            self._memory.remember(thing)
            self._state(thing)
        return found

    def _state(self, thing: Noun) -> None:
        owner = None
        if thing.possessor is not None and thing.possessor.nouns:
            owner = next(iter(self._introduce([thing.possessor])), None)
        self._facts.append(r.there_are_so_many(thing) if counted(thing) else r.there_is(thing))
        if owner is not None and is_thing(owner):
            self._facts.append(r.owns(owner, thing))
        if thing.of is not None and thing.of.nouns and thing.lemma not in {"pair", "piece", "slice"}:
            self._introduce([thing.of])
        adjectives = [word for word in thing.adjectives if word not in w.EMPTY_ADJECTIVES]
        colors = [word for word in adjectives if word in w.COLORS]
        for word in adjectives:
            if word not in w.COLORS:
                self._facts.append(r.attribute(thing, [word]))
        if colors:
            self._facts.append(r.attribute(thing, colors))


def core(noun: Noun) -> Noun:
    """ "a group of people" is people."""
    while noun.of is not None and noun.lemma in w.SHELLS | w.PICTURES | w.SPOTS:
        inner = noun.of
        if noun.of.pronoun and not noun.of.nouns:
            return noun.of
        noun = inner
    return noun


def counted(noun: Noun) -> bool:
    """Whether it has a number worth a fact."""
    return bool(noun.number) and noun.number not in {"one", "1", "various", "different"}


def is_picture(noun: Noun) -> bool:
    """Whether it is the picture itself rather than a thing in it."""
    return noun.lemma in w.PICTURES


def is_thing(noun: Noun) -> bool:
    """Whether it can be seen in the picture: no view, no place in it, nothing abstract."""
    return bool(noun.nouns) and noun.lemma not in w.PICTURES | w.SPOTS | w.NOT_THINGS


_ = FINITE
