"""Noun phrases and verb groups of a tagged sub-sentence, and what the words further on say about them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.tagging import ADJECTIVES, NOUNS, Token, look
from groundwatch.language.lexicon import singular

_NUMBERS = w.NUMBERS | w.VAGUE_NUMBERS | {"a lot of", "lots of", "a few"}
_SINGLE = frozenset({"a", "an", "another", "each", "every", "this", "that"})


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
        return bool(self.number) and self.number not in {"one", "1"}

    @property
    def is_bare(self) -> bool:
        """Whether it is "display" in "on display": no thing, for all its looks."""
        if self.determiner or self.number or self.plural or self.adjectives or self.possessor is not None:
            return False
        return len(self.nouns) == 1 and self.head not in w.MASS

    @property
    def is_picture(self) -> bool:
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
    def is_owned(self) -> bool:
        """ "their feet" are not what "they" are."""
        return self.possessor is not None or self.determiner in w.POSSESSIVES

    @property
    def is_known(self) -> bool:
        """Whether it takes for granted that this is there: "the cat" and "his hat", unlike "a cat"."""
        return self.is_owned or self.determiner in w.DEFINITE

    @property
    def is_frameless_side(self) -> bool:
        """ "on the left side", of nothing that is named: no place that could be checked."""
        return self.lemma in w.SIDES and self.of is None and not self.is_owned


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


def read_nouns(tokens: Sequence[Token], at: int, *, subject: bool = False) -> tuple[list[Noun], int]:
    """Coordinated noun phrases from `at` on, with the place after them; none when none starts there.

    Unless they are a `subject`, a noun phrase with a finite verb after it begins a clause of its own.
    """
    first, end = read_noun(tokens, at)
    if first is None:
        return [], at
    found = [first]
    while look(tokens, end).tag == "CC" and tokens[end].lower not in {"but", "nor"}:
        following, after = read_noun(tokens, end + 1)
        if following is None or following.pronoun:
            break
        others = {"is", "was", "has"} if following.plural else {"are", "were", "have"}
        if not subject and starts_clause(tokens, after) and tokens[after].lower not in others:
            break
        if found[-1].lemma in w.SIDES and following.lemma not in w.SPOTS:
            break
        if tokens[end].lower == "or" and found[-1].nouns:
            found[-1].alternative = following
        else:
            found.append(following)
        end = after
    return found, end


def starts_clause(tokens: Sequence[Token], at: int) -> bool:
    """Whether a finite verb stands here: then what is before it is a subject."""
    while look(tokens, at).tag == "RB":
        at += 1
    return look(tokens, at).tag in {"BE", "MD", "HV", "VBZ", "VBP"}


def read_noun(tokens: Sequence[Token], at: int) -> tuple[Noun | None, int]:
    phrase, end = _simple_noun(tokens, at)
    if phrase is None:
        return None, at
    while look(tokens, end).tag == "POS":
        owned, after = _simple_noun(tokens, end + 1)
        if owned is None or not owned.nouns:
            return phrase, end + 1
        owned.possessor, phrase, end = phrase, owned, after
    if look(tokens, end).lower == "of":
        inner, after = read_noun(tokens, end + 1)
        if inner is not None:
            phrase.of, end = inner, after
    return phrase, end


def _simple_noun(tokens: Sequence[Token], at: int) -> tuple[Noun | None, int]:
    phrase, end = Noun(), at
    while look(tokens, end).lower in {"at least", "about", "exactly", "approximately", "such"}:
        end += 1
    if look(tokens, end).tag == "PRP":
        return Noun(pronoun=tokens[end].lower), end + 1
    while look(tokens, end).tag in {"DT", "PRP$", "CD", "PRO"}:
        word = tokens[end].lower
        if word in _NUMBERS or word[0].isdigit():
            phrase.number = word
        elif tokens[end].tag == "PRO" and not phrase.nouns:
            return Noun(pronoun=word, determiner=phrase.determiner), end + 1
        else:
            phrase.determiner = word
        end += 1
    started = end > at
    while end < len(tokens):
        token, adjective_follows = tokens[end], look(tokens, end + 1).tag in ADJECTIVES
        if token.lower in {"other", "others"} and token.tag in ADJECTIVES:
            phrase.other = True
        elif token.tag in ADJECTIVES:
            phrase.adjectives.append(token.lower)
        elif token.tag == "CD" and started:
            phrase.number = token.lower
        elif not adjective_follows or not (
            (token.tag == "RB" and started)
            or (token.tag == "CC" and phrase.adjectives and _noun_ahead(tokens, end + 1))
        ):
            break
        end += 1
    first_noun = end
    while look(tokens, end).tag in NOUNS:
        text = tokens[end].text
        is_name = tokens[end].tag.startswith("NNP") or (len(text) > 1 and text.isupper())
        phrase.nouns.append(text if is_name else tokens[end].lower)
        end += 1
    if end == first_noun:
        stand_in = phrase.determiner in w.STAND_INS or phrase.number or phrase.determiner in {"this", "these"}
        if stand_in and not phrase.adjectives:
            pronoun = phrase.number or phrase.determiner
            return Noun(pronoun=pronoun, determiner=phrase.determiner), end
        if phrase.other and phrase.determiner:
            return Noun(pronoun="other", determiner=phrase.determiner), end
        return None, at
    last = tokens[end - 1]
    if phrase.adjectives and f"{phrase.adjectives[-1]} {singular(phrase.nouns[0].lower())}" in w.COMPOUNDS:
        phrase.nouns.insert(0, phrase.adjectives.pop())
    if last.tag == "NN" and len(phrase.nouns) > 1 and last.lower not in w.PLURAL_ONLY and phrase.number:
        phrase.number = ""
    phrase.plural = _is_plural(phrase, last)
    return phrase, end


def _noun_ahead(tokens: Sequence[Token], at: int) -> bool:
    while look(tokens, at).tag in ADJECTIVES | {"CC", "RB"}:
        at += 1
    return look(tokens, at).tag in NOUNS


def _is_plural(phrase: Noun, last: Token) -> bool:
    single = phrase.determiner in _SINGLE or phrase.number in {"one", "1"}
    several = last.tag in {"NNS", "NNPS"} or phrase.counted
    return last.lower in w.PLURAL_ONLY or (several and not single)


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
        elif (
            token.tag == "HV"
            and _verb_ahead(tokens, end + 1)
            and look(tokens, end + 1).tag not in {"DT", "PRP$", "CD"}
        ) or (token.lower == "having" and look(tokens, end + 1).tag == "VBN"):
            seen = seen or "have"
        elif token.lower in _SEEMING and look(tokens, end + 1).lower == "to":
            end, seen = end + 1, seen or "be"
        elif token.lower in _SEEMING and look(tokens, end + 1).tag in ADJECTIVES:
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
            if _is_particle(look(tokens, after), look(tokens, after + 1)):
                particle, after = tokens[after].lower, after + 1
            verb = Verb(shape, token.lower, not seen, negated, particle)
            return verb, after
    if passive:
        return Verb("be", "is", False, negated), end
    return None, at


def _verb_ahead(tokens: Sequence[Token], at: int) -> bool:
    while look(tokens, at).tag == "RB" or look(tokens, at).lower in w.HEDGES:
        at += 1
    tag = look(tokens, at).tag
    return tag.startswith("V") or tag in {"BE", "HV", "MD"}


_SEEMING = frozenset({"appears", "appear", "seems", "seem", "looks"})
_PARTICLES = frozenset(["up", "down", "out", "off", "away", "together", "apart", "back"])


def _is_particle(token: Token, following: Token) -> bool:
    ends = following.tag in {"", "IN", "CC", "SUB", "RB"} or token.lower in {"away", "together"}
    return token.lower in _PARTICLES and ends


LISTING = frozenset({"including", "such as", "like", "in addition to", "along with", "together with"})
"""What opens a list of examples."""


def is_subject(tokens: Sequence[Token], at: int, nouns: Sequence[Noun]) -> bool:
    """Whether the finite verb of `nouns` follows, right away or after "in the image" or "seated on a bench".

    "A man with glasses and a blue tie is writing" is about the man, "a man in a hat and a woman are" too.
    """
    listed = False
    while at < len(tokens):
        if starts_clause(tokens, at):
            return not listed or not _is_singular(tokens, at) or not is_plural(nouns)
        token = tokens[at]
        governs = token.tag in {"VBN", "JJ", "VBG"} and look(tokens, at + 1).tag == "IN"
        if governs or token.lower in {"present", "visible"}:
            at += 1
        elif token.tag == "VBG":
            found, after = read_nouns(tokens, at + 1, subject=True)
            at, listed = max(after, at + 1), listed or len(found) > 1
        elif token.tag == "IN" and token.lower not in LISTING:
            inner, after = read_nouns(tokens, at + 1, subject=True)
            if not inner:
                return False
            at, listed = after, listed or len(inner) > 1
        else:
            return False
    return False


def is_plural(nouns: Sequence[Noun]) -> bool:
    return len(nouns) > 1 or any(noun.plural for noun in nouns)


def read_governed(
    tokens: Sequence[Token], at: int, subjects: Sequence[Noun]
) -> tuple[list[Noun], list[Noun], int]:
    """What a preposition governs while `subjects` wait for their verb, and what joins these subjects."""
    nouns, end = read_nouns(tokens, at)
    if not subjects:
        return nouns, [], end
    wide, after = read_nouns(tokens, at, subject=True)
    if len(wide) < 2 or not starts_clause(tokens, after) or wide[-1].alternative is not None:
        return nouns, [], end
    if is_plural(subjects):
        return nouns, [], end
    return (wide, [], after) if _is_singular(tokens, after) else (wide[:-1], wide[-1:], after)


def _is_singular(tokens: Sequence[Token], at: int) -> bool:
    """Whether the finite verb that stands here is a singular; a modal can be both."""
    while tokens[at].tag == "RB":
        at += 1
    return tokens[at].lower in {"is", "was", "has"} or tokens[at].tag == "VBZ"


def acts_later(tokens: Sequence[Token], at: int) -> bool:
    """After "with a batter": "from the other team standing at the plate"."""
    while look(tokens, at).tag == "IN":
        inner, at = read_nouns(tokens, at + 1)
        if not inner:
            return False
        if look(tokens, at).tag == "VBG":
            return True
    return False


def list_follows(tokens: Sequence[Token], at: int, *, qualified: bool) -> bool:
    """After "the objects on the table": "include"; after "the main items" (`qualified`) also "are"."""
    following = {token.lower for token in tokens[at:]}
    return bool(following & {"include", "includes", "consist"} or (qualified and following & {"is", "are"}))


def follows(tokens: Sequence[Token], at: int, lemmas: frozenset[str]) -> bool:
    """Whether one of these nouns stands here: what is "depicted in the image" is just there."""
    nouns, _ = read_nouns(tokens, at)
    return bool(nouns) and nouns[0].lemma in lemmas
