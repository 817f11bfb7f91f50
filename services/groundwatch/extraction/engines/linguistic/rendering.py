"""Facts as the annotators write them: "There is a boy." "The boy is wearing a shirt." "The shirt is red.".

And as Tri-HE's triplets (section 3.3, by rules in the place of an LLM): a relation or a quality is a triplet,
with articles and the verb "to be" before another verb or a preposition left out: ("man", "riding", "horse"),
("horse", "is", "brown"). That something is there at all is no triplet, for it has no second object.
"""

from collections.abc import Sequence

from groundwatch.events import Claim
from groundwatch.extraction.engines.linguistic import words as w
from groundwatch.extraction.engines.linguistic.phrases import Noun, Verb
from groundwatch.protocols.triplets import INFERENCE, Triplet, claim_of

ENTITY, RELATION, COLOR, COUNT, OTHER = "entity", "relation", "color", "count", "other"


class AtomicFact(Claim, frozen=True, kw_only=True):
    """A sentence, FaithScore's category of it, and what it is made of: "The boy", "is wearing", "a shirt".

    An entity has an `object` alone; its number stands in `object` and the entity in `subject`. What is
    `known` is taken for granted by a phrase such as "the red cat" rather than said by it.
    """

    subject: str = ""
    relation: str = ""
    object: str = ""
    known: bool = False


def _fact(subject: str, relation: str, object_: str, category: str) -> AtomicFact:
    text = f"{subject} {relation} {object_}".rstrip()
    return AtomicFact(text=f"{text}.", category=category, subject=subject, relation=relation, object=object_)


def there_is(noun: Noun) -> AtomicFact:
    either = f" or {indefinite(noun.alternative)}" if noun.alternative is not None else ""
    thing = f"{indefinite(noun)}{either}"
    return AtomicFact(text=f"There {be(noun)} {thing}.", category=ENTITY, object=thing)


def there_are_so_many(noun: Noun) -> AtomicFact:
    thing = _other(noun)
    return AtomicFact(
        text=f"There {be(noun)} {noun.number} {thing}.",
        category=COUNT,
        subject=thing,
        relation=be(noun),
        object=noun.number,
    )


def attribute(noun: Noun, adjectives: list[str]) -> AtomicFact:
    category = COLOR if any(word in w.COLORS for word in adjectives) else OTHER
    return _fact(_The(noun), be(noun), " and ".join(adjectives), category)


def owns(owner: Noun, thing: Noun) -> AtomicFact:
    return _fact(_The(owner), "have" if owner.plural else "has", indefinite(thing), RELATION)


def relation(subject: Noun, middle: str, target: Noun | None, category: str = RELATION) -> AtomicFact:
    """ "The boy is" + "sitting on" + "a bench"."""
    tail = mention(target) if target is not None else ""
    if target is not None and target.alternative is not None:
        tail += f" or {mention(target.alternative)}"
    return _fact(_The(subject), middle, tail, category)


def focus(noun: Noun, what: Noun) -> AtomicFact:
    """What the picture is about: "The clock is the main object in the image."."""
    of = f"of {mention(what.of)}" if what.of is not None and what.of.nouns else "in the image"
    main = f"the {' '.join([*what.adjectives, *what.nouns])} {of}"
    return _fact(_The(noun), be(noun), main, OTHER)


def phrase(verb: Verb, subject: Noun) -> str:
    """The verb group as it follows `subject`: "is wearing", "are placed", "has"."""
    particle = f" {verb.particle}" if verb.particle else ""
    negation = " not" if verb.negated else ""
    if verb.shape == "be":
        return be(subject) + negation
    if verb.shape == "perfect":
        return f"{'have' if subject.plural else 'has'}{negation} {verb.word}{particle}"
    if verb.shape in {"ing", "en"}:
        return f"{be(subject)}{negation} {verb.word}{particle}"
    if verb.negated:
        return f"{'do' if subject.plural else 'does'} not {verb.lemma}{particle}"
    return f"{w.inflect(verb.lemma, 'VBP' if subject.plural else 'VBZ')}{particle}"


def mention(noun: Noun) -> str:
    if noun.determiner == "the" and noun.nouns:
        return f"the {_other(noun)}"
    if noun.determiner in w.POSSESSIVES:
        return f"{noun.determiner} {name(noun)}"
    if noun.other and not noun.plural:
        return f"another {name(noun)}"
    if noun.nouns and not noun.determiner and not noun.number and not noun.plural and not noun.other:
        return name(noun)
    return indefinite(noun)


def indefinite(noun: Noun) -> str:
    """ "a boy", "an umbrella", "water", "other bags"."""
    if noun.pronoun:
        return noun.pronoun
    if noun.other and not noun.plural:
        return f"another {name(noun)}"
    text = _other(noun)
    if noun.plural or is_mass(noun) or noun.nouns[-1].istitle():
        return text
    return f"{article(text)} {text}"


def is_mass(noun: Noun) -> bool:
    """Whether it takes no "a": water, but "a glass of water" and "a traffic light"."""
    return noun.head in w.MASS and len(noun.nouns) == 1 and noun.determiner not in _ONE


_SHARES = frozenset({"one", "another", "each", "some", "most", "many", "both", "few"})
_ONE = frozenset({"a", "an", "one", "another", "each"})


def article(text: str) -> str:
    """ "a" or "an" by the first letter, with the commonest exceptions."""
    vowel = text[:1].lower() in "aeiou" and not text.lower().startswith(("uni", "use", "one", "eu"))
    return "an" if vowel or text.lower().startswith("hour") else "a"


def name(noun: Noun) -> str:
    """The compound, with what it is a pair or a piece of."""
    text = " ".join(noun.nouns) or noun.pronoun
    if noun.lemma in w.SPOTS | w.QUALITIES and not noun.is_compound:
        text = " ".join([*noun.adjectives, text])
    if noun.of is not None and noun.of.nouns and noun.lemma in w.MEASURES | w.SPOTS:
        text += f" of {mention(noun.of)}" if noun.of.determiner else f" of {name(noun.of)}"
    return text


def _other(noun: Noun) -> str:
    return f"other {name(noun)}" if noun.other else name(noun)


def _The(noun: Noun) -> str:  # noqa: N802
    if noun.pronoun:
        return noun.pronoun[:1].upper() + noun.pronoun[1:]
    if noun.determiner in _SHARES or noun.determiner in w.NUMBERS or noun.number == "one":
        return f"{(noun.number or noun.determiner).capitalize()} {name(noun)}"
    return f"The {_other(noun)}"


def be(noun: Noun) -> str:
    return "are" if noun.plural else "is"


_BE = frozenset({"is", "are"})


def triplets(facts: Sequence[AtomicFact]) -> tuple[Claim, ...]:
    """The triplets of one answer in the facts' order, each once in its sub-sentence."""
    found: dict[tuple[int, Triplet], Claim] = {}
    for fact in facts:
        if fact.subject and (triplet := _triplet(fact)):
            category = INFERENCE if fact.category == INFERENCE else ""
            claim = claim_of(triplet, unit=fact.unit, category=category)
            found.setdefault((fact.unit, triplet), claim)
    return tuple(found.values())


def _triplet(fact: AtomicFact) -> Triplet | None:
    """ "The birds fly away" is ("birds", "is", "flying away"), in the words of scene graphs."""
    subject, (verb, *rest) = _without_article(fact.subject), fact.relation.split()
    if fact.category == INFERENCE:
        return subject, fact.relation, fact.object
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
