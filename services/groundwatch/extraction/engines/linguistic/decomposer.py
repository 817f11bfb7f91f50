"""Atomic facts from descriptive sub-sentences by rules of English (FaithScore, section 3.2).

An atomic fact is about one entity, one of its attributes, or two entities and what holds between them.
"""

import math
import time
from collections.abc import Iterable, Sequence

import msgspec

from groundwatch.errors import Unscorable
from groundwatch.events import Claim
from groundwatch.extraction.engines.linguistic import rendering as r
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.phrases import (
    LISTING,
    Noun,
    Verb,
    acts_later,
    follows,
    is_person,
    is_subject,
    list_follows,
    read_nouns,
    read_verb,
    starts_clause,
)
from groundwatch.extraction.engines.linguistic.predicates import Predicates
from groundwatch.extraction.engines.linguistic.rendering import AtomicFact
from groundwatch.extraction.engines.linguistic.tagging import Token, compares, tag

_EXCEPT = frozenset({"without", "instead of", "rather than", "except", "other than", "despite"})
_GUESSING = frozenset({"could", "might", "may", "would", "should", "must", "will"})
_SENSED = frozenset(
    {"be", "see", "notice", "observe", "spot", "find", "infer", "tell", "say", "conclude", "deduce"}
)


class Reader(Predicates):
    """Reads the sub-sentences of one answer in order and remembers what they were about."""

    def __init__(self, seconds: float = math.inf) -> None:
        super().__init__()
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def read(self, tokens: Sequence[Token], *, opens_sentence: bool) -> list[AtomicFact]:
        self._entities.facts, self._tokens, self._at = [], tokens, 0
        self._last, self._governed, self._focus, self._begins = [], False, None, False
        self._waiting, self._host, self._verb = False, [], ""
        if opens_sentence:
            self._place, self._exists = None, False
            self._trail = []
            if not tokens or tokens[0].tag not in {"VBG", "VBN"}:
                self._subjects = []
        while self._at < len(tokens):
            if time.monotonic() > self._until:
                raise Unscorable("took_too_long", f"the answer takes longer than {self._seconds:g} s to read")
            before = self._at
            self._step()
            self._at = max(self._at, before + 1)
        return self._entities.facts

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
            self._at += 1
            self._follow(self._entities.introduce(self._nouns()))
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
            guess = self._guesses()
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
        if nouns[0].pronoun in w.STAND_INS | {"other"} or is_subject(self._tokens, end, nouns):
            self._subject(nouns)
            return
        found = self._entities.introduce(nouns)
        self._subjects = found if self._begins else self._subjects or found
        self._begins = False
        self._follow(found)
        if self._exists and self._place is not None and self._place[1].lemma in w.SIDES:
            self._locate(found, *self._place)

    def _guesses(self) -> bool:
        """ "could smile" and "can smile", but not "can be seen"."""
        for at in range(self._at, min(self._at + 3, len(self._tokens))):
            word = self._tokens[at].lower
            if self._tokens[at].tag == "MD" and word in _GUESSING:
                return True
            if word == "can" and self._tokens[at].tag == "MD":
                following = next((other.lower for other in self._tokens[at + 1 :] if other.tag != "RB"), "be")
                return w.verb(following) not in _SENSED
        return False

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
        self._subjects = self._introduce(nouns)
        self._waiting = True

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

    def _existence(self) -> None:
        self._at += 1
        _, self._at = read_verb(self._tokens, self._at)
        while self._peek().tag == "RB" and self._peek().lower != "at least":
            self._at += 1
        self._subjects = self._introduce(self._nouns())
        self._exists = True
        if self._place is not None:
            self._locate(self._subjects, *self._place)
        self._presence(self._subjects)

    def _presence(self, things: list[Noun]) -> None:
        """ "visible in the image" is a fact of its own to the annotators."""
        state, where = self._peek(), self._peek(1)
        if state.lower not in {"visible", "present"} or where.tag != "IN":
            return
        nouns, end = read_nouns(self._tokens, self._at + 2)
        if nouns and nouns[0].lemma in w.PICTURES:
            self._at = end
            for thing in things:
                if thing.is_thing:
                    middle = f"{r.be(thing)} {state.lower} {where.lower}"
                    self._entities.say(r.relation(thing, middle, nouns[0], r.OTHER))

    def _relative(self, word: str) -> None:
        self._at += 1
        if not starts_clause(self._tokens, self._at):
            return
        plural = self._tokens[self._at].lower in {"are", "were", "have"}
        singular = self._tokens[self._at].lower in {"is", "was", "has"}
        candidates = self._last or self._trail
        if word == "who":
            candidates = [*self._subjects, *self._trail, *self._last]
        for noun in reversed(candidates):
            agrees = not (singular if noun.plural else plural)
            if agrees and (word != "who" or w.person(noun.lemma)):
                self._subjects = [noun]
                return
        if word != "who" or not self._governed:
            self._subjects = self._last or self._subjects

    def _with(self) -> None:
        """ "with a hat" is had; "with a dog lying nearby" is a clause of its own."""
        self._at += 1
        nouns, joined = self._read_governed()
        if not nouns:
            return
        owners = self._owners(nouns)
        found = self._entities.introduce(nouns)
        follower = self._peek()
        placed = follower.tag == "IN" and follower.lower in w.PLACES
        clause = placed or follower.tag in {"VBG", "VBN", "RB", "JJ"}
        personal = w.verb(follower.lower) in w.DONE_BY_PEOPLE
        if clause and personal and is_person(owners) and not is_person(found):
            # "A man with long hair wearing a tie": hair wears nothing.
            self._own(owners, found)
            self._last = owners
            return
        clause = clause or acts_later(self._tokens, self._at)
        near = follower.tag == "IN" and not nouns[0].pronoun
        near = near and not (self._governed and is_person(owners))
        if self._verb in w.INSTRUMENTAL and is_person(self._subjects):
            self._follow(found)
            return
        if not clause or (near and not follows(self._tokens, self._at + 1, w.SPOTS | w.PICTURES)):
            self._own(owners, found)
        if clause and not self._waiting:
            self._subjects = found
        self._follow(found)
        self._subjects = [*self._subjects, *self._entities.introduce(joined)]

    def _owners(self, things: list[Noun]) -> list[Noun]:
        """Who has what "with" names: the person, where there is one, else the phrase just before."""
        near = self._last or self._subjects
        theirs = self._governed or things[0].determiner in {"his", "her"}
        if theirs and not is_person(near) and is_person(self._subjects):
            return self._subjects
        return near

    def _preposition(self, preposition: str) -> None:
        self._at += 1
        if compares(preposition):
            self._compare(self._last or self._subjects, preposition)
            return
        if self._peek().tag in {"VBG", "VB"}:
            self._last = []
            if preposition in {"for", "of"}:
                _, self._at = read_verb(self._tokens, self._at)
                self._skip_object()
            return
        nouns, joined = self._read_governed()
        if not nouns:
            return
        holders = self._last or self._subjects
        close = preposition in w.CLOSE or (self._host_near and preposition in {"on", "in", "at"})
        if self._governed and self._host and close:
            holders, self._host_near = self._host, preposition in w.CLOSE
        targets = self._entities.introduce(nouns, governed=True, besides=holders)
        listed = holders == self._subjects and not self._last
        if not holders or (listed and holders[0].lemma in w.FOCUSES):
            if targets and preposition in w.PLACES and (targets[0].is_thing or targets[0].lemma in w.SIDES):
                self._place = (preposition, targets[0])
            return
        if preposition in w.PLACES and not self._focus:
            for target in targets or nouns[:1]:
                self._locate(holders, preposition, target)
            self._host, self._host_near = holders, preposition in w.CLOSE
        self._follow([target for target in targets if target.is_thing], governed=True)
        self._subjects = [*self._subjects, *self._entities.introduce(joined)]


def atomic_facts(
    texts: Sequence[str], descriptive: Sequence[bool], *, seconds: float = math.inf
) -> tuple[AtomicFact, ...]:
    """The facts of one answer's sub-sentences, in order, each once in its sub-sentence.

    What another sub-sentence says again counts again: equation 1 of FaithScore runs over facts as they are
    said. "The cat" does not say again that there is one, as in the paper's figures 8 and 9. Analytical
    sub-sentences give no facts, but what they speak of is what a later "it" may mean. Raises `Unscorable` for
    an answer that takes longer than so many seconds.
    """
    reader = Reader(seconds)
    facts: dict[tuple[int, str], AtomicFact] = {}
    said: set[str] = set()
    for index, (unit, describes) in enumerate(zip(texts, descriptive, strict=True)):
        for fact in reader.read(tag(unit), opens_sentence=unit[:1].isupper()):
            text = fact.text.lower()
            if describes and not (fact.known and text in said):
                said.add(text)
                facts.setdefault((index, text), msgspec.structs.replace(fact, unit=index))
    return tuple(facts.values())


def decompose(texts: Sequence[str], descriptive: Sequence[bool]) -> tuple[Claim, ...]:
    return as_claims(atomic_facts(texts, descriptive))


def as_claims(facts: Iterable[Claim]) -> tuple[Claim, ...]:
    """Facts as claims travel: without what only the readers of facts need."""
    return tuple(
        Claim(text=one.text, category=one.category, unit=one.unit) if isinstance(one, AtomicFact) else one
        for one in facts
    )
