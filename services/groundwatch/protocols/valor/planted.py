"""What VALOR's subsets see of planted hallucinations, and captions' references as they read them."""

from groundwatch.events import Reference
from groundwatch.language.numbers import NUMBER_WORDS
from groundwatch.protocols.features import pair_text
from groundwatch.protocols.planted import Kind, named_things, related
from groundwatch.protocols.valor.scoring import Subset

SEES = {
    Subset.OBJECT_EXISTENCE: (Kind.OBJECT, Kind.THING),
    Subset.ATTRIBUTE_OBJECT: (Kind.COLOR, Kind.COUNT),
    Subset.ATTRIBUTE_PEOPLE: (Kind.CLOTHING,),
    Subset.RELATION_POSITIONAL: (Kind.POSITION,),
    Subset.RELATION_COMPARATIVE: (Kind.COMPARISON,),
}


def planted_reference(reference: Reference, subset: Subset) -> Reference:
    """A caption's reference as the subset's features."""
    match subset:
        case Subset.OBJECT_EXISTENCE:
            return named_things(reference)
        case Subset.ATTRIBUTE_OBJECT | Subset.ATTRIBUTE_PEOPLE:
            return Reference(objects=tuple(_pairs(reference)), complete=True)
        case Subset.RELATION_POSITIONAL:
            texts = (_sentence(*triplet) for triplet in related(reference))
            return Reference(objects=tuple(dict.fromkeys(texts)), complete=True)
        case Subset.RELATION_COMPARATIVE:
            return reference


def _pairs(reference: Reference) -> list[str]:
    counts = {
        subject: NUMBER_WORDS[number]
        for subject, relation, number in reference.triplets
        if relation == "count" and number in NUMBER_WORDS
    }
    return [
        pair_text(value, subject)
        for subject, relation, value in reference.triplets
        if relation == "is"
        for _ in range(counts.get(subject, 1))
    ]


def _sentence(subject: str, relation: str, thing: str) -> str:
    finite = relation.split()[0].endswith("s") and relation.split()[0] not in ("across",)
    return f"{subject} {relation} {thing}" if finite else f"{subject} is {relation} {thing}"
