"""The grammar of a sub-sentence as features of the recogniser.

Descriptions name things with participles ("standing", "placed"); analysis names abstractions and has
modals, infinitives and verbs such as "suggest".
"""

from __future__ import annotations

from functools import lru_cache

from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.tagging import NOUNS, tag
from groundwatch.language.lexicon import singular

COUNT = 20


@lru_cache(maxsize=4096)
def grammar(text: str) -> tuple[float, ...]:
    """Parts of speech that occur, with which one it begins, and the share of abstract nouns; 0.0 to 1.0."""
    tokens = tag(text)
    tags = [token.tag for token in tokens]
    present = set(tags)
    nouns = [singular(token.lower) for token in tokens if token.tag in NOUNS]
    abstract = sum(w.abstract(noun) or noun in w.QUALITIES for noun in nouns)
    verbs = {w.verb(token.lower) for token in tokens if token.tag.startswith("VB")}
    first = tags[0] if tags else ""
    return (
        min(abstract, 3) / 3,
        float(bool(nouns)),
        abstract / max(1, len(nouns)),
        float("MD" in present),
        float("VBG" in tags[:2]),
        float("VBN" in present),
        float("EX" in present),
        float(bool(present & {"VBZ", "VBP"})),
        float("BE" in present),
        float(bool(present & {"VB", "TO"})),
        float(first == "IN"),
        float(first == "DT"),
        float(first == "PRP"),
        float(first == "W"),
        float(first == "SUB"),
        float(bool(verbs & w.INTERPRETING)),
        float(bool(verbs & w.SHOWING)),
        float(bool(verbs & w.DONE_BY_PEOPLE)),
        float(not any(one.startswith("V") or one in {"BE", "HV", "MD"} for one in tags)),
        float("JJR" in present),
    )
