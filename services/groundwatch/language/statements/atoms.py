"""The pieces that statements are taken apart into, and that knowledge is held in."""

import msgspec

from groundwatch.language.lexicon import Attribute


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
