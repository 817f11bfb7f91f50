"""The reference judge: decides claims from what is known of the image, without a model.

In this order, the first rule that applies decides:

1. The claim equals a known fact (same words, or the same atoms through the lexicon): that fact's truth,
   flipped when just one of the two is negated. Facts that contradict each other leave it open.
2. Something that the claim takes for granted is known to be false, or is absent from a complete
   reference: refuted. "The dog is brown." needs a dog.
3. The claim says all that a false fact says: refuted.
4. Any asserted atom is refuted: refuted. Another value of the same exclusive kind (color, material, …),
   another number, an excluding relation (left and right of, sitting and standing) refute, if the
   reference can only mean the same thing by it: the only such thing, or all of them.
5. Every asserted atom follows from the reference, through synonyms, broader concepts, inverse relations
   and what one action implies of another: supported.
6. Otherwise undecided.

Only a complete reference lets absence refute. A thing is absent when neither it nor a kind of it is named,
unless the word is generic ("scene"), the thing is a part of something named ("nose") or a broader name
may mean it. A relation between two named things that the reference does not state is refuted only if the
reference states the same verb of the same living subject with another object, or of another living
subject with the same object, and nothing between the two; places and "near" stay open, for no reference
lists them all.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import ClaimsExtracted, Decision, Judge, Reference, Verdict
from groundwatch.language.lexicon import Lexicon, lexicon
from groundwatch.language.statements import (
    Atom,
    Exists,
    Has,
    Number,
    Relates,
    Statement,
    about,
    name,
    statement,
    triplet,
)
from groundwatch.models.engines import in_turn
from groundwatch.protocols.base import EvaluationProtocol, with_article
from groundwatch.protocols.triplets import Part, Triplet, blame, triplet_of
from groundwatch.verification.engines.base import Verification, VerificationEngine

KEPT_ITEMS = 500
"""A reference with more items is read anew each time, so that the cache stays small."""


class Knowledge:
    """Everything that a reference says.

    Whatever a true fact asserts or takes for granted holds. A false fact is blamed on what it asserts and
    what it takes for granted, less what is known to hold: if one atom is left, that atom is false; if
    several are, only a claim that says all of them is refuted. `categories` are named as a kind of thing,
    by objects and triplets, which leaves open how many there are.
    """

    def __init__(self, reference: Reference) -> None:
        self.lexicon: Lexicon = lexicon()
        self.complete = reference.complete
        self.present: dict[str, str] = {}
        self.named: dict[str, str] = {}
        self.plural: set[str] = set()
        self.categories: set[str] = set()
        self.attributes: dict[str, list[tuple[Has, str]]] = defaultdict(list)
        self.numbers: dict[str, list[tuple[Number, str]]] = defaultdict(list)
        self.relations: dict[str, list[tuple[Relates, str]]] = defaultdict(list)
        self.pairs: set[tuple[str, str]] = set()
        self.false: dict[str, list[tuple[Atom, str]]] = defaultdict(list)
        self.together: list[tuple[frozenset[Atom], str]] = []
        self.texts: dict[str, set[tuple[bool, str]]] = defaultdict(set)
        self.shapes: dict[frozenset[Atom], set[tuple[bool, str]]] = defaultdict(set)
        self.bags: dict[frozenset[str], set[tuple[bool, str]]] = defaultdict(set)
        facts = self._read_facts(reference)
        for read, holds, text in facts:
            if holds:
                self._hold(read, text)
        for subject, relation, object_ in sorted(set(reference.triplets)):
            self._hold(triplet(subject, relation, object_), f"{subject} {relation} {object_}", named=True)
        for text in sorted(set(reference.objects)):
            self._hold(name(text), text, named=True)
        for read, holds, text in facts:
            if not holds:
                self._deny(read, text)
        self._by_rarest = self._index_together()

    def _index_together(self) -> dict[str, list[int]]:
        """The places of false facts of several atoms, each by the thing of an atom that fewest speak of."""
        facts = Counter(thing for parts, _ in self.together for thing in set(map(about, parts)))
        found: dict[str, list[int]] = defaultdict(list)
        for place, (parts, _) in enumerate(self.together):
            found[min(map(about, parts), key=lambda thing: (facts[thing], thing))].append(place)
        return found

    def false_together(self, atoms: Iterable[Atom]) -> list[tuple[frozenset[Atom], str]]:
        """False facts of several atoms that a claim of these atoms may say, in order."""
        things = {thing for atom in atoms for thing in self._wider(about(atom))}
        places = {place for thing in things for place in self._by_rarest.get(thing, ())}
        return [self.together[place] for place in sorted(places)]

    def _read_facts(self, reference: Reference) -> list[tuple[Statement, bool, str]]:
        facts = []
        for text, holds in sorted({(fact.text, fact.holds) for fact in reference.facts}):
            read = statement(text)
            true = holds != read.negated
            self.texts[read.key].add((true, text))
            if read.asserted and not self._indefinite(read):
                self.shapes[read.asserted].add((true, text))
            elif read.words and not read.asserted:
                self.bags[read.words].add((true, text))
            facts.append((read, true, text))
        return facts

    def _indefinite(self, read: Statement) -> bool:
        """Whether the statement is about some thing or other, so that another text means another thing."""
        return any(about(atom) in self.lexicon.nouns.wildcards for atom in read.asserted)

    def _hold(self, read: Statement, evidence: str, *, named: bool = False) -> None:
        if named:
            self.categories |= {a.concept for a in (*read.asserted, *read.given) if isinstance(a, Exists)}
        for atom in sorted((*read.asserted, *read.given), key=repr):
            self._add(atom, evidence)
        for atom in (*read.asserted, *read.given):
            if isinstance(atom, Relates):
                for implied in _implied(atom, self.lexicon):
                    self._add(implied, evidence)

    def _add(self, atom: Atom, evidence: str) -> None:
        if isinstance(atom, Exists):
            self.named.setdefault(atom.concept, evidence)
            for concept in self._wider(atom.concept):
                self.present.setdefault(concept, evidence)
        elif isinstance(atom, Has):
            for concept in self._wider(atom.concept):
                self.attributes[concept].append((atom, evidence))
        elif isinstance(atom, Number):
            if atom.low > 1 or atom.high is None:
                self.plural.add(atom.concept)
            if atom.exact or atom.low > 1:
                self.numbers[atom.concept].append((atom, evidence))
        else:
            for concept in self._wider(atom.subject):
                self.relations[concept].append((atom, evidence))
            self.pairs.add((atom.subject, atom.object))

    def _wider(self, concept: str) -> tuple[str, ...]:
        return (concept, *self.lexicon.ancestors(concept))

    def _deny(self, read: Statement, evidence: str) -> None:
        if self._indefinite(read):
            return
        left = [atom for atom in (*read.asserted, *read.given) if not self._certain(atom)]
        if len(left) == 1:
            self.false[about(left[0])].append((left[0], evidence))
        elif left:
            self.together.append((frozenset(left), evidence))

    def denials(self, atom: Atom) -> list[tuple[Atom, str]]:
        return [false for concept in self._wider(about(atom)) for false in self.false.get(concept, ())]

    def _certain(self, atom: Atom) -> bool:
        if isinstance(atom, Exists):
            return atom.concept in self.present
        if isinstance(atom, Has):
            return any(
                self.lexicon.entails_value(known.attribute, atom.attribute)
                for known, _ in self.attributes.get(atom.concept, ())
            )
        if isinstance(atom, Number):
            return not atom.exact and atom.high is None and atom.concept in self.plural
        return False


def _implied(atom: Relates, words: Lexicon) -> list[Relates]:
    """What a relation says of the same pair the other way round, and by its verb of the place."""
    subject, object_, prepositions = atom.subject, atom.object, words.relations.prepositions
    if not object_:
        return []
    found: list[Relates] = []
    entry = prepositions.get(atom.preposition)
    if entry and entry.inverse:
        found.append(Relates(object_, "", entry.inverse, subject))
    if atom.preposition == "in" and not atom.verb:
        found.append(Relates(object_, "contain", "", subject))
    if atom.verb == "contain" and not atom.preposition:
        found += [Relates(subject, "have", "", object_), Relates(object_, "", "in", subject)]
    place = words.relations.carries_position.get(atom.verb)
    if place and not atom.preposition:
        found.append(Relates(subject, "", place, object_))
        if inverse := prepositions[place].inverse:
            found.append(Relates(object_, "", inverse, subject))
    return found


def knowledge(reference: Reference) -> Knowledge:
    """The reference as knowledge; kept, for every claim of an image asks the same one, unless it is huge."""
    items = len(reference.facts) + len(reference.triplets) + len(reference.objects)
    return _kept(reference) if items <= KEPT_ITEMS else Knowledge(reference)


_kept = lru_cache(maxsize=64)(Knowledge)

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
    for kind in sorted(below):
        if not below.isdisjoint(known.lexicon.ancestors(kind)):
            continue
        numbers = [number for number, _ in known.numbers[kind]]
        exact = [number.high for number in numbers if number.exact and number.high is not None]
        kinds[kind] = (max(number.low for number in numbers), min(exact) if exact else None)
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


class Ruling(NamedTuple):
    """A decision with the reference's item that it rests on."""

    decision: Decision
    evidence: str = ""

    def negated(self) -> Ruling:
        opposite = {Decision.SUPPORTED: Decision.REFUTED, Decision.REFUTED: Decision.SUPPORTED}
        return Ruling(opposite.get(self.decision, self.decision), self.evidence)


UNDECIDED = Ruling(Decision.UNDECIDED)


def rule(text: str, rules: Rules) -> Ruling:
    return rule_on(statement(text), rules)


def rule_on(read: Statement, rules: Rules) -> Ruling:
    stated = _stated(read, rules.known)
    if stated is not None:
        return stated.negated() if read.negated else stated
    if not read.asserted:
        return UNDECIDED
    for atom in sorted(read.given, key=repr):
        decision, evidence = rules.decide(atom, given=True)
        if decision is Decision.REFUTED:
            return Ruling(decision, evidence)
    asserted = _asserted(read, rules)
    return asserted.negated() if read.negated else asserted


def _stated(read: Statement, known: Knowledge) -> Ruling | None:
    """The truth of a known fact that says the same thing, if the reference does not contradict itself."""
    found = known.texts.get(read.key)
    if not found and read.asserted:
        found = known.shapes.get(read.asserted)
    if not found and not read.asserted and read.words:
        found = known.bags.get(read.words)
    if not found:
        return None
    holds, evidence = min(found)
    if len({truth for truth, _ in found}) > 1:
        return Ruling(Decision.UNDECIDED, evidence)
    return Ruling(Decision.SUPPORTED if holds else Decision.REFUTED, evidence)


def _asserted(read: Statement, rules: Rules) -> Ruling:
    if rules.known.together and (together := rules.false_together(read.asserted | read.given)):
        return Ruling(Decision.REFUTED, together)
    undecided: Ruling | None = None
    supporting: dict[str, None] = {}
    for atom in sorted(read.asserted, key=repr):
        ruling = Ruling(*rules.decide(atom, beside=read.asserted))
        if ruling.decision is Decision.REFUTED:
            return ruling
        if ruling.decision is Decision.UNDECIDED:
            undecided = undecided or ruling
        elif ruling.evidence:
            supporting[ruling.evidence] = None
    return undecided or Ruling(Decision.SUPPORTED, "; ".join(supporting))


VERSION = "3"

SECONDS = 30.0
"""In which the claims of one answer are judged; the most that are taken need a tenth of it."""


class ReferenceEngine(VerificationEngine):
    """Judges claims against what the response's own reference says of the image. No model, no image.

    A response without a reference cannot be judged: its result is `Unscorable("no_reference")`.
    """

    batch = 64

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="reference", version=f"{VERSION}-{lexicon().digest}")

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        return await in_turn(_verify, extracted)


def _verify(event: ClaimsExtracted) -> Verification:
    until = time.monotonic() + SECONDS
    reference = event.response.reference
    if reference is None or reference == Reference(complete=reference.complete):
        raise Unscorable("no_reference", "the response says nothing of what is in its image")
    rules = Rules(knowledge(reference))
    verdicts = []
    for claim in event.claims:
        if time.monotonic() > until:
            raise Unscorable("took_too_long", f"its claims take longer than {SECONDS:g} s to judge")
        ruling = rule(claim.text, rules)
        evidence = ruling.evidence
        if ruling.decision is Decision.REFUTED and (triplet := triplet_of(claim)):
            evidence = blame(_wrong_part(triplet, rules), evidence)
        verdicts.append(Verdict(decision=ruling.decision, evidence=evidence))
    return Verification(verdicts=tuple(verdicts))


def _wrong_part(triplet: Triplet, rules: Rules) -> Part:
    """The first of a refuted triplet's objects that is not in the image, else its relation (section 3.1)."""
    parts: tuple[tuple[Part, str], ...] = (("object1", triplet[0]), ("object2", triplet[2]))
    absent = (
        part
        for part, name in parts
        if rule(f"There is {with_article(name)}.", rules).decision is Decision.REFUTED
    )
    return next(absent, "relation")
