"""A reference, read once and indexed so that a claim's atoms find what speaks of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache

from groundwatch.events import Reference
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
