"""Reads one sentence's words into atoms: a small grammar of how images are described.

It covers what decomposers write ("There is …", "The … is …", one verb with its objects and places) and is
content to understand less: words beyond it end in a concept or a value that nothing else equals.
"""

from groundwatch.language.lexicon import Attribute, Lexicon, NounPhrase, noun_phrases
from groundwatch.language.lexicon.phrases import DETERMINERS
from groundwatch.language.statements.atoms import Atom, Exists, Has, Number, Relates

_AUXILIARIES = frozenset({"does", "do", "has", "have", "had"})
_PICTURES = frozenset({"image", "picture", "photo", "scene", "photograph", "view", "frame", "shot"})
_WEATHER = frozenset({"rain", "snow"})


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
            rest = tokens[1:]
            while rest and (rest[0] in relations.copulas or rest[0] == "to"):
                rest = rest[1:]
            self.existential(rest)
            return
        if len(tokens) > 2 and tokens[0] in _PICTURES and self.lexicon.verb(tokens[1]) in relations.showing:
            self.existential(tokens[2:])
            return
        at = self._verb_at(tokens)
        if at is None:
            self.existential(tokens)
            return
        if tokens[at] in relations.copulas and self._pictured(tokens[at + 1 :]):
            self.existential(tokens[:at])
            return
        subjects = self._subject(tokens[:at])
        rest = tokens[at:]
        if rest[0] in relations.copulas or (rest[0] in _AUXILIARIES and self._is_verb(rest[1:2])):
            rest = rest[1:]
        self.predicate(subjects, rest)

    def existential(self, tokens: list[str]) -> None:
        """ "a red car parked on the street": what there is, and what is said of it."""
        at = self._modifier_at(tokens)
        phrases = noun_phrases(tokens[:at], self.lexicon)
        rest = tokens[at:]
        if rest and rest[0] in ("that", "which", "who"):
            rest = rest[1:]
        while rest and rest[0] in self.lexicon.relations.copulas:
            rest = rest[1:]
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
        if tokens[0] in ("made", "composed", "constructed", "crafted", "built") and tokens[1:2] in (
            ["of"],
            ["from"],
        ):
            self._properties(subjects, tokens[2:])
        elif (
            tokens[0] in ("has", "have", "having", "had") and tokens[-1] in self.lexicon.attributes.kind_words
        ):
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
            if tokens[index] in ("that", "which", "who", "while", "as") or (
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
        elif preposition in ("on", "at", "along", "in") and self._open_place(thing.concept):
            preposition = "in"
        return Relates(subject.concept, verb, preposition, thing.concept)

    def _open_place(self, concept: str) -> bool:
        places = self.lexicon.nouns.places
        return concept in places or not places.isdisjoint(self.lexicon.ancestors(concept))

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
            rest = tokens[at + 1 :] if tokens[at] in ("that", "which", "who") else tokens[at:]
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
            elif token not in DETERMINERS and token not in ("in", "can", "be", "within"):
                return False
        return weak

    def _clauses(self, tokens: list[str]) -> list[list[str]]:
        """Split "sitting on a bench and reading a book" where the next piece starts with a verb."""
        clauses: list[list[str]] = [[]]
        for index, token in enumerate(tokens):
            following = tokens[index + 1] if index + 1 < len(tokens) else ""
            if token in ("and", ",", "while", "but") and clauses[-1] and following.endswith("ing"):
                if self.lexicon.verb(following):
                    clauses.append([])
                    continue
            elif token == "and" and clauses[-1] and self._preposition(tokens[index + 1 :]):
                clauses.append([])
                continue
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
        for index in range(1, len(tokens)):
            if tokens[index].endswith("ing") and self._is_verb(tokens[index : index + 1]):
                return index
        return None

    def _modifier_at(self, tokens: list[str]) -> int:
        """Where a noun phrase ends and what follows it begins."""
        for index in range(1, len(tokens)):
            token = tokens[index]
            if token in ("that", "which", "who") or token in self.lexicon.relations.copulas:
                return index
            if tokens[index - 1] in DETERMINERS or tokens[index - 1] in ("and", ","):
                continue
            if token != "of" and self._preposition(tokens[index:]):
                return index
            if index + 1 < len(tokens) and self._is_verb([token]) and self._opens(tokens[index + 1 :]):
                return index
            named = self.lexicon.concept((tokens[index - 1],)) in self.lexicon.known
            if named and index + 1 < len(tokens) and token.endswith("ing") and self.lexicon.verb(token):
                return index
        last = len(tokens) - 1
        if last > 0 and tokens[-1].endswith("ing") and self.lexicon.verb(tokens[-1]):
            named = self.lexicon.concept((tokens[-1],)) in self.lexicon.known
            return last if not named and tokens[-2] not in DETERMINERS else len(tokens)
        return len(tokens)

    def _opens(self, tokens: list[str]) -> bool:
        return tokens[0] in DETERMINERS or self._preposition(tokens) is not None

    def _next_preposition(self, tokens: list[str]) -> int:
        for index in range(1, len(tokens)):
            found = self._preposition(tokens[index:])
            if found and found[0] != "of":
                return index
        return len(tokens)

    def _preposition(self, tokens: list[str]) -> tuple[str, list[str]] | None:
        """The longest preposition at the start, with what follows it."""
        for size in range(min(self.lexicon.longest_preposition, len(tokens)), 0, -1):
            found = self.lexicon.prepositions.get(" ".join(tokens[:size]))
            if found:
                return found, tokens[size:]
        return None

    def _is_verb(self, tokens: list[str]) -> bool:
        if not tokens:
            return False
        return self.lexicon.verb(tokens[0]) is not None or (
            tokens[0].endswith(("ing", "ed")) and self.lexicon.attribute(tokens[0]) is None
        )

    def _is_property(self, tokens: list[str]) -> bool:
        if len(tokens) == 1 or tokens[1] in ("and", ","):
            return self.lexicon.attribute(tokens[0]) is not None
        shaded = tokens[0] in self.lexicon.attributes.shades
        return shaded and self.lexicon.attribute(tokens[1]) is not None
