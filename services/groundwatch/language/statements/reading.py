"""Texts, triplets and names of a reference, read into statements."""

from functools import lru_cache

from groundwatch.language.lexicon import Lexicon, lexicon, noun_phrases
from groundwatch.language.lexicon.phrases import DETERMINERS, MAX_WORDS
from groundwatch.language.statements.atoms import Exists, Number, Statement, about
from groundwatch.language.statements.grammar import Reader
from groundwatch.language.tokens import plain_words

_NEGATIONS = frozenset({"no", "not", "never", "none"})
_EMPTY = DETERMINERS | frozenset({"there", "and", ",", "'s", "of", "or", "some"})


KEPT_CHARACTERS = 300
"""Longer texts are read anew each time, so that the cache stays small."""


def statement(text: str) -> Statement:
    """Read one sentence. Never fails: a text beyond the grammar keeps its words and asserts nothing."""
    return _kept(text) if len(text) <= KEPT_CHARACTERS else _read(text)


@lru_cache(maxsize=8192)
def _kept(text: str) -> Statement:
    return _read(text)


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
