"""The rule for each kind of atom: what supports it, what refutes it, and what leaves it open."""

from collections.abc import Iterable

from groundwatch.events import Decision
from groundwatch.language.lexicon import Attribute
from groundwatch.language.statements import Atom, Exists, Has, Number, Relates
from groundwatch.verification.engines.reference.counting import is_unique, other_number, supporting_number
from groundwatch.verification.engines.reference.knowledge import Knowledge
from groundwatch.verification.engines.reference.relations import (
    contradicts,
    entails,
    same_claim,
    same_predicate,
)

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
        supported = self._supports(atom)
        denied = self._denied(atom)
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
        for parts, evidence in self.known.false_together:
            if all(any(same_claim(atom, part, self.lexicon) for atom in said) for part in parts):
                return evidence
        return None

    def _supports(self, atom: Atom) -> str | None:
        if isinstance(atom, Exists):
            return self._exists(atom.concept)
        if isinstance(atom, Has):
            return self._has(atom)
        if isinstance(atom, Number):
            return supporting_number(atom, self.known)
        return self._related(atom)

    def _denied(self, atom: Atom) -> str | None:
        for false in self.known.denials(atom):
            if same_claim(atom, false.atom, self.lexicon):
                return false.evidence
        return None

    def _exists(self, concept: str) -> str | None:
        evidence = self.known.present.get(concept)
        if evidence is not None:
            return evidence
        if self.known.complete and " " in concept and (evidence := self._compound(concept)) is not None:
            return evidence
        tools = self.lexicon.nouns.roles.get(concept)
        person = self.known.present.get("person") if tools else None
        if person is not None:
            for tool in tools or ():
                if tool in self.known.present:
                    return f"{person}; {self.known.present[tool]}"
        return None

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
        if not self.known.complete or not concept or self.is_vague(concept):
            return None
        wider = self.lexicon.ancestors(concept)
        for part in (concept, *wider):
            if any(whole in self.known.present for whole in self.lexicon.parts.get(part, ())):
                return None
        for broad in wider:
            if broad in self.known.named and not self._explained(broad):
                return None
        if concept in self.lexicon.social and "person" in self.known.present:
            return None
        return ABSENT

    def is_vague(self, concept: str) -> bool:
        """Whether a concept is no thing of its own: "scene", "side", "something"."""
        nouns = self.lexicon.nouns
        last = concept.rsplit(" ", 1)[-1]
        return concept in nouns.wildcards or concept in nouns.generic or last in nouns.generic

    def _explained(self, broad: str) -> bool:
        return any(
            concept != broad and broad in self.lexicon.ancestors(concept) for concept in self.known.named
        )

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
        if not rivals or any(not self._conflict(known.attribute, atom.attribute) for known, _ in rivals):
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

    def _conflict(self, one: Attribute, other: Attribute) -> bool:
        return self.lexicon.conflicting_values(one, other)

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
        if setting and atom.object in words.nouns.settings and not self._placed(atom.subject):
            return present[atom.object]
        return None

    def _placed(self, subject: str) -> bool:
        """Whether the reference puts the thing in some place."""
        return any(
            known.preposition == "in" and known.object in self.lexicon.nouns.places
            for known, _ in self.known.relations.get(subject, ())
        )

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
        subjects = self._meanings(atom.subject)
        stated = [
            item
            for subject in subjects
            for item in self.known.relations.get(subject, ())
            if item[0].subject == subject
        ]
        for known, evidence in stated:
            if contradicts(known, atom, words) and is_unique(self.known, known.subject):
                return evidence
        if not self.known.complete or not atom.object or self.is_vague(atom.object):
            return None
        return self._elsewhere(atom, stated)

    def _elsewhere(self, atom: Relates, stated: list[tuple[Relates, str]]) -> str | None:
        """The same predicate with another object, or of another subject, in a complete reference."""
        between = self.known.pairs.get((atom.subject, atom.object), []) + self.known.pairs.get(
            (atom.object, atom.subject), []
        )
        if between:
            return None
        bound = atom.verb not in _UNBOUND and atom.verb not in self.lexicon.relations.postures
        if not bound or not self.lexicon.knows_verb(atom.verb):
            return None
        others = [item for items in self.known.relations.values() for item in items]
        for known, evidence in (*stated, *others):
            if not same_predicate(known, atom) or not known.object or not self._lives(known.subject):
                continue
            if known.subject == atom.subject:
                differs = not self._may_be(known.object, atom.object)
            else:
                differs = known.object == atom.object and not self._may_be(known.subject, atom.subject)
            if differs:
                return evidence
        return None

    def _lives(self, concept: str) -> bool:
        return self.lexicon.is_a(concept, "person") or self.lexicon.is_a(concept, "animal")

    def _may_be(self, one: str, other: str) -> bool:
        """Whether two names may mean one thing: one is broader, or a person goes by role and by gender."""
        if self.lexicon.is_a(one, other) or self.lexicon.is_a(other, one):
            return True
        persons = self.lexicon.is_a(one, "person") and self.lexicon.is_a(other, "person")
        basic = ("man", "woman", "child", "boy", "girl", "baby")
        return persons and not (one in basic and other in basic)
