"""Atomic facts from descriptive sub-sentences by rules of English (FaithScore, section 3.2).

An atomic fact is about one entity, one of its attributes, or two entities and what holds between them.
"""

from collections.abc import Iterable, Sequence

import msgspec

from groundwatch.events import Claim
from groundwatch.extraction.engines.linguistic.clauses import Reader
from groundwatch.extraction.engines.linguistic.rendering import AtomicFact
from groundwatch.extraction.engines.linguistic.tagging import tag


def atomic_facts(texts: Sequence[str], descriptive: Sequence[bool]) -> tuple[AtomicFact, ...]:
    """The facts of one answer's sub-sentences, each once, in order.

    Analytical sub-sentences give no facts, but what they speak of is what a later "it" may mean.
    """
    reader = Reader()
    facts: dict[str, AtomicFact] = {}
    for index, (text, describes) in enumerate(zip(texts, descriptive, strict=True)):
        for fact in reader.read(tag(text), opens_sentence=text[:1].isupper()):
            if describes:
                facts.setdefault(fact.text.lower(), msgspec.structs.replace(fact, unit=index))
    return tuple(facts.values())


def decompose(texts: Sequence[str], descriptive: Sequence[bool]) -> tuple[Claim, ...]:
    """`atomic_facts` as claims."""
    return as_claims(atomic_facts(texts, descriptive))


def as_claims(facts: Iterable[Claim]) -> tuple[Claim, ...]:
    """Facts as claims travel: without what only the readers of facts need."""
    return tuple(
        Claim(text=one.text, category=one.category, unit=one.unit) if isinstance(one, AtomicFact) else one
        for one in facts
    )
