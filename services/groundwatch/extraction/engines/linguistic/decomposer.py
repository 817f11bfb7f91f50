"""Atomic facts from descriptive sub-sentences by rules of English (FaithScore, section 3.2).

An atomic fact is about one entity, one of its attributes, or two entities and what holds between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from groundwatch.events import Claim
from groundwatch.extraction.engines.linguistic.clauses import Reader
from groundwatch.extraction.engines.linguistic.tagging import tag


def decompose(texts: Sequence[str], descriptive: Sequence[bool]) -> tuple[Claim, ...]:
    """The facts of one answer's sub-sentences, each once, in order.

    Analytical sub-sentences give no facts, but what they speak of is what a later "it" may mean.
    """
    reader = Reader()
    claims: dict[str, Claim] = {}
    for index, (text, describes) in enumerate(zip(texts, descriptive, strict=True)):
        for fact in reader.read(tag(text), opens_sentence=text[:1].isupper()):
            if describes:
                claims.setdefault(
                    fact.text.lower(), Claim(text=fact.text, category=fact.category, unit=index)
                )
    return tuple(claims.values())
