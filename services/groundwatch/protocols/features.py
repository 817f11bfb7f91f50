"""Features of an image as texts: how a response's reference and its claims write them.

A feature is a name, an "(attribute, object)" pair, a relation or a rank's object; it may have several
wordings that are right.
"""

import re

Features = tuple[tuple[str, ...], ...]

OBJECT, ATTRIBUTE, RELATION, RANK = "object", "attribute", "relation", "rank"
"""Categories of such claims: how the matching compares them."""

_BETWEEN = " | "
_PAIR = re.compile(r"\(([^()]*)\)")


def plain(text: str) -> str:
    """A feature as it is compared: case, white space and a leading article do not matter."""
    words = text.casefold().replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    return " ".join(words[1:] if len(words) > 1 and words[0] in ("a", "an", "the") else words)


def written(wordings: tuple[str, ...]) -> str:
    """A feature as one text, as a response's reference carries it: its wordings with bars between them."""
    return _BETWEEN.join(wordings)


def read_written(text: str) -> tuple[str, ...]:
    """The wordings of a feature that is one text; without bars, slashes or pairs part alternatives."""
    parts = tuple(part.strip() for part in text.split(_BETWEEN.strip()) if part.strip())
    if len(parts) != 1:
        return parts
    pairs = attribute_pairs(text)
    if pairs:
        return alternatives_of_pair(text) if len(pairs) > 1 else parts
    return alternatives(text)


def alternatives(text: str) -> tuple[str, ...]:
    """All names of a thing such as "ground / court": the whole, then each part."""
    parts = [part.strip() for part in text.split("/")]
    kept = [part for part in parts if part]
    return (text.strip(), *kept) if len(kept) > 1 else (text.strip(),)


def attribute_pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for inside in _PAIR.findall(text):
        attribute, comma, thing = inside.rpartition(",")
        pairs.append((attribute.strip() if comma else "", thing.strip()))
    return tuple(pairs)


def pair_text(attribute: str, thing: str) -> str:
    return f"({attribute}, {thing})"


def alternatives_of_pair(text: str) -> tuple[str, ...]:
    """The whole text of several pairs, then each; of one pair only that. Raises `ValueError` without any."""
    pairs = [pair_text(*pair) for pair in attribute_pairs(text)]
    if not pairs:
        raise ValueError(f"expected '(attribute, object)', not '{text}'")
    return (text.strip(), *pairs) if len(pairs) > 1 else (pairs[0],)
