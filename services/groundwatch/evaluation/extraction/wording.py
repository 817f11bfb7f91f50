"""What a fact says whatever its wording: "There is a red dog." and "The dog is red." say the same."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from groundwatch.language.tokens import NUMBER_WORDS


class _Lists(msgspec.Struct, frozen=True):
    articles: str
    be: str
    helpers: str
    fillers: str
    denials: str
    either: str
    colors: str
    neutral: str
    holders: str
    no_things: str
    opposites: list[str]
    places: dict[str, str]
    lemmas: dict[str, str]


_LISTS = msgspec.toml.decode(
    resources.files("groundwatch.evaluation.extraction").joinpath("words.toml").read_bytes(), type=_Lists
)
ARTICLES, BE, FILLERS = (frozenset(words.split()) for words in (_LISTS.articles, _LISTS.be, _LISTS.fillers))
DENIALS, EITHER, COLORS = (
    frozenset(words.split()) for words in (_LISTS.denials, _LISTS.either, _LISTS.colors)
)
NEUTRAL, HELPERS = frozenset(_LISTS.neutral.split()), frozenset(_LISTS.helpers.split())
OPPOSITES = [frozenset(words.split()) for words in _LISTS.opposites]
PLACES = {word: place for place, words in _LISTS.places.items() for word in words.split()}
NUMBERS = {word: str(number) for word, number in NUMBER_WORDS.items()}

_HOLDER = re.compile(
    rf"\b({'|'.join(_LISTS.holders.split())}) of (?:[a-z-]+ )??[a-z-]+"
    r"(?= (?:is|are|has|have|lies|lie|sits|stands|hangs|on|in|at)\b|[.]?$)"
)
_SPELLINGS = (
    (re.compile(r"can't|cannot"), "can not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"\bno one\b"), "nobody"),
    (re.compile(r"\bhalf a dozen\b"), "6"),
    (re.compile(r"\b(?:a |one )?dozen\b(?!s)"), "12"),
    (re.compile(r"\bon (?:the )?top of\b"), "on"),
    (re.compile(r"\bin front of\b"), "_infrontof"),
    (re.compile(r"\bnext to\b"), "_nextto"),
    (re.compile(r"\b\w+'s\b |\b\w+s' "), ""),
    (re.compile(r"(?<=\d),(?=\d)"), ""),
    (_HOLDER, r"\1"),
)
_TOKEN = re.compile(r"\$?\d+(?:[.:/]\d+)*%?|[^\W\d_]+(?:-[^\W_]+)*|_\w+|\d+\w*")
_TWO_DENIALS = re.compile(r"\b(?:an?|the) (?:no|neither|none|nobody|nothing)\b")


class Wording(NamedTuple):
    """A fact's form, what it is about, the rest of its words, and whether it denies.

    `form` is "exists" for a thing with its qualities, "is" for what a thing is, "place" for "There is …" with
    a place, "relation" otherwise.
    """

    form: str
    about: tuple[str, ...]
    rest: frozenset[str] | tuple[str, ...]
    denied: bool


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    word = _LISTS.lemmas.get(word, word)
    if word in NUMBERS:
        return NUMBERS[word]
    return word if len(word) < 4 or any(map(str.isdigit, word)) else _stemmer().stem(word)


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


@lru_cache(maxsize=100_000)
def words(text: str) -> tuple[str, ...]:
    """The words of a fact in one spelling: without owners, and a holder without what it holds."""
    lowered = text.lower().replace("’", "'").replace("‘", "'")
    for pattern, spelling in _SPELLINGS:
        lowered = pattern.sub(spelling, lowered)
    return tuple(_TOKEN.findall(lowered))


@lru_cache(maxsize=100_000)
def denies(text: str) -> bool | None:
    """Whether a fact is a denial; None where it can be taken for either."""
    if _TWO_DENIALS.search(text.lower()):
        return None
    spelt = set(words(text)) | set(re.findall(r"[a-z'-]+", text.lower()))
    if spelt & DENIALS:
        return True
    return None if spelt & EITHER else False


@lru_cache(maxsize=100_000)
def wording(text: str) -> Wording:
    denied, spelt = denies(text) is True, list(words(text))
    if spelt[:1] == ["there"] and len(spelt) > 2 and spelt[1] in BE:
        thing = [word for word in content(spelt[2:]) if word not in DENIALS]
        if thing and not any(word in PLACES or word in NEUTRAL - {"and"} for word in thing):
            stems = [stem(word) for word in thing if word != "and"]
            if stems:
                return Wording("exists", (stems[-1],), frozenset(stems[:-1]), denied)
        return Wording("place", tuple(map(stem, thing)), (), denied)
    cut = next((at for at, word in enumerate(spelt) if word in BE), 0)
    if cut and not any(word in PLACES or word in NEUTRAL for word in spelt[:cut]):
        copular = _copular(spelt[:cut], spelt[cut + 1 :], denied)
        if copular is not None:
            return copular
    said = [word for word in content(spelt) if word not in BE | DENIALS | HELPERS]
    return Wording("relation", tuple(map(stem, said)), (), denied)


def _copular(before: list[str], behind: list[str], denied: bool) -> Wording | None:
    """ "The dog is red": the dog with a quality; "The man is a cook": what he is."""
    subject = [stem(word) for word in content(before) if word not in DENIALS]
    predicate = [word for word in behind if word not in DENIALS]
    if subject and predicate[:1] in (["a"], ["an"]):
        stems = [stem(word) for word in content(predicate)]
        if stems and stems[-1] == subject[-1]:
            return Wording("exists", (stems[-1],), frozenset(stems[:-1]), denied)
        return Wording("is", tuple(subject), tuple(stems), denied)
    if predicate[:2] == ["made", "of"]:
        predicate = predicate[2:]
    predicate = content(predicate)
    if not subject or not 0 < len(predicate) <= 4:
        return None
    if any(word in PLACES or word in NEUTRAL - {"and"} for word in predicate):
        return None
    qualities = [stem(word) for whole in predicate if whole != "and" for word in _colors(whole)]
    if len(qualities) != 1 and re.search(r"(?:ing|ed|en)$", predicate[0]):
        return None
    return Wording("exists", (subject[-1],), frozenset(subject[:-1]) | frozenset(qualities), denied)


def _colors(word: str) -> list[str]:
    """ "red-and-white" is red and white; other compounds stay."""
    parts = [part for part in word.split("-") if part != "and"]
    return parts if set(parts) <= COLORS else [word]


def content(spelt: list[str] | tuple[str, ...]) -> list[str]:
    return [word for word in spelt if word not in ARTICLES and word not in FILLERS]


def is_existence(text: str) -> bool:
    return text.lower().startswith("there ")


NO_THINGS = frozenset(map(stem, _LISTS.no_things.split())) | {"2", "3"}
