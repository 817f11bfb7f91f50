"""Noun phrases and verb groups of a tagged sub-sentence."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.tagging import ADJECTIVES, NOUNS, Token
from groundwatch.language.lexicon import singular


class Noun(msgspec.Struct):
    """A noun phrase. `nouns` are the compound with its head last; all empty for a pronoun or a stand-in."""

    determiner: str = ""
    number: str = ""
    other: bool = False
    adjectives: list[str] = []
    nouns: list[str] = []
    plural: bool = False
    possessor: Noun | None = None
    of: Noun | None = None
    pronoun: str = ""
    alternative: Noun | None = None

    @property
    def head(self) -> str:
        """The head noun as written, lower case; "" for pronouns."""
        return self.nouns[-1].lower() if self.nouns else ""

    @property
    def lemma(self) -> str:
        """The head noun's singular; glasses of something, or so many glasses, are no spectacles."""
        if self.head == "glasses" and (self.of is not None or self.number):
            return "glass"
        return singular(" ".join(self.nouns[-2:]).lower()).rpartition(" ")[2]

    @property
    def is_compound(self) -> bool:
        """Whether its last two words are one name: a "tank top" is no top of a tank."""
        return len(self.nouns) > 1 and f"{self.nouns[-2].lower()} {self.lemma}" in w.COMPOUNDS

    @property
    def core(self) -> Noun:
        """ "a group of people" is people."""
        noun = self
        while noun.of is not None and (
            noun.lemma in w.SHELLS | w.PICTURES or (noun.lemma in w.SPOTS and not noun.is_thing)
        ):
            if noun.of.pronoun and noun.lemma in w.PICTURES:
                return noun
            noun = noun.of
        return noun

    @property
    def counted(self) -> bool:
        """Whether it has a number worth a fact."""
        return bool(self.number) and self.number not in {"one", "1"}

    @property
    def is_bare(self) -> bool:
        """Whether it is "display" in "on display": no thing, for all its looks."""
        if self.determiner or self.number or self.plural or self.adjectives or self.possessor is not None:
            return False
        return len(self.nouns) == 1 and self.head not in w.MASS

    @property
    def is_picture(self) -> bool:
        """Whether it is the picture itself rather than a thing in it."""
        return self.lemma in w.PICTURES

    @property
    def is_thing(self) -> bool:
        """Whether it can be seen in the picture: no view, no place in it, nothing abstract."""
        if self.determiner in {"no", "any"}:
            return False
        if self.lemma in w.AREAS:
            return len(self.nouns) > 1 or not w.POSITIONAL.issuperset(self.adjectives)
        if self.is_compound:
            return True
        if self.lemma in w.PICTURES | w.SPOTS | w.QUALITIES:
            return False
        return bool(self.nouns) and not w.abstract(self.lemma)

    @property
    def is_frameless_side(self) -> bool:
        """ "on the left side", of nothing that is named: no place that could be checked."""
        owned = self.of is not None or self.possessor is not None or self.determiner in w.POSSESSIVES
        return self.lemma in w.SIDES and not owned


class Verb(msgspec.Struct):
    """A verb group. `shape`: be, ing, en (past participle), finite, to; `bare` without an auxiliary."""

    shape: str
    word: str
    bare: bool = False
    negated: bool = False
    particle: str = ""

    @property
    def lemma(self) -> str:
        return w.verb(self.word) or self.word


def is_person(nouns: Sequence[Noun]) -> bool:
    return bool(nouns) and w.person(nouns[0].lemma)


def says_something(subject: Noun, verb: Verb) -> bool:
    """ "The purpose includes a book", "these colours feature a man": only the book and the man are there."""
    unseen = w.abstract(subject.lemma) or subject.lemma in w.QUALITIES
    return not (unseen and verb.lemma in w.SHOWING | {"have"})


def names_it_again(subject: Noun, noun: Noun) -> bool:
    """ "The room is a living room": the living room has been stated."""
    return noun.lemma == subject.lemma and len(noun.nouns) > 1


def read_nouns(tokens: Sequence[Token], at: int, *, subject: bool = False) -> tuple[list[Noun], int]:
    """Coordinated noun phrases from `at` on, with the place after them; none when none starts there.

    Unless they are a `subject`, a noun phrase with a finite verb after it begins a clause of its own.
    """
    first, end = read_noun(tokens, at)
    if first is None:
        return [], at
    found = [first]
    while end < len(tokens) and tokens[end].tag == "CC" and tokens[end].lower not in {"but", "nor"}:
        following, after = read_noun(tokens, end + 1)
        if (
            following is None
            or following.pronoun
            or (not subject and starts_clause(tokens, after) and _agrees(following, tokens[after].lower))
            or (found[-1].lemma in w.SIDES and following.lemma not in w.SPOTS)
        ):
            break
        if tokens[end].lower == "or" and found[-1].nouns:
            found[-1].alternative = following
        else:
            found.append(following)
        end = after
    return found, end


def _agrees(noun: Noun, verb: str) -> bool:
    return verb not in ({"is", "was", "has"} if noun.plural else {"are", "were", "have"})


def starts_clause(tokens: Sequence[Token], at: int) -> bool:
    """Whether a finite verb stands here: then what is before it is a subject."""
    while at < len(tokens) and tokens[at].tag == "RB":
        at += 1
    return at < len(tokens) and tokens[at].tag in {"BE", "MD", "HV", "VBZ", "VBP"}


def read_noun(tokens: Sequence[Token], at: int) -> tuple[Noun | None, int]:
    """One noun phrase with its possessor and its "of"."""
    phrase, end = _simple_noun(tokens, at)
    if phrase is None:
        return None, at
    while end < len(tokens) and tokens[end].tag == "POS":
        owned, after = _simple_noun(tokens, end + 1)
        if owned is None or not owned.nouns:
            return phrase, end + 1
        owned.possessor, phrase, end = phrase, owned, after
    if end < len(tokens) and tokens[end].lower == "of":
        inner, after = read_noun(tokens, end + 1)
        if inner is not None:
            phrase.of, end = inner, after
    return phrase, end


def _simple_noun(tokens: Sequence[Token], at: int) -> tuple[Noun | None, int]:
    phrase, end = Noun(adjectives=[], nouns=[]), at
    while end < len(tokens) and tokens[end].lower in {
        "at least",
        "about",
        "exactly",
        "approximately",
        "such",
    }:
        end += 1
    if end < len(tokens) and tokens[end].tag == "PRP":
        return Noun(pronoun=tokens[end].lower, adjectives=[], nouns=[]), end + 1
    while end < len(tokens) and tokens[end].tag in {"DT", "PRP$", "CD", "PRO"}:
        word = tokens[end].lower
        if (
            word in w.NUMBERS | w.VAGUE_NUMBERS
            or word in {"a lot of", "lots of", "a few"}
            or word[0].isdigit()
        ):
            phrase.number = word
        elif tokens[end].tag == "PRO" and not phrase.nouns:
            return Noun(pronoun=word, determiner=phrase.determiner, adjectives=[], nouns=[]), end + 1
        else:
            phrase.determiner = word
        end += 1
    started = end > at
    while end < len(tokens):
        token, following = tokens[end], tokens[end + 1] if end + 1 < len(tokens) else None
        if token.lower in {"other", "others"} and token.tag in ADJECTIVES:
            phrase.other = True
        elif token.tag in ADJECTIVES:
            phrase.adjectives.append(token.lower)
        elif token.tag == "CD" and started:
            phrase.number = token.lower
        elif (token.tag == "RB" and following is not None and following.tag in ADJECTIVES and started) or (
            token.tag == "CC"
            and phrase.adjectives
            and following is not None
            and following.tag in ADJECTIVES
            and _noun_ahead(tokens, end + 1)
        ):
            pass
        else:
            break
        end += 1
    first_noun = end
    while end < len(tokens) and tokens[end].tag in NOUNS:
        phrase.nouns.append(tokens[end].text if _is_name(tokens[end]) else tokens[end].lower)
        end += 1
    if end == first_noun:
        stand_in = phrase.determiner in w.STAND_INS or phrase.number or phrase.determiner in {"this", "these"}
        if stand_in and not phrase.adjectives:
            pronoun = phrase.number or phrase.determiner
            return Noun(pronoun=pronoun, determiner=phrase.determiner, adjectives=[], nouns=[]), end
        if phrase.other and phrase.determiner:
            return Noun(pronoun="other", determiner=phrase.determiner, adjectives=[], nouns=[]), end
        return None, at
    last = tokens[end - 1]
    if phrase.adjectives and f"{phrase.adjectives[-1]} {singular(phrase.nouns[0].lower())}" in w.COMPOUNDS:
        phrase.nouns.insert(0, phrase.adjectives.pop())
    if last.tag == "NN" and len(phrase.nouns) > 1 and last.lower not in w.PLURAL_ONLY and phrase.number:
        phrase.number = ""
    phrase.plural = _is_plural(phrase, last)
    return phrase, end


def _is_name(token: Token) -> bool:
    return token.tag.startswith("NNP") or (len(token.text) > 1 and token.text.isupper())


def _noun_ahead(tokens: Sequence[Token], at: int) -> bool:
    while at < len(tokens) and tokens[at].tag in ADJECTIVES | {"CC", "RB"}:
        at += 1
    return at < len(tokens) and tokens[at].tag in NOUNS


def _is_plural(phrase: Noun, last: Token) -> bool:
    if last.lower in w.PLURAL_ONLY:
        return True
    if phrase.determiner in {"a", "an", "another", "each", "every", "this", "that"} or phrase.number in {
        "one",
        "1",
    }:
        return False
    return last.tag in {"NNS", "NNPS"} or (bool(phrase.number) and phrase.number not in {"one", "1"})


def read_verb(tokens: Sequence[Token], at: int) -> tuple[Verb | None, int]:
    """A verb group from `at` on: "is also wearing", "can be seen", "placed", "appears to be smiling"."""
    end, passive, negated, seen = at, False, False, ""
    while end < len(tokens):
        token = tokens[end]
        if token.tag == "RB" or token.lower in w.HEDGES:
            negated |= token.lower in {"not", "never"}
            if not _verb_ahead(tokens, end + 1):
                break
        elif token.tag == "MD":
            seen = seen or "modal"
        elif token.tag == "BE":
            seen, passive = "be", True
        elif (token.tag == "HV" and _verb_ahead(tokens, end + 1) and not _opens_noun(tokens, end + 1)) or (
            token.lower == "having" and end + 1 < len(tokens) and tokens[end + 1].tag == "VBN"
        ):
            seen = seen or "have"
        elif token.lower in _SEEMING and _to_follows(tokens, end + 1):
            end, seen = end + 1, seen or "be"
        elif token.lower in _SEEMING and end + 1 < len(tokens) and tokens[end + 1].tag in ADJECTIVES:
            seen, passive = seen or "be", True
        else:
            break
        end += 1
    if end < len(tokens):
        token = tokens[end]
        after = end + 1
        if token.tag in {"VBG", "VBN", "VBD", "VBZ", "VBP", "VB", "HV"}:
            shape = {"VBG": "ing", "VBN": "en", "VB": "to" if not seen else "finite"}.get(token.tag, "finite")
            if shape == "en" and seen == "have" and not passive:
                shape = "perfect"
            particle = ""
            if after < len(tokens) and _is_particle(tokens, after):
                particle, after = tokens[after].lower, after + 1
            verb = Verb(shape, token.lower, not seen, negated, particle)
            return verb, after
    if passive:
        return Verb("be", "is", False, negated), end
    return None, at


def _verb_ahead(tokens: Sequence[Token], at: int) -> bool:
    while at < len(tokens) and (tokens[at].tag == "RB" or tokens[at].lower in w.HEDGES):
        at += 1
    return at < len(tokens) and (tokens[at].tag.startswith("V") or tokens[at].tag in {"BE", "HV", "MD"})


def _opens_noun(tokens: Sequence[Token], at: int) -> bool:
    return at < len(tokens) and tokens[at].tag in {"DT", "PRP$", "CD"}


def _to_follows(tokens: Sequence[Token], at: int) -> bool:
    return at < len(tokens) and tokens[at].lower == "to"


_SEEMING = frozenset({"appears", "appear", "seems", "seem", "looks"})
_PARTICLES = frozenset(["up", "down", "out", "off", "away", "together", "apart", "back"])


def _is_particle(tokens: Sequence[Token], at: int) -> bool:
    if tokens[at].lower not in _PARTICLES:
        return False
    following = tokens[at + 1] if at + 1 < len(tokens) else None
    return (
        following is None
        or following.tag in {"IN", "CC", "SUB", "RB"}
        or tokens[at].lower in {"away", "together"}
    )
