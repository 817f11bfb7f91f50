"""How many there are: what a reference's numbers say about a claimed one."""

from groundwatch.language.statements import Number
from groundwatch.verification.engines.reference.knowledge import Knowledge

Bounds = tuple[int, int | None, str]
"""At least, at most (None: no bound), and the reference's item that says so."""

_DISJOINT_PERSONS = frozenset({"man", "woman", "boy", "girl", "child", "baby"})


def is_unique(known: Knowledge, concept: str) -> bool:
    """Whether the reference may mean just one such thing, or all of them alike."""
    numbers = known.numbers.get(concept, ())
    if any(number.exact and number.high == 1 for number, _ in numbers):
        return True
    return not any(number.exact or number.high is not None or number.low > 2 for number, _ in numbers)


def supporting_number(atom: Number, known: Knowledge) -> str | None:
    """The item that makes the number true; that there are more is no support for "two of them"."""
    for low, high, evidence in _bounds(atom.concept, known):
        if low >= atom.low and (atom.high is None or (high is not None and high <= atom.high)):
            return evidence
    if atom.low <= 1 and atom.high is None:
        return known.present.get(atom.concept)
    counted = any(high is not None for _, high, _ in _bounds(atom.concept, known))
    vague = known.complete and atom.high is None and not counted
    if ((atom.low, atom.high) == (2, None) and not atom.exact) or vague:
        return _several(atom.concept, known)
    return None


def other_number(atom: Number, known: Knowledge) -> str | None:
    """The item that rules the number out; in a complete reference a bare singular means one."""
    found = _bounds(atom.concept, known)
    for low, high, evidence in found:
        if high is not None and high < atom.low:
            return evidence
        if atom.exact and atom.high is not None and low > atom.high:
            return evidence
    single = known.complete and not found and atom.concept in known.named
    if single and atom.low > 1 and atom.concept not in known.plural:
        return known.named[atom.concept]
    return None


def _several(concept: str, known: Knowledge) -> str | None:
    """More than one: a plural anywhere in the reference, or two kinds of it."""
    kinds = [name for name in known.named if known.lexicon.is_a(name, concept)]
    if any(name in known.plural or name in known.categories for name in kinds) or len(kinds) > 1:
        return known.present.get(concept)
    return None


def _bounds(concept: str, known: Knowledge) -> list[Bounds]:
    found: list[Bounds] = [
        (number.low, number.high if number.exact else None, evidence)
        for number, evidence in known.numbers.get(concept, ())
    ]
    kinds = _kinds(concept, known)
    if not kinds:
        return found
    evidence = known.present.get(concept, "")
    if concept == "person" or "person" in known.lexicon.ancestors(concept):
        apart = sum(low for kind, (low, _) in kinds.items() if kind in _DISJOINT_PERSONS)
        found.append((max(apart, *(low for low, _ in kinds.values())), None, evidence))
        return found
    low = sum(least for least, _ in kinds.values())
    named = {name for name in known.named if name != concept and concept in known.lexicon.ancestors(name)}
    counted = known.complete and concept not in known.named and named <= kinds.keys()
    most = [high for _, high in kinds.values() if high is not None]
    found.append((low, sum(most) if counted and len(most) == len(kinds) else None, evidence))
    return found


def _kinds(concept: str, known: Knowledge) -> dict[str, tuple[int, int | None]]:
    """The counted kinds of a concept, leaving out kinds of kinds: their members would count twice."""
    below = {name for name in known.numbers if name != concept and concept in known.lexicon.ancestors(name)}
    kinds: dict[str, tuple[int, int | None]] = {}
    for name in sorted(below):
        if not below.isdisjoint(known.lexicon.ancestors(name)):
            continue
        numbers = [number for number, _ in known.numbers[name]]
        exact = [number.high for number in numbers if number.exact and number.high is not None]
        kinds[name] = (max(number.low for number in numbers), min(exact) if exact else None)
    return kinds
