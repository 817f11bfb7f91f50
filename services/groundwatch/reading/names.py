"""What the things of a graph are called."""

from __future__ import annotations

import re
from functools import lru_cache

from groundwatch.reading.graph import Naming
from groundwatch.reading.inflection import NAMES, head, is_plural, with_head
from groundwatch.reading.word_lists import WORDS

ARTICLE = re.compile(r"^(?:an?|the|his|her|its|their|any|some|this|that|these|those|no)\s+", re.I)
_ONE = re.compile(r"\bones?\b", re.I)
_OTHERS = re.compile(r"\bothers$", re.I)
_OF_THEM = re.compile(r"(?<!\s)\s++of\s++(?:them|these|those|which|whom)\b.*$", re.I)
_PLACE = re.compile(
    r"(?<!\s)\s++(?:on|in|at|near|behind|with|to|from|under|nearest|closest|by|beside)\s", re.I
)


def bare(name: str) -> str:
    """A name without its article, in lower case."""
    return ARTICLE.sub("", name.strip()).lower()


def compose(own: str, noun: str, naming: Naming) -> str:
    """The name of a part by its own words and the noun of the whole.

    "the other" of two sisters is the other sister, "the taller one" of two men the taller man, "two on the
    left" of four cups are two cups on the left.
    """
    if naming is Naming.OTHER:
        return noun
    if naming is Naming.OWN:
        return own
    plural = naming is Naming.OWN_AND_PLURAL
    noun = with_head(ARTICLE.sub("", noun), plural=plural)
    own = _OTHERS.sub("other", _OF_THEM.sub("", own))
    if own.lower() != "one" and (one := _ONE.search(own)) and not own.lower().startswith("one "):
        return own[: one.start()] + noun + own[one.end() :]
    if place := _PLACE.search(own):
        return f"{own[: place.start()]} {noun}{own[place.start() :]}"
    return f"{own} {noun}"


_MASS = WORDS["mass"]
_DETERMINED = re.compile(r"(?:an?|the|some|no|one|another|each|both|all|\d+)\b", re.I)
_PROPER = re.compile(r"[A-Z][\w’']+(?: (?:of |the |de |and )*[A-Z][\w’']*)*$")
_VOWEL = re.compile(r"[aeio]|un(?!i)|hour|honest|u(?!ni|se|s\b)", re.I)
_WITHOUT_THE = re.compile(
    r"(?:an?|the|one|no|some|nobody|no-one|someone|nothing|everyone|each|every|both|all|his|her|its|their|another|\d+)\b",
    re.I,
)


@lru_cache(maxsize=NAMES)
def indefinite(name: str) -> str:
    """ "a cat", "an owl", "dogs", "water", "Big Ben"."""
    if _DETERMINED.match(name) or is_plural(name) or head(name).lower() in _MASS or _PROPER.match(name):
        return name
    return ("an " if _VOWEL.match(name) else "a ") + name


@lru_cache(maxsize=NAMES)
def the(name: str) -> str:
    """ "the cat", "one cat", "Big Ben"."""
    return name if _WITHOUT_THE.match(name) or _PROPER.match(name) else f"the {name}"
