"""Triplets said otherwise, by rule: what a judge by similarity must still take for true.

The synonyms are this measure's own and not the engines' lexicon: no engine is tested on its own words.
"""

import re
from collections.abc import Callable, Mapping

from groundwatch.errors import MissingExtraError
from groundwatch.protocols.triplets import Triplet

Reword = Callable[[Triplet], Triplet | None]

_SAME = """
man guy|woman lady|person human|people persons|boy lad|girl young lady|child kid|kid child|baby infant
car automobile|couch sofa|sofa couch|bike bicycle|bicycle bike|airplane plane|plane aircraft|tv television
shirt top|pants trousers|jeans denim trousers|jacket coat|hat cap|cap hat|shoes footwear|bag sack
table desk|street road|road street|sidewalk pavement|building structure|photo picture|phone telephone
field meadow|ocean sea|trash garbage|plants vegetation|picture image|logo emblem|rug carpet|cup mug
large big|small little|big large|old aged|sitting seated|standing upright|walking strolling|white pale
wearing dressed in|holding grasping|carrying bearing|riding mounted on|near close to|next to beside
behind at the back of|on top of upon|under beneath|above over|looking at watching|watching looking at
in front of ahead of|sitting on seated on|attached to fixed to|covered in covered with|eating consuming
"""


def _pairs(lines: str) -> Mapping[str, str]:
    """Phrases of up to three words, so the longest that another phrase begins with comes first."""
    phrases = ("next to", "on top of", "looking at", "in front of", "sitting on", "attached to", "covered in")
    found = {}
    for pair in (pair for line in lines.strip().splitlines() for pair in line.split("|")):
        first = next((phrase for phrase in phrases if pair.startswith(f"{phrase} ")), pair.split(" ")[0])
        found[first] = pair[len(first) + 1 :]
    return found


SYNONYMS = _pairs(_SAME)

_DOING = re.compile(r"\w+ing")
_NUMBER = {"is": "are", "are": "is", "has": "have", "have": "has"}


def synonyms(triplet: Triplet) -> Triplet | None:
    """Every part, or else each of its words, by a synonym; None where none is known."""
    found = tuple(_synonym(part.casefold()) for part in triplet)
    return _changed(triplet, (found[0], found[1], found[2]))


def passive(triplet: Triplet) -> Triplet | None:
    """(man, riding, horse) as (horse, being ridden by, man); None where no verb takes an object."""
    inflect, lemma = _inflector()
    words = triplet[1].casefold().split()
    if not 0 < len(words) <= 2 or not _DOING.fullmatch(words[0]):
        return None
    forms = inflect(lemma(words[0], "VERB")[0], "VBN")
    if not forms:
        return None
    return triplet[2], " ".join(["being", forms[0], *words[1:], "by"]), triplet[0]


def number(triplet: Triplet) -> Triplet | None:
    """Singular to plural and the other way round, in both objects; a quality stays as it is."""
    first, relation, second = triplet
    other = second if relation.casefold() in ("is", "are") else _other_number(second)
    return _changed(triplet, (_other_number(first), _NUMBER.get(relation, relation), other))


REWORDINGS: Mapping[str, Reword] = {"synonyms": synonyms, "passive": passive, "number": number}


def _synonym(part: str) -> str:
    if part in SYNONYMS:
        return SYNONYMS[part]
    return " ".join(SYNONYMS.get(word, word) for word in part.split())


def _other_number(name: str) -> str:
    inflect, lemma = _inflector()
    words = name.casefold().split()
    if not words:
        return name
    base = lemma(words[-1], "NOUN")[0]
    forms = inflect(base, "NNS")
    words[-1] = base if base != words[-1] else (forms[0] if forms else words[-1])
    return " ".join(words)


def _changed(before: Triplet, after: Triplet) -> Triplet | None:
    same = all(a.casefold() == b.casefold() for a, b in zip(before, after, strict=True))
    return None if same else after


def _inflector() -> tuple[Callable[[str, str], tuple[str, ...]], Callable[[str, str], tuple[str, ...]]]:
    try:
        from lemminflect import getInflection, getLemma
    except ImportError:
        raise MissingExtraError("lemminflect", "embedded") from None
    return getInflection, getLemma
