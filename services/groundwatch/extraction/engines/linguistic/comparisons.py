"""Comparisons: "larger than", "as big as" and "the same color as" govern what they compare with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.language.lexicon import singular

if TYPE_CHECKING:
    from groundwatch.extraction.engines.linguistic.tagging import Token

_SHAPE = re.compile(r".+ than|as .+ as|the same .+ as")
_MORE = frozenset({"more", "less"})
_UNCOUNTED = frozenset({"more", "less", "fewer"})


def compares(preposition: str) -> bool:
    """Whether a token that governs a noun compares with it."""
    return _SHAPE.fullmatch(preposition) is not None


def compared(tokens: Sequence[Token], at: int) -> tuple[int, str, str]:
    """The number of words of the comparison that begins here, 0 for none, with its text and its tag.

    How much larger is left out, and so is the number in "more than two balls": some number is there.
    """
    start = at
    if tokens[at].lower == "a" and at + 1 < len(tokens) and tokens[at + 1].lower in {"bit", "little", "lot"}:
        at += 1
    if at + 1 < len(tokens) and tokens[at].lower in w.DEGREES:
        at += 1
    words = [token.lower for token in tokens[at : at + 4]]
    match words:
        case [more, "than", number, *_] if more in _UNCOUNTED and _is_number(number):
            return at - start + 3, " ".join(words[:3]), "RB"
        case [word, "than", *_] if _is_comparative(tokens[at]):
            return at - start + 2, f"{word} than", "IN"
        case [more, _, "than", *_] if more in _MORE and _describes(tokens[at + 1]):
            return at - start + 3, " ".join(words[:3]), "IN"
        case [_, "and", _, "than"] if _is_comparative(tokens[at]) and _is_comparative(tokens[at + 2]):
            return at - start + 4, " ".join(words), "IN"
        case ["as", _, "as", *_] if _describes(tokens[at + 1]):
            return at - start + 3, " ".join(words[:3]), "IN"
        case ["the", "same", quality, "as"] if quality in w.QUALITIES or singular(quality) in w.QUALITIES:
            return at - start + 4, " ".join(words), "IN"
    return 0, "", ""


def _is_number(word: str) -> bool:
    return word in w.NUMBERS or word.isdigit()


def _is_comparative(token: Token) -> bool:
    if token.lower in {"other", "rather"} | _UNCOUNTED:
        return False
    return token.tag in {"JJR", "RBR"} or (token.lower.endswith("er") and "ADJ" in w.lemmas(token.lower))


def _describes(token: Token) -> bool:
    known = w.lemmas(token.lower)
    return token.tag.startswith("JJ") or (
        "ADJ" in known and token.lower not in {"well", "soon", "long", "far"}
    )
