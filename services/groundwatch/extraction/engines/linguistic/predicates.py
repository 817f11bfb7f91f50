"""What a verb says of its subjects."""

from groundwatch.extraction.engines.linguistic import rendering as r
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.lookahead import (
    LISTING,
    picture_follows,
)
from groundwatch.extraction.engines.linguistic.phrases import (
    Noun,
    Verb,
    is_person,
    names_it_again,
    read_nouns,
    read_verb,
)
from groundwatch.extraction.engines.linguistic.reading import Reading
from groundwatch.extraction.engines.linguistic.tagging import ADJECTIVES

_AS_IF = frozenset({"like", "as"})
_NOTICED = frozenset({"seen", "pictured", "found", "spotted", "noticed", "observed"})


class Predicates(Reading):
    """Reads from a verb to the end of its predicate."""

    def _predicate(self, subjects: list[Noun], verb: Verb) -> None:
        subjects = subjects or self._entities.memory.anyone()
        self._waiting = self._waiting and verb.bare and verb.shape in {"ing", "en"}
        if verb.lemma in w.RESEMBLING and (token := self._peek()) is not None and token.lower in _AS_IF:
            self._at = len(self._tokens)
            return
        frame = any(subject.is_picture or subject.lemma in w.FOCUSES for subject in subjects)
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
            self._verb = verb.lemma
            if verb.lemma in w.HOLDING and not is_person(subjects):
                self._subjects = objects
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
        found = self._entities.introduce(targets, governed=True, besides=subjects)
        self._relate(subjects, verb, found, token.lower)
        self._follow([target for target in found if target.is_thing], governed=True)
        self._host, self._host_near = subjects, token.lower in w.CLOSE
        return True

    def _bare_predicate(self, subjects: list[Noun], verb: Verb) -> None:
        token, adverb = self._peek(), ""
        if token is not None and token.tag == "RB":
            adverb = f" {token.lower}"
            self._at += 1
        for subject in subjects:
            if not subject.is_picture:
                self._entities.say(r.relation(subject, r.phrase(verb, subject) + adverb, None, r.OTHER))
        self._last = []

    def _focused(self) -> None:
        """ "The main object in the image is a clock"."""
        head = self._focus
        if head is None:
            return
        nouns, self._at = read_nouns(self._tokens, self._at)
        found = self._entities.introduce(nouns)
        for noun in found:
            if noun.is_thing:
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
                told = noun.lemma in w.FOCUSES or names_it_again(subject, noun)
                if noun.is_thing and not told and noun.plural == subject.plural:
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
                if not subject.is_picture:
                    middle = f"{r.be(subject)} {' and '.join(adjectives)} {token.lower}"
                    self._entities.say(r.relation(subject, middle, target))
        self._follow([target for target in found if target.is_thing], governed=True)
        return True
