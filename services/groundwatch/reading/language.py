"""In which language a text is written.

The words that English has decide whether it is English, since statistics of letters are often wrong about
short texts; which other language it is, py3langid says (Lui and Baldwin 2012).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import msgspec
import py3langid
from lemminflect import getAllLemmas

ENGLISH = "en"
UNKNOWN = ""

SURE = 0.5
"""With at least this share of its words among those of English, a text is English."""

LIKELY = 0.3
"""Enough where the statistics of its letters say so too."""

READ = 2_000
"""Characters that are read to tell a language."""

TELLING = 4
"""Words of a sentence that tell a language of its own."""

TELLING_LETTERS = 6
"""As `TELLING`, of scripts other than the Latin one."""

_QUOTES = tuple("\"'“”„«»‘’「『")

_WORD = re.compile(r"[^\W\d_]++(?:['’][^\W\d_]++)?+")
_SENTENCE = re.compile(r"[^.!?\n。！？]*+[.!?\n。！？]*+")


class _Words(msgspec.Struct, frozen=True):
    english: str
    other: str


def language_of(text: str, otherwise: str = UNKNOWN) -> str:
    """The ISO 639-1 code of a text's language; `otherwise` for "42", a word alone, a name."""
    words = _WORD.findall(text[:READ])
    if not words:
        return otherwise
    beginning = "".join(words[:200])
    if 2 * sum(map(_latin, beginning)) < len(beginning):
        return _classified(text)
    if len(words) == 1 and otherwise and words[0].lower() not in _common_words()[0]:
        return otherwise
    common = [word for word in words if word[0].islower()] or [
        word.lower() for word in words if word.isupper()
    ]
    if not common:
        return ENGLISH if all(_english(word.lower()) for word in words) else otherwise or _classified(text)
    share = sum(map(_english, common)) / len(common)
    lowered = [word.lower() for word in words]
    english, other = _common_words()
    foreign = sum(word in other for word in lowered) - sum(word in english for word in lowered)
    if (share >= SURE and foreign < 0) or (share >= LIKELY and foreign <= 0 and _classified(text) == ENGLISH):
        return ENGLISH
    if share >= SURE and foreign == 0:
        return otherwise or ENGLISH
    guess = _classified(text)
    return guess if guess != ENGLISH else otherwise


class Part(NamedTuple):
    """A stretch of a text, and its language."""

    start: int
    end: int
    language: str


def parts_of(text: str, otherwise: str = UNKNOWN) -> list[Part]:
    """The sentences and lines of a text with their languages; one too short to tell has that of the whole."""
    whole = language_of(text, otherwise)
    return [
        Part(sentence.start(), sentence.end(), _own_language(sentence.group(), whole) or whole)
        for sentence in _SENTENCE.finditer(text)
        if sentence.group()
    ]


def _own_language(sentence: str, whole: str) -> str:
    """The language of a sentence; unknown for one that is too short, or quoted: the image may say that.

    In a text of another language one is English by its words alone, a function word among them.
    """
    words = _WORD.findall(sentence[:READ])
    letters = "".join(words[:200])
    if sentence.lstrip()[:1] in _QUOTES or not words:
        return UNKNOWN
    if 2 * sum(map(_latin, letters)) < len(letters):
        return _classified(sentence) if len(letters) >= TELLING_LETTERS else UNKNOWN
    common = [word for word in words if word[0].islower()]
    if whole != ENGLISH and len(common) > 1 and all(map(_english, common)):
        english, _ = _common_words()
        return ENGLISH if any(word.lower() in english for word in words) else UNKNOWN
    if len(common) < TELLING and not _all_foreign(words, common):
        return UNKNOWN
    if sum(map(_english, common)) >= LIKELY * len(common):
        return UNKNOWN
    return language_of(sentence)


def _all_foreign(words: list[str], common: list[str]) -> bool:
    """Whether few words tell a language all the same: one only others have, with a word that is no name's."""
    _, other = _common_words()
    function = [word for word in words if word.lower() in other]
    told = len(function) > 2 or any(word not in other for word in common)
    return len(words) > 2 and bool(function) and told and not any(map(_english, common))


@lru_cache(maxsize=1 << 14)
def _english(word: str) -> bool:
    english, other = _common_words()
    if word in other:
        return False
    return word in english or bool(getAllLemmas(word.replace("’", "'").removesuffix("'s")))


@cache
def _common_words() -> tuple[frozenset[str], frozenset[str]]:
    """Function words and numbers of English, and those of others that English has not."""
    words = msgspec.toml.decode(files(__package__ or "").joinpath("languages.toml").read_bytes(), type=_Words)
    english = frozenset(words.english.split())
    return english, frozenset(words.other.split()) - english


@cache
def _latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith(("LATIN", "FULLWIDTH LATIN"))


def _classified(text: str) -> str:
    language, _ = py3langid.classify(text[:READ])
    return str(language)
