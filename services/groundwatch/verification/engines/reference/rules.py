"""The rule for each kind of atom: what supports it, what refutes it, and what leaves it open."""

from collections.abc import Iterable

from groundwatch.events import Decision
from groundwatch.language.lexicon import Lexicon
from groundwatch.language.statements import Atom, Exists, Has, Number, Relates
from groundwatch.verification.engines.reference.knowledge import Knowledge

Decided = tuple[Decision, str]
_OPEN: Decided = (Decision.UNDECIDED, "")
_UNBOUND = frozenset({"", "have", "be"})
ABSENT = "not in the complete reference"


class Rules:
    """Decides atoms from one reference's knowledge."""

    def __init__(self, known: Knowledge) -> None:
        self.known = known
        self.lexicon = known.lexicon

    def decide(self, atom: Atom, *, given: bool = False, beside: frozenset[Atom] = frozenset()) -> Decided:
        """Decide one atom; true and false knowledge of the same atom leaves it open.

        `given`: the claim takes it for granted; `beside`: what the claim asserts with it.
        """
        if isinstance(atom, Exists):
            supported = self._exists(atom.concept)
        elif isinstance(atom, Has):
            supported = self._has(atom)
        elif isinstance(atom, Number):
            supported = supporting_number(atom, self.known)
        else:
            supported = self._related(atom)
        denied = self._denied(atom) if self.known.false else None
        if supported is not None:
            return _OPEN if denied else (Decision.SUPPORTED, supported)
        if denied is not None:
            return Decision.REFUTED, denied
        if isinstance(atom, Exists):
            refuted = self._absent(atom.concept)
        elif isinstance(atom, Has):
            refuted = self._other_value(atom, beside)
        elif isinstance(atom, Number):
            refuted = None if given else other_number(atom, self.known)
        else:
            refuted = self._other_relation(atom)
        return (Decision.REFUTED, refuted) if refuted is not None else _OPEN

    def false_together(self, atoms: Iterable[Atom]) -> str | None:
        """A false fact all of whose atoms the claim says; alone none of them is known to be false."""
        said = frozenset(atoms)
        for parts, evidence in self.known.false_together(said):
            if all(any(same_claim(atom, part, self.lexicon) for atom in said) for part in parts):
                return evidence
        return None

    def _denied(self, atom: Atom) -> str | None:
        denials = self.known.denials(atom)
        return next((why for false, why in denials if same_claim(atom, false, self.lexicon)), None)

    def _exists(self, concept: str) -> str | None:
        present = self.known.present
        if concept in present:
            return present[concept]
        if self.known.complete and " " in concept and (evidence := self._compound(concept)) is not None:
            return evidence
        tools = self.lexicon.nouns.roles.get(concept, ()) if "person" in present else ()
        return next((f"{present['person']}; {present[tool]}" for tool in tools if tool in present), None)

    def _compound(self, concept: str) -> str | None:
        """A compound of what the reference names: its head, with the rest as things or as its quality."""
        *before, head = concept.split()
        named = self.lexicon.concept((head,))
        evidence = self.known.present.get(named)
        if evidence is None:
            return None
        qualities = {known.attribute.value for known, _ in self.known.attributes.get(named, ())}
        for word in before:
            value = self.lexicon.attribute(word)
            quality = value.value if value else word
            if quality not in qualities and self.lexicon.concept((word,)) not in self.known.present:
                return None
        return evidence

    def _absent(self, concept: str) -> str | None:
        """Absence refutes in a complete reference only, and only what the reference would have named.

        It would not name image regions and other generic words, nor each part of a whole that it names
        (the wheels of a car); and a broader name ("person") may mean the very thing ("man") unless the
        reference has told what that broader thing is.
        """
        if not self.known.complete or not concept or self.lexicon.is_vague(concept):
            return None
        present, wider = self.known.present, self.lexicon.ancestors(concept)
        wholes = (whole for part in (concept, *wider) for whole in self.lexicon.parts.get(part, ()))
        if any(whole in present for whole in wholes):
            return None
        named = self.known.named
        if any(broad in named and not _narrower(broad, named, self.lexicon) for broad in wider):
            return None
        return None if concept in self.lexicon.social and "person" in present else ABSENT

    def _has(self, atom: Has) -> str | None:
        for concept in self._names(atom.concept):
            for known, evidence in self.known.attributes.get(concept, ()):
                named = concept == atom.concept or known.concept == concept
                if named and self.lexicon.entails_value(known.attribute, atom.attribute):
                    return evidence
        for broad in self.lexicon.attributes.inherent.get(atom.attribute.value, ()):
            if self.lexicon.is_a(atom.concept, broad) and atom.concept in self.known.present:
                return self.known.present[atom.concept]
        if not atom.attribute.kind:
            return self._related(Relates(atom.concept, atom.attribute.value, "", ""))
        return None

    def _other_value(self, atom: Has, beside: frozenset[Atom]) -> str | None:
        """Another value of an exclusive kind, when the reference can only mean the same thing by it.

        "Red and black" is not refuted by "red" unless the reference is complete.
        """
        rivals = [
            (known, evidence)
            for concept in self._meanings(atom.concept)
            for known, evidence in self.known.attributes.get(concept, ())
            if known.concept == concept and known.attribute.kind == atom.attribute.kind
        ]
        conflicting = self.lexicon.conflicting_values
        if not rivals or not all(conflicting(known.attribute, atom.attribute) for known, _ in rivals):
            return None
        sources = {evidence for _, evidence in rivals}
        together = any(
            isinstance(other, Has) and other.attribute.kind == atom.attribute.kind and self._has(other)
            for other in beside
        )
        if together and not self.known.complete:
            return None
        if self.known.complete or (len(sources) == 1 and is_unique(self.known, rivals[0][0].concept)):
            return rivals[0][1]
        return None

    def _meanings(self, concept: str) -> tuple[str, ...]:
        """The concepts that the reference may mean this thing by: itself, else broader names of it."""
        if concept in self.known.named:
            return (concept,)
        if concept in self.known.present:
            return ()
        return tuple(sorted(b for b in self.lexicon.ancestors(concept) if b in self.known.named))

    def _related(self, atom: Relates) -> str | None:
        loose = not self.lexicon.nouns.indefinite.isdisjoint((atom.subject, atom.object))
        for subject in self._names(atom.subject):
            for object_ in self._names(atom.object):
                claim = Relates(subject, atom.verb, atom.preposition, object_)
                for known, evidence in self._candidates(subject):
                    if subject != atom.subject and known.subject not in (subject, *self.lexicon.social):
                        continue
                    if entails(known, claim, self.lexicon, loose=loose) and not self._posture_differs(
                        known, claim
                    ):
                        return evidence
        return self._evident(atom)

    def _candidates(self, subject: str) -> list[tuple[Relates, str]]:
        if subject in self.lexicon.nouns.indefinite:
            return [item for items in self.known.relations.values() for item in items]
        return self.known.relations.get(subject, [])

    def _names(self, concept: str) -> tuple[str, ...]:
        """The concept and what else the reference may call it, once it names that concept.

        Of a compound the head alone ("rod" for "fishing rod"), of whoever is known by what they do there
        ("spectator") a person.
        """
        if self._exists(concept) is None:
            return (concept,)
        if concept in self.lexicon.social:
            return (concept, "person")
        head = concept.rpartition(" ")[2]
        return (concept,) if head == concept else (concept, self.lexicon.concept((head,)))

    def _evident(self, atom: Relates) -> str | None:
        """What needs no saying: the sky is above, a named part belongs to its whole, a kind is what it is."""
        present, words = self.known.present, self.lexicon
        if not {atom.subject, atom.object} <= present.keys():
            return None
        above = words.relations.everywhere
        if (atom.preposition == "above" and atom.subject in above) or (
            atom.preposition == "under" and atom.object in above
        ):
            return present[atom.subject]
        wholes = words.parts.get(atom.object, ()) if atom.verb == "have" and self.known.complete else ()
        if any(words.is_a(atom.subject, whole) for whole in wholes):
            return present[atom.object]
        if atom.verb == "be" and words.is_a(atom.subject, atom.object):
            return present[atom.subject]
        setting = self.known.complete and not atom.verb and atom.preposition == "in"
        placed = (
            known.preposition == "in" and known.object in words.nouns.places
            for known, _ in self.known.relations.get(atom.subject, ())
        )
        if setting and atom.object in words.nouns.settings and not any(placed):
            return present[atom.object]
        return None

    def _posture_differs(self, known: Relates, atom: Relates) -> bool:
        if not atom.verb or known.verb:
            return False
        return any(
            self.lexicon.conflicting_verbs(other.verb, atom.verb)
            for other, _ in self.known.relations.get(atom.subject, ())
        )

    def _other_relation(self, atom: Relates) -> str | None:
        """A relation that excludes the claimed one; in a complete reference also one in its place."""
        words = self.lexicon
        stated = [
            (known, evidence)
            for subject in self._meanings(atom.subject)
            for known, evidence in self.known.relations.get(subject, ())
            if known.subject == subject
        ]
        for known, evidence in stated:
            if contradicts(known, atom, words) and (
                is_unique(self.known, known.subject)
                or (known.object == atom.object and is_of_all(self.known, known.subject, evidence))
            ):
                return evidence
        if not self.known.complete or not atom.object or self.lexicon.is_vague(atom.object):
            return None
        return self._elsewhere(atom, stated)

    def _elsewhere(self, atom: Relates, stated: list[tuple[Relates, str]]) -> str | None:
        """The same predicate with another object, or of another subject, in a complete reference."""
        pairs = {(atom.subject, atom.object), (atom.object, atom.subject)}
        free = atom.verb in _UNBOUND | self.lexicon.relations.postures
        if free or not self.lexicon.knows_verb(atom.verb) or not pairs.isdisjoint(self.known.pairs):
            return None
        others = [item for items in self.known.relations.values() for item in items]
        for known, evidence in (*stated, *others):
            if (known.verb, known.preposition) != (atom.verb, atom.preposition) or not known.object:
                continue
            if not any(self.lexicon.is_a(known.subject, living) for living in ("person", "animal")):
                continue
            if known.subject == atom.subject:
                differs = not self._may_be(known.object, atom.object)
            else:
                differs = known.object == atom.object and not self._may_be(known.subject, atom.subject)
            if differs:
                return evidence
        return None

    def _may_be(self, one: str, other: str) -> bool:
        """Whether two names may mean one thing: one is broader, or a person goes by role and by gender."""
        if self.lexicon.is_a(one, other) or self.lexicon.is_a(other, one):
            return True
        persons = self.lexicon.is_a(one, "person") and self.lexicon.is_a(other, "person")
        return persons and not {one, other} <= _DISJOINT_PERSONS


Bounds = tuple[int, int | None, str]
"""At least, at most (None: no bound), and the reference's item that says so."""

_DISJOINT_PERSONS = frozenset({"man", "woman", "boy", "girl", "child", "baby"})


def is_unique(known: Knowledge, concept: str) -> bool:
    """Whether the reference may mean just one such thing, or all of them alike."""
    numbers = known.numbers.get(concept, ())
    if any(number.exact and number.high == 1 for number, _ in numbers):
        return True
    return not any(number.exact or number.high is not None or number.low > 2 for number, _ in numbers)


def is_of_all(known: Knowledge, concept: str, evidence: str) -> bool:
    """Whether an item speaks of these things in the plural and of no part of them: of all there are."""
    numbers = {number for number, item in known.numbers.get(concept, ()) if item == evidence}
    bare = numbers == {Number(concept, 2, None, exact=False)}
    return bare and _OF_A_PART.isdisjoint(evidence.lower().split())


_OF_A_PART = frozenset({"some", "few"})


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
        if (high is not None and high < atom.low) or (
            atom.exact and atom.high is not None and low > atom.high
        ):
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
    named = _narrower(concept, known.named, known.lexicon)
    counted = known.complete and concept not in known.named and named <= kinds.keys()
    most = [high for _, high in kinds.values() if high is not None]
    found.append((low, sum(most) if counted and len(most) == len(kinds) else None, evidence))
    return found


def _narrower(concept: str, names: Iterable[str], words: Lexicon) -> set[str]:
    return {name for name in names if name != concept and concept in words.ancestors(name)}


def _kinds(concept: str, known: Knowledge) -> dict[str, tuple[int, int | None]]:
    """The counted kinds of a concept, leaving out kinds of kinds: their members would count twice."""
    below = _narrower(concept, known.numbers, known.lexicon)
    kinds: dict[str, tuple[int, int | None]] = {}
    for name in sorted(below):
        if not below.isdisjoint(known.lexicon.ancestors(name)):
            continue
        numbers = [number for number, _ in known.numbers[name]]
        exact = [number.high for number in numbers if number.exact and number.high is not None]
        kinds[name] = (max(number.low for number in numbers), min(exact) if exact else None)
    return kinds


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


def contradicts(known: Relates, claim: Relates, words: Lexicon) -> bool:
    """Whether the claimed relation cannot hold of the same subject beside the known one."""
    if known.verb and claim.verb and words.conflicting_verbs(known.verb, claim.verb):
        return True
    together = bool(claim.object) and known.object == claim.object
    return together and words.conflicting_prepositions(known.preposition, claim.preposition)


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
