"""Tri-HE's triplets from the decomposer's facts (section 3.3, by rules in the place of an LLM).

A relation or a quality is a triplet, with articles and the verb "to be" before another verb or a preposition
left out: ("man", "riding", "horse"), ("horse", "is", "brown"). That something is there at all is no triplet,
for it has no second object.
"""

from collections.abc import Sequence

from groundwatch.events import Claim
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.rendering import COLOR, COUNT, OTHER, AtomicFact
from groundwatch.protocols.triplets import Triplet, claim_of

_BE = frozenset({"is", "are"})


def triplets(facts: Sequence[AtomicFact]) -> tuple[Claim, ...]:
    """The triplets of one answer, each once, in the facts' order and with their sub-sentences."""
    found: dict[Triplet, Claim] = {}
    for fact in facts:
        if fact.subject and (triplet := _triplet(fact)):
            found.setdefault(triplet, claim_of(triplet, unit=fact.unit))
    return tuple(found.values())


def _triplet(fact: AtomicFact) -> Triplet | None:
    """ "The birds fly away" is ("birds", "is", "flying away"), in the words of scene graphs."""
    subject, (verb, *rest) = _without_article(fact.subject), fact.relation.split()
    if fact.category == COUNT:
        return subject, verb, fact.object
    if fact.category in (COLOR, OTHER) and verb in _BE:
        return subject, verb, _without_article(" ".join([*rest, fact.object]).strip())
    if not fact.object:
        if verb in w.AUXILIARIES:
            return None
        return subject, "is", " ".join([w.inflect(w.verb(verb), "VBG"), *rest])
    relation = rest if verb in _BE and rest and rest[0] != "not" else [verb, *rest]
    return subject, " ".join(relation), _without_article(fact.object)


def _without_article(phrase: str) -> str:
    first, _, rest = phrase.partition(" ")
    owned = first.lower() in w.DETERMINERS | w.POSSESSIVES and phrase != "each other"
    return rest if rest and owned else phrase
