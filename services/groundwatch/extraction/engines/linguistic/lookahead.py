"""What the words further on say about the phrase just read."""

from collections.abc import Sequence

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.phrases import Noun, read_nouns, starts_clause
from groundwatch.extraction.engines.linguistic.tagging import Token

LISTING = frozenset({"including", "such as", "like", "in addition to", "along with", "together with"})
"""What opens a list of examples."""


def is_subject(tokens: Sequence[Token], at: int, nouns: Sequence[Noun]) -> bool:
    """Whether the finite verb of `nouns` follows, right away or after "in the image" or "seated on a bench".

    "A man with glasses and a blue tie is writing" is about the man, "a man in a hat and a woman are" too.
    """
    listed = False
    while at < len(tokens):
        if starts_clause(tokens, at):
            return not listed or not _is_singular(tokens, at) or not is_plural(nouns)
        token = tokens[at]
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if (
            token.tag in {"VBN", "JJ", "VBG"} and following is not None and following.tag == "IN"
        ) or token.lower in {"present", "visible"}:
            at += 1
        elif token.tag == "VBG":
            found, after = read_nouns(tokens, at + 1, subject=True)
            at, listed = max(after, at + 1), listed or len(found) > 1
        elif token.tag == "IN" and token.lower not in LISTING:
            inner, after = read_nouns(tokens, at + 1, subject=True)
            if not inner:
                return False
            at, listed = after, listed or len(inner) > 1
        else:
            return False
    return False


def is_plural(nouns: Sequence[Noun]) -> bool:
    return len(nouns) > 1 or any(noun.plural for noun in nouns)


def read_governed(
    tokens: Sequence[Token], at: int, subjects: Sequence[Noun]
) -> tuple[list[Noun], list[Noun], int]:
    """What a preposition governs while `subjects` wait for their verb, and what joins these subjects."""
    nouns, end = read_nouns(tokens, at)
    if not subjects:
        return nouns, [], end
    wide, after = read_nouns(tokens, at, subject=True)
    if len(wide) < 2 or not starts_clause(tokens, after) or wide[-1].alternative is not None:
        return nouns, [], end
    if is_plural(subjects):
        return nouns, [], end
    return (wide, [], after) if _is_singular(tokens, after) else (wide[:-1], wide[-1:], after)


def _is_singular(tokens: Sequence[Token], at: int) -> bool:
    """Whether the finite verb that stands here is a singular; a modal can be both."""
    while tokens[at].tag == "RB":
        at += 1
    return tokens[at].lower in {"is", "was", "has"} or tokens[at].tag == "VBZ"


def acts_later(tokens: Sequence[Token], at: int) -> bool:
    """After "with a batter": "from the other team standing at the plate"."""
    while at < len(tokens) and tokens[at].tag == "IN":
        inner, after = read_nouns(tokens, at + 1)
        if not inner:
            return False
        at = after
        if at < len(tokens) and tokens[at].tag == "VBG":
            return True
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
