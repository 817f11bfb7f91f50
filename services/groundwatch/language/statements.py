"""What a sentence, a triplet or a name says, as atoms that can be compared: a small grammar of descriptions.

It covers what decomposers write ("There is …", "The … is …", one verb with its objects and places) and is
content to understand less: words beyond it end in a concept or a value that nothing else equals.
"""

from functools import lru_cache
from itertools import dropwhile

import msgspec

from groundwatch.language.lexicon import (
    DETERMINERS,
    MAX_WORDS,
    Attribute,
    Lexicon,
    NounPhrase,
    lexicon,
    noun_phrases,
)
from groundwatch.language.tokens import plain_words


class Exists(msgspec.Struct, frozen=True, tag=True):
    """Something of this concept is in the image."""

    concept: str


class Has(msgspec.Struct, frozen=True, tag=True):
    """A thing of this concept has a property."""

    concept: str
    attribute: Attribute


class Number(msgspec.Struct, frozen=True, tag=True):
    """So many of a concept; `exact` when they are all there are, else at least so many."""

    concept: str
    low: int
    high: int | None
    exact: bool


class Relates(msgspec.Struct, frozen=True, tag=True):
    """Subject, verb or preposition or both, and object ("" when the verb has none)."""

    subject: str
    verb: str
    preposition: str
    object: str


Atom = Exists | Has | Number | Relates


class Statement(msgspec.Struct, frozen=True):
    """What a text says. `asserted` is empty where the text was not understood.

    `key` is the text without case, spacing and punctuation; `words` are the content lemmas. A negated
    statement says that its assertion does not hold.
    """

    key: str
    words: frozenset[str]
    negated: bool = False
    asserted: frozenset[Atom] = frozenset()
    given: frozenset[Atom] = frozenset()


def about(atom: Atom) -> str:
    return atom.subject if isinstance(atom, Relates) else atom.concept


_AUXILIARIES = frozenset({"does", "do", "has", "have", "had"})
_PICTURES = frozenset({"image", "picture", "photo", "scene", "photograph", "view", "frame", "shot"})
_WEATHER = frozenset({"rain", "snow"})
_RELATIVES = frozenset({"that", "which", "who"})


class Reader:
    """Gathers the atoms of one sentence."""

    def __init__(self, words: Lexicon) -> None:
        self.lexicon = words
        self.asserted: list[Atom] = []
        self.given: list[Atom] = []

    def sentence(self, tokens: list[str]) -> None:
        tokens = self._without_opening(tokens)
        relations = self.lexicon.relations
        if tokens[:1] == ["there"]:
            self.existential(self._after(tokens[1:], relations.copulas | {"to"}))
        elif len(tokens) > 2 and tokens[0] in _PICTURES and self.lexicon.verb(tokens[1]) in relations.showing:
            self.existential(tokens[2:])
        elif (at := self._verb_at(tokens)) is None:
            self.existential(tokens)
        elif tokens[at] in relations.copulas and self._pictured(tokens[at + 1 :]):
            self.existential(tokens[:at])
        else:
            subjects = self._subject(tokens[:at])
            rest = tokens[at:]
            if rest[0] in relations.copulas or (rest[0] in _AUXILIARIES and self._is_verb(rest[1:2])):
                rest = rest[1:]
            self.predicate(subjects, rest)

    def existential(self, tokens: list[str]) -> None:
        """ "a red car parked on the street": what there is, and what is said of it."""
        at = self._modifier_at(tokens)
        phrases = noun_phrases(tokens[:at], self.lexicon)
        rest = tokens[at + 1 :] if tokens[at:] and tokens[at] in _RELATIVES else tokens[at:]
        rest = self._after(rest, self.lexicon.relations.copulas)
        for phrase in phrases:
            self.exists(phrase, alone=not rest)
        if rest and phrases:
            self.predicate(phrases, rest)

    def exists(self, phrase: NounPhrase, *, alone: bool = True) -> None:
        """Assert that the thing is there, with its attributes and number."""
        self.asserted.append(Exists(phrase.concept))
        self._qualities(phrase, exact=alone and not phrase.attributes and not phrase.owner)
        if phrase.plural and phrase.low is None:
            self.asserted.append(Number(phrase.concept, 2, None, exact=False))
        if phrase.owner:
            self.asserted.append(Relates(phrase.owner, "have", "", phrase.concept))
        if phrase.of and not phrase.concept.startswith(f"{phrase.of} "):
            self.given.append(Exists(phrase.of))

    def take(self, phrases: list[NounPhrase]) -> None:
        """Take the things for granted; what is said of them in passing is asserted all the same."""
        for phrase in phrases:
            self.given.append(Exists(phrase.concept))
            self._qualities(phrase, exact=False)
            if phrase.owner:
                self.given.append(Exists(phrase.owner))

    def _qualities(self, phrase: NounPhrase, *, exact: bool) -> None:
        for attribute in phrase.attributes:
            self.asserted.append(Has(phrase.concept, attribute))
        if phrase.low == 1 and phrase.high == 1:
            self.asserted.append(Number(phrase.concept, 1, 1 if exact else None, exact))
        elif phrase.low is not None and phrase.counted:
            if phrase.concept not in self.lexicon.nouns.wildcards:
                self.asserted.append(Number(phrase.concept, phrase.low, phrase.high, exact))
        elif phrase.plural:
            self.given.append(Number(phrase.concept, 2, None, exact=False))

    def predicate(self, subjects: list[NounPhrase], tokens: list[str]) -> None:
        """Read what is said of the subjects: a state, an action, a place, a property."""
        relations = self.lexicon.relations
        while tokens and (tokens[0] in relations.adverbs or tokens[0] in relations.copulas):
            if self._preposition(tokens):
                break
            tokens = tokens[1:]
        if not tokens or self._pictured(tokens):
            self.asserted += [Exists(subject.concept) for subject in subjects]
            return
        for clause in self._clauses(tokens):
            self._clause(subjects, clause)

    def _clause(self, subjects: list[NounPhrase], tokens: list[str]) -> None:
        made = tokens[0] in ("made", "composed", "constructed", "crafted", "built")
        had = tokens[0] in ("has", "have", "having", "had")
        if made and tokens[1:2] in (["of"], ["from"]):
            self._properties(subjects, tokens[2:])
        elif had and tokens[-1] in self.lexicon.attributes.kind_words:
            self._properties(subjects, tokens[1:-1])
        elif self._preposition(tokens):
            self._relation(subjects, "", tokens)
        elif self._is_verb(tokens[:1]) and not self._is_property(tokens):
            self._action(subjects, tokens)
        else:
            self._properties(subjects, tokens)

    def _action(self, subjects: list[NounPhrase], tokens: list[str]) -> None:
        relations = self.lexicon.relations
        passive = not tokens[0].endswith("ing")
        verb = self.lexicon.guessed_verb(tokens[0])
        rest = tokens[1:]
        while rest and rest[0] in relations.adverbs and not self._preposition(rest):
            rest = rest[1:]
        if verb in relations.weak:
            verb = ""
        if not rest or self._pictured(rest):
            for subject in subjects:
                weather = verb in _WEATHER and subject.concept == "it"
                acts = verb and not weather
                self.asserted.append(
                    Relates(subject.concept, verb, "", "") if acts else Exists(verb or subject.concept)
                )
            return
        if rest[0] == "by" and passive and verb:
            self._done_by(subjects, verb, rest[1:])
            return
        if verb == "wear" and rest[0] == "in":
            rest = rest[1:]
        elif verb in relations.fills and rest[0] == "with":
            verb, rest = "contain", rest[1:]
        elif passive and rest[0] in relations.swaps.get(verb, ()):
            self._done_by(subjects, verb, rest[1:])
            return
        self._relation(subjects, verb, rest)

    def _done_by(self, subjects: list[NounPhrase], verb: str, tokens: list[str]) -> None:
        doers = noun_phrases(tokens[: self._next_preposition(tokens)], self.lexicon)
        self.take(doers)
        for subject in subjects:
            self.asserted += [Relates(doer.concept, verb, "", subject.concept) for doer in doers]

    def _relation(self, subjects: list[NounPhrase], verb: str, tokens: list[str]) -> None:
        """A verb's object and every prepositional phrase behind it."""
        subject_before = subjects
        preposition, tokens = self._preposition(tokens) or ("", tokens)
        if preposition == "to" and verb and self._is_verb(tokens[:1]):
            self.asserted += [Relates(subject.concept, verb, "", "") for subject in subjects]
            return
        while True:
            at = self._next_preposition(tokens)
            objects = self._objects(tokens[:at])
            self.take(objects)
            for subject in subjects:
                self.asserted += [self._relate(subject, verb, preposition, thing) for thing in objects]
                if not objects and (verb or preposition):
                    self.asserted.append(Relates(subject.concept, verb, preposition, ""))
            following = self._preposition(tokens[at:])
            if following is None or not following[1]:
                return
            preposition, tokens = following
            subjects = objects if preposition in ("with", "of") and objects else subject_before
            verb = ""

    def _objects(self, tokens: list[str]) -> list[NounPhrase]:
        """Things named up to the next verb: "a man (wearing a hat)"."""
        for index in range(1, len(tokens)):
            if tokens[index] in _RELATIVES | {"while", "as"} or (
                tokens[index].endswith("ing")
                and self.lexicon.verb(tokens[index])
                and tokens[index - 1] not in DETERMINERS
                and index + 1 < len(tokens)
                and tokens[index + 1] in DETERMINERS
            ):
                things = noun_phrases(tokens[:index], self.lexicon)
                if things and tokens[index].endswith("ing"):
                    self._action(things, tokens[index:])
                return things
        return noun_phrases(tokens, self.lexicon)

    def _relate(self, subject: NounPhrase, verb: str, preposition: str, thing: NounPhrase) -> Relates:
        """One relation in its plain form: "in a hat" is wearing it, "with a dog" near it."""
        words = self.lexicon
        if not verb and preposition == "in" and words.is_a(thing.concept, "clothing"):
            verb, preposition = "wear", ""
        elif not verb and preposition == "with":
            living = words.is_a(thing.concept, "person") or words.is_a(thing.concept, "animal")
            verb, preposition = ("", "near") if living else ("have", "")
        elif preposition in ("on", "at", "along", "in") and not words.nouns.places.isdisjoint(
            {thing.concept, *words.ancestors(thing.concept)}
        ):
            preposition = "in"
        return Relates(subject.concept, verb, preposition, thing.concept)

    def _properties(self, subjects: list[NounPhrase], tokens: list[str]) -> None:
        """Adjectives and materials, or a noun that the subject is said to be."""
        words = self.lexicon
        if len(tokens) > 2 and tokens[-2] == "in" and tokens[-1] in (*words.attributes.kind_words, "number"):
            tokens = tokens[:-2]
        number = words.number(tokens[0]) if tokens else None
        if number and len(tokens) == 1:
            self.asserted += [Number(subject.concept, *number, exact=True) for subject in subjects]
            return
        if tokens and tokens[0] in ("a", "an", "the") and tokens[-1] not in words.attributes.kind_words:
            things = noun_phrases(tokens[: self._next_preposition(tokens)], words)
            for subject in subjects:
                self.asserted += [Relates(subject.concept, "be", "", thing.concept) for thing in things]
                self.asserted += [
                    Has(subject.concept, value) for thing in things for value in thing.attributes
                ]
            return
        at = self._next_preposition(tokens)
        following = self._preposition(tokens[at:])
        if following and following[1] and following[0] != "for":
            self._relation(subjects, "", tokens[at:])
        shade = ""
        for token in tokens[:at]:
            if token in ("and", ",", "or", "but", "a", "an", "the", *words.attributes.kind_words):
                continue
            value = words.attribute(token)
            if token in words.attributes.shades and token != tokens[-1]:
                shade = token
                continue
            if value is None:
                if token in words.relations.adverbs:
                    continue
                value = Attribute("", words.guessed_verb(token))
            elif shade and value.kind == "color":
                value = Attribute("color", f"{shade} {value.value}")
            shade = ""
            self.asserted += [Has(subject.concept, value) for subject in subjects]

    def _subject(self, tokens: list[str]) -> list[NounPhrase]:
        """The subject's things, with what is said of them on the way: "the man in the hat"."""
        if len(tokens) > 3 and tokens[0] in DETERMINERS and tokens[1] in self.lexicon.attributes.kind_words:
            tokens = tokens[3:] if tokens[2] == "of" else tokens
        if "'s" in tokens[:-1] and tokens[-1] in self.lexicon.attributes.kind_words:
            tokens = tokens[: tokens.index("'s")]
        at = self._modifier_at(tokens)
        subjects = noun_phrases(tokens[:at], self.lexicon)
        self.take(subjects)
        if at < len(tokens) and subjects:
            rest = tokens[at + 1 :] if tokens[at] in _RELATIVES else tokens[at:]
            if rest:
                self.predicate(subjects, rest)
        return subjects

    def _without_opening(self, tokens: list[str]) -> list[str]:
        """Drop "in the image," before the sentence proper."""
        if tokens[:1] == ["in"] and len(tokens) > 4 and tokens[2] in _PICTURES:
            return tokens[4:] if tokens[3] == "," else tokens[3:]
        if len(tokens) > 2 and tokens[0] in DETERMINERS and tokens[1] in _PICTURES:
            return tokens[1:]
        return tokens

    def _pictured(self, tokens: list[str]) -> bool:
        """Whether the rest says only that something is there: "visible in the image"."""
        weak, relations = False, self.lexicon.relations
        for index, token in enumerate(tokens):
            if token in _PICTURES:
                return index == len(tokens) - 1
            if token in ("visible", "present", "seen") or self.lexicon.verb(token) in relations.weak:
                weak = True
            elif token not in DETERMINERS | {"in", "can", "be", "within"}:
                return False
        return weak

    def _clauses(self, tokens: list[str]) -> list[list[str]]:
        """Split "sitting on a bench and reading a book" where the next piece starts with a verb."""
        clauses: list[list[str]] = [[]]
        for index, token in enumerate(tokens):
            following = tokens[index + 1] if index + 1 < len(tokens) else ""
            acts = following.endswith("ing")
            splits = (token in ("and", ",", "while", "but") and acts and self.lexicon.verb(following)) or (
                token == "and" and not acts and self._preposition(tokens[index + 1 :])
            )
            if splits and clauses[-1]:
                clauses.append([])
            else:
                clauses[-1].append(token)
        return [clause for clause in clauses if clause]

    def _verb_at(self, tokens: list[str]) -> int | None:
        """Where the predicate starts: a copula, else a verb that is not part of the subject."""
        relations = self.lexicon.relations
        for index in range(1, len(tokens)):
            token, before = tokens[index], tokens[index - 1]
            if token in relations.copulas or token in ("has", "have", "had", "does", "do"):
                return index
            if before in DETERMINERS or self.lexicon.verb(token) is None or token.endswith("ing"):
                continue
            following = tokens[index + 1 : index + 2]
            ends = not following or following[0] in DETERMINERS or self.lexicon.number(following[0])
            if ends or self._preposition(tokens[index + 1 :]) or following[0] in relations.adverbs:
                return index
        acting = (index for index, token in enumerate(tokens) if token.endswith("ing"))
        return next((index for index in acting if index and self._is_verb(tokens[index:])), None)

    def _modifier_at(self, tokens: list[str]) -> int:
        """Where a noun phrase ends and what follows it begins."""
        for index in range(1, len(tokens)):
            token = tokens[index]
            if token in _RELATIVES or token in self.lexicon.relations.copulas:
                return index
            if tokens[index - 1] in DETERMINERS or tokens[index - 1] in ("and", ","):
                continue
            if token != "of" and self._preposition(tokens[index:]):
                return index
            following = tokens[index + 1 :]
            if not following:
                continue
            opens = following[0] in DETERMINERS or self._preposition(following) is not None
            if opens and self._is_verb([token]):
                return index
            named = self.lexicon.concept((tokens[index - 1],)) in self.lexicon.known
            if named and token.endswith("ing") and self.lexicon.verb(token):
                return index
        last = len(tokens) - 1
        if last > 0 and tokens[-1].endswith("ing") and self.lexicon.verb(tokens[-1]):
            named = self.lexicon.concept((tokens[-1],)) in self.lexicon.known
            return last if not named and tokens[-2] not in DETERMINERS else len(tokens)
        return len(tokens)

    @staticmethod
    def _after(tokens: list[str], skipped: frozenset[str]) -> list[str]:
        return list(dropwhile(skipped.__contains__, tokens))

    def _next_preposition(self, tokens: list[str]) -> int:
        found = ((index, self._preposition(tokens[index:])) for index in range(1, len(tokens)))
        return next((index for index, one in found if one and one[0] != "of"), len(tokens))

    def _preposition(self, tokens: list[str]) -> tuple[str, list[str]] | None:
        """The longest preposition at the start, with what follows it."""
        for size in range(min(self.lexicon.longest_preposition, len(tokens)), 0, -1):
            found = self.lexicon.prepositions.get(" ".join(tokens[:size]))
            if found:
                return found, tokens[size:]
        return None

    def _is_verb(self, tokens: list[str]) -> bool:
        known = bool(tokens) and self.lexicon.verb(tokens[0]) is not None
        participle = bool(tokens) and tokens[0].endswith(("ing", "ed"))
        return known or (participle and self.lexicon.attribute(tokens[0]) is None)

    def _is_property(self, tokens: list[str]) -> bool:
        alone = len(tokens) == 1 or tokens[1] in ("and", ",")
        value = self.lexicon.attribute(tokens[0] if alone else tokens[1])
        return value is not None and (alone or tokens[0] in self.lexicon.attributes.shades)


_NEGATIONS = frozenset({"no", "not", "never", "none"})
_EMPTY = DETERMINERS | frozenset({"there", "and", ",", "'s", "of", "or", "some"})


KEPT_CHARACTERS = 300
"""Longer texts are read anew each time, so that the cache stays small."""


def statement(text: str) -> Statement:
    """Read one sentence. Never fails: a text beyond the grammar keeps its words and asserts nothing."""
    return _kept(text) if len(text) <= KEPT_CHARACTERS else _read(text)


def _read(text: str) -> Statement:
    words = lexicon()
    tokens = plain_words(text)
    positive = [token for token in tokens if token not in _NEGATIONS]
    negated = (len(tokens) - len(positive)) % 2 == 1
    lemmas = frozenset(
        _lemma(token, words)
        for token in positive
        if token not in _EMPTY and token not in words.relations.copulas
    )
    key = " ".join(positive) or text.strip()
    if len(tokens) > MAX_WORDS or not positive:
        return Statement(key, lemmas, negated)
    reader = Reader(words)
    reader.sentence(positive)
    asserted, given = frozenset(reader.asserted), frozenset(reader.given)
    if negated:
        concepts = {about(atom) for atom in asserted}
        given = frozenset(atom for atom in given if isinstance(atom, Exists) and atom.concept in concepts)
    return Statement(key, lemmas, negated, asserted, given - asserted)


_kept = lru_cache(maxsize=8192)(_read)


@lru_cache(maxsize=2048)
def triplet(subject: str, relation: str, object_: str) -> Statement:
    """Read a (subject, relation, object) of a scene graph; attributes and counts by their own relations."""
    words = lexicon()
    first, middle, last = plain_words(subject), plain_words(relation), plain_words(object_)
    key = " ".join((*first, *middle, *last))
    lemmas = frozenset(
        _lemma(token, words) for token in (*first, *middle, *last) if token not in words.relations.copulas
    )
    reader = Reader(words)
    subjects = noun_phrases(first, words)
    if not subjects:
        return Statement(key, lemmas)
    reader.take(subjects)
    if middle in (["count"], ["number"], ["has", "count"]):
        number = words.number(last[0]) if last else None
        if number:
            reader.asserted.append(Number(subjects[0].concept, *number, exact=True))
    elif middle and middle[-1] in words.attributes.kind_words:
        reader.predicate(subjects, last)
    else:
        reader.predicate(subjects, [*middle, *last])
    return Statement(key, lemmas, False, frozenset(reader.asserted), frozenset(reader.given))


@lru_cache(maxsize=2048)
def name(text: str) -> Statement:
    words = lexicon()
    tokens = plain_words(text)
    reader = Reader(words)
    for phrase in noun_phrases(tokens, words):
        reader.exists(phrase)
    return Statement(
        " ".join(tokens), frozenset(), False, frozenset(reader.asserted), frozenset(reader.given)
    )


def _lemma(token: str, words: Lexicon) -> str:
    noun = words.concept((token,))
    return noun if noun in words.known else words.verb(token) or words.singular(token)
