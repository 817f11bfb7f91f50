"""What the words further on say about the phrase just read."""

from __future__ import annotations

from collections.abc import Sequence

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.phrases import read_nouns, starts_clause
from groundwatch.extraction.engines.linguistic.tagging import Token

LISTING = frozenset({"including", "such as", "like", "in addition to", "along with", "together with"})
"""What opens a list of examples."""


def is_subject(tokens: Sequence[Token], at: int) -> bool:
    """Whether a finite verb follows, right away or after "in the image" or "seated on a bench"."""
    while at < len(tokens):
        if starts_clause(tokens, at):
            return True
        token = tokens[at]
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if token.tag in {"VBN", "JJ", "VBG"} and following is not None and following.tag == "IN":
            at += 1
        elif token.tag == "VBG":
            _, after = read_nouns(tokens, at + 1)
            at = max(after, at + 1)
        elif token.tag == "IN" and token.lower not in LISTING:
            inner, after = read_nouns(tokens, at + 1)
            if not inner:
                return False
            at = after
        else:
            return False
    return False


def list_follows(tokens: Sequence[Token], at: int, *, qualified: bool) -> bool:
    """After "the objects on the table": "include"; after "the main items" (`qualified`) also "are"."""
    following = {token.lower for token in tokens[at:]}
    return bool(following & {"include", "includes", "consist"} or (qualified and following & {"is", "are"}))


def spot_follows(tokens: Sequence[Token], at: int) -> bool:
    """After "with hills in": "the background" makes them nobody's."""
    nouns, _ = read_nouns(tokens, at)
    return bool(nouns) and nouns[0].lemma in w.SPOTS | w.PICTURES


def picture_follows(tokens: Sequence[Token], at: int) -> bool:
    """Whether "the image" stands here: what is "depicted in the image" is just there."""
    nouns, _ = read_nouns(tokens, at)
    return bool(nouns) and nouns[0].lemma in w.PICTURES
