"""Closed classes of English that the decomposer's rules ask for, and what lemminflect knows of a word.

The words of each class, and what it is for, are in `words.toml`: a class `colors` there is `COLORS` here.
"""

from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from groundwatch.language.lexicon import singular
from groundwatch.language.tokens import NUMBER_WORDS

_DATA = resources.files("groundwatch.extraction.engines.linguistic").joinpath("words.toml").read_bytes()
LISTS = {
    name.upper(): frozenset(words.split() if isinstance(words, str) else words)
    for name, words in msgspec.toml.decode(_DATA, type=dict[str, str | list[str]]).items()
}
globals().update(LISTS)

NUMBERS = frozenset(NUMBER_WORDS) | {"dozen"}
_PERSONAL = tuple(sorted(LISTS["PERSONAL"]))
_ABSTRACT = ("ness", "ity", "ism", "ance", "ence", "tion", "sion")

if TYPE_CHECKING:

    def __getattr__(name: str) -> frozenset[str]: ...


@lru_cache(maxsize=8192)
def lemmas(word: str) -> dict[str, tuple[str, ...]]:
    from lemminflect import getAllLemmas

    return dict(getAllLemmas(word))


@lru_cache(maxsize=8192)
def verb(word: str) -> str:
    """The infinitive of a verb form, "" when the word can be none."""
    found = lemmas(word).get("VERB", ())
    return found[0] if found else ""


@lru_cache(maxsize=8192)
def is_plural(word: str) -> bool:
    return singular(word) != word and "NOUN" in lemmas(word)


@lru_cache(maxsize=8192)
def person(word: str) -> bool:
    """Whether a singular noun names a person, by list or by its ending."""
    return word in LISTS["PEOPLE"] or word.endswith(_PERSONAL)


@lru_cache(maxsize=8192)
def abstract(word: str) -> bool:
    """Whether a singular noun names no thing that can be seen, by list or by its ending."""
    listed = word in LISTS["NOT_THINGS"]
    return listed or (word.endswith(_ABSTRACT) and word not in LISTS["SEEN_ALL_THE_SAME"])


@lru_cache(maxsize=8192)
def inflect(word: str, tag: str) -> str:
    """An infinitive or a singular in the form that the Penn Treebank `tag` names."""
    from lemminflect import getInflection

    found = getInflection(word, tag)
    return found[0] if found else word
