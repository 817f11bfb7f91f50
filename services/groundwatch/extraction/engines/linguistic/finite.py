"""Verbs in the present tense, which a newspaper's tagger takes for nouns: "a net lies on the boards"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.language.lexicon import singular

if TYPE_CHECKING:
    from groundwatch.extraction.engines.linguistic.tagging import Token

_NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
_INNER = frozenset({"NN", "NNP", "JJ", "VBN", "VBG"})
_SINGLE = frozenset({"a", "an", "another", "each", "every", "one"})
_AFTER_PEOPLE = frozenset({"", "IN", "RB", "DT", "PRP$", "TO", "SUB", "CC", "RP"})


def is_third_person(tokens: Sequence[Token], at: int) -> bool:
    """Whether a word in -s must be a verb: after "a net" no plural can stand, nor before "the stall"."""
    word = tokens[at].lower
    if not may_be_third_person(word):
        return False
    before = tokens[at - 1] if at else None
    if before is None:
        return False
    article = at + 1 < len(tokens) and tokens[at + 1].lower in w.ARTICLES | w.POSSESSIVES
    if before.tag == "CC":
        return article and any(token.tag in {"VBZ", "BE"} for token in tokens[:at])
    if article and (before.lower in {"this", "that"} or before.lower in w.COLORS):
        return True
    if before.tag not in {"NN", "NNP"}:
        return False
    if article:
        return True
    following = tokens[at + 1].tag if at + 1 < len(tokens) else ""
    if w.person(singular(before.lower)) and following in _AFTER_PEOPLE:
        return True
    at -= 1
    while at > 0 and tokens[at].tag in _INNER:
        at -= 1
    return tokens[at].lower in _SINGLE


def may_be_third_person(word: str) -> bool:
    """Whether a word is the -s form of a verb."""
    if not word.endswith("s") or word.endswith("ss") or word in w.PLURAL_ONLY:
        return False
    verb = w.verb(word)
    return bool(verb) and w.inflect(verb, "VBZ") == word


def is_plural_present(tokens: Sequence[Token], at: int) -> bool:
    """ "Both men wear hats", "a man and a woman stand on a hill": what the tagger calls an infinitive."""
    token = tokens[at]
    if at == 0 or token.tag not in {"VB", "VBP"} or w.verb(token.lower) != token.lower:
        return False
    before = tokens[at - 1]
    following = tokens[at + 1].tag if at + 1 < len(tokens) else ""
    if following not in _AFTER_PEOPLE | {"NNS", "JJ", "CD"} or not w.person(singular(before.lower)):
        return False
    if before.tag == "NNS":
        return True
    return before.tag == "NN" and any(other.tag == "CC" for other in tokens[:at])


def present(word: str, previous: str, following: str, after: Token | None) -> str:
    """The tag of a word as a verb in the present by what stands around it, "" when it is none."""
    object_follows = following in {"DT", "PRP$", "CD", "JJ"} or (
        after is not None and after.lower in w.DETERMINERS
    )
    if word.endswith("s") and not word.endswith("ss"):
        subject = previous in _NOUNS | {"PRP", "W", "PRO"} or previous == "RB"
        preposition = after is not None and after.lower in w.PREPOSITIONS
        if subject and (
            object_follows or (preposition and previous in {"PRP", "W"}) or previous in {"PRP", "W"}
        ):
            return "VBZ"
        if subject and preposition and not w.lemmas(word).get("NOUN"):
            return "VBZ"
        return ""
    if previous in {"NNS", "PRP", "W"} and (object_follows or following == "IN" or previous in {"PRP", "W"}):
        return "VBP"
    if previous in {"TO", "MD"}:
        return "VB"
    return ""


def governed(tokens: Sequence[Token], at: int) -> bool:
    """Whether the nouns before this word are a preposition's: then they are nobody's subject."""
    at -= 1
    while at >= 0 and tokens[at].tag in _NOUNS | {"JJ", "JJR", "JJS", "DT", "PRP$", "CD", "POS"}:
        at -= 1
    return at >= 0 and tokens[at].tag == "IN" and tokens[at].lower not in {"of", "with"}


def has_finite(tokens: Sequence[Token], at: int) -> bool:
    """Whether the clause of this word has its finite verb before it."""
    found = False
    for other in tokens[:at]:
        if other.tag in {"BE", "MD", "VBZ", "VBP"}:
            found = True
        elif other.tag in {"W", "SUB", "CC"}:
            found = False
    return found
