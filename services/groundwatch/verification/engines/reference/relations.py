"""How two relations bear on each other: one implies the other, or rules it out."""

from groundwatch.language.lexicon import Lexicon
from groundwatch.language.statements import Atom, Exists, Has, Number, Relates


def entails(
    known: Relates, claim: Relates, words: Lexicon, *, loose: bool = False, strict: bool = False
) -> bool:
    """Whether the known relation makes the claimed one true.

    `loose`: "something" may be anything. A bare place ("on") leaves the posture open, so that "standing
    on" follows from it, but not when `strict`.
    """
    return (
        _covers(known.subject, claim.subject, words, loose=loose)
        and (not claim.object or _covers(known.object, claim.object, words, loose=loose))
        and _predicate(known, claim, words, strict=strict)
    )


def _covers(narrow: str, broad: str, words: Lexicon, *, loose: bool) -> bool:
    return words.is_a(narrow, broad) or (loose and broad in words.nouns.indefinite)


def _predicate(known: Relates, claim: Relates, words: Lexicon, *, strict: bool) -> bool:
    relations = words.relations
    verbs = words.entailed_verbs(known.verb) if known.verb else frozenset[str]()
    if not claim.preposition:
        return claim.verb in verbs
    entry = relations.prepositions.get(known.preposition)
    placed = claim.preposition == known.preposition or bool(entry and claim.preposition in entry.entails)
    if not placed:
        return bool(claim.verb) and claim.verb in verbs and not known.preposition
    if not claim.verb:
        return claim.preposition in relations.spatial or not known.verb
    return claim.verb in verbs or (not strict and not known.verb and claim.verb in relations.postures)


def same_predicate(known: Relates, claim: Relates) -> bool:
    return known.verb == claim.verb and known.preposition == claim.preposition


def contradicts(known: Relates, claim: Relates, words: Lexicon) -> bool:
    """Whether the claimed relation cannot hold of the same subject beside the known one."""
    if known.verb and claim.verb and words.conflicting_verbs(known.verb, claim.verb):
        return True
    if known.object != claim.object or not claim.object:
        return False
    return words.conflicting_prepositions(known.preposition, claim.preposition)


def same_claim(claim: Atom, false: Atom, words: Lexicon) -> bool:
    """Whether the claim says at least what is known to be false."""
    if isinstance(claim, Exists) and isinstance(false, Exists):
        return words.is_a(claim.concept, false.concept)
    if isinstance(claim, Has) and isinstance(false, Has):
        return words.is_a(claim.concept, false.concept) and words.entails_value(
            claim.attribute, false.attribute
        )
    if isinstance(claim, Number) and isinstance(false, Number):
        return claim == false
    if isinstance(claim, Relates) and isinstance(false, Relates):
        return entails(claim, false, words, strict=True)
    return False
