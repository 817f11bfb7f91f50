"""What a noun phrase names: a thing in the picture, the picture itself, a place in it, or nothing visible."""

from __future__ import annotations

from collections.abc import Sequence

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.phrases import Noun, Verb


def core(noun: Noun) -> Noun:
    """ "a group of people" is people."""
    while noun.of is not None and (
        noun.lemma in w.SHELLS | w.PICTURES or (noun.lemma in w.SPOTS and not is_thing(noun))
    ):
        inner = noun.of
        if inner.pronoun and noun.lemma in w.PICTURES:
            return noun
        noun = inner
    return noun


def counted(noun: Noun) -> bool:
    """Whether it has a number worth a fact."""
    return bool(noun.number) and noun.number not in {"one", "1"}


def is_bare(noun: Noun) -> bool:
    """Whether it is "display" in "on display": no thing, for all its looks."""
    if noun.determiner or noun.number or noun.plural or noun.adjectives or noun.possessor is not None:
        return False
    return len(noun.nouns) == 1 and noun.head not in w.MASS


def is_picture(noun: Noun) -> bool:
    """Whether it is the picture itself rather than a thing in it."""
    return noun.lemma in w.PICTURES


def is_person(nouns: Sequence[Noun]) -> bool:
    """Whether these are people."""
    return bool(nouns) and w.person(nouns[0].lemma)


def is_thing(noun: Noun) -> bool:
    """Whether it can be seen in the picture: no view, no place in it, nothing abstract."""
    if noun.determiner in {"no", "any"}:
        return False
    if noun.lemma in w.AREAS:
        return len(noun.nouns) > 1 or not w.POSITIONAL.issuperset(noun.adjectives)
    if noun.is_compound:
        return True
    if noun.lemma in w.PICTURES | w.SPOTS | w.QUALITIES:
        return False
    return bool(noun.nouns) and not w.abstract(noun.lemma)


def says_something(subject: Noun, verb: Verb) -> bool:
    """ "The purpose includes a book", "these colours feature a man": only the book and the man are there."""
    unseen = w.abstract(subject.lemma) or subject.lemma in w.QUALITIES
    return not (unseen and verb.lemma in w.SHOWING | {"have"})


def names_it_again(subject: Noun, noun: Noun) -> bool:
    """ "The room is a living room": the living room has been stated."""
    return noun.lemma == subject.lemma and len(noun.nouns) > 1


def is_frameless_side(noun: Noun) -> bool:
    """ "on the left side", of nothing that is named: no place that could be checked."""
    owned = noun.of is not None or noun.possessor is not None or noun.determiner in w.POSSESSIVES
    return noun.lemma in w.SIDES and not owned
