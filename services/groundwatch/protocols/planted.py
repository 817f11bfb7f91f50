"""Hallucinations planted into captions that are true, so that what a judge finds can be counted. Pure.

What is planted is false by the caption's own complete reference: a thing that it does not name, a color or a
number that it does not give, a relation that it states otherwise. A sentence takes one at most.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile
from random import Random
from typing import TypeVar

import msgspec

from groundwatch.events import Reference
from groundwatch.language.lexicon import singular
from groundwatch.language.numbers import NUMBER_WORDS
from groundwatch.language.subsentences import split
from groundwatch.protocols.coco import vocabulary

T = TypeVar("T")


class Kind(StrEnum):
    """What can be planted. An `OBJECT` is of a COCO class, a `THING` is not; `CLOTHING` is a color of it.

    A `COMPARISON` needs answers of its own, which `planted_sizes` writes.
    """

    OBJECT = "object"
    THING = "other thing"
    COLOR = "color"
    CLOTHING = "color of clothing"
    COUNT = "count"
    POSITION = "position"
    ACTION = "action"
    COMPARISON = "comparison"


def by_kind(categories: Mapping[str, Sequence[Kind]]) -> Mapping[Kind, frozenset[str]]:
    """`EvaluationProtocol.sees` from the kinds that claims of each category speak of."""
    return {kind: frozenset({category}) for category, kinds in categories.items() for kind in kinds}


def related(reference: Reference) -> list[tuple[str, str, str]]:
    """The reference's triplets that relate two things."""
    return [triplet for triplet in reference.triplets if triplet[1] not in ("is", "count")]


def named_things(reference: Reference) -> Reference:
    """Of a caption's reference only what is there, for protocols that look for names."""
    ends = [end for subject, _, thing in related(reference) for end in (subject, thing)]
    return Reference(objects=tuple(dict.fromkeys([*reference.objects, *ends])), complete=True)


RATES: Mapping[Kind, float] = {
    Kind.OBJECT: 0.15,
    Kind.THING: 0.1,
    Kind.COLOR: 0.3,
    Kind.CLOTHING: 0.6,
    Kind.COUNT: 0.9,
    Kind.POSITION: 0.5,
    Kind.ACTION: 0.5,
}
"""The share of sentences with room for a kind into which it is planted: rare kinds of room are used more."""


class Caption(msgspec.Struct, frozen=True):
    """True sentences about one image, and all that is known of it."""

    sentences: tuple[str, ...]
    reference: Reference


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """One hallucination: what the answer says, and what it said before ("" for an insertion).

    `unit` is the index of its sub-sentence, as FaithScore cuts the answer.
    """

    kind: Kind
    unit: int
    text: str
    instead_of: str = ""


class PlantedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A caption with its hallucinations; every sub-sentence without one is true."""

    answer: str
    reference: Reference
    planted: tuple[Planted, ...]


class _Change(msgspec.Struct, frozen=True):
    """A sentence after planting; the planted words start at `at`."""

    sentence: str
    at: int
    text: str
    instead_of: str = ""


_COLORS = ("red", "blue", "green", "yellow", "black", "white", "purple", "orange", "brown", "pink", "gray")
_ALIKE = (
    {"red", "orange", "pink"},
    {"orange", "brown", "yellow"},
    {"purple", "pink"},
    {"gray", "white"},
    {"gray", "black"},
)
_NUMBERS = tuple(word for word, number in NUMBER_WORDS.items() if 1 < number < 10)
_POSITIONS = {
    "in front of": ("behind",),
    "behind": ("in front of",),
    "under": ("on top of", "above"),
    "above": ("under", "below"),
    "below": ("above",),
    "over": ("under",),
    "on": ("under", "behind"),
    "next to": ("under", "on top of"),
    "beside": ("under", "on top of"),
    "outside": ("inside",),
    "inside": ("outside",),
}
_ACTIONS = {
    "sitting": ("standing", "lying"),
    "standing": ("sitting", "lying"),
    "lying": ("standing", "sitting"),
    "kneeling": ("standing",),
    "crouching": ("standing",),
    "walking": ("running",),
    "running": ("walking",),
    "holding": ("throwing", "dropping"),
    "carrying": ("throwing",),
    "wearing": ("holding", "folding"),
    "riding": ("pushing", "washing"),
    "pushing": ("pulling",),
    "pulling": ("pushing",),
    "kicking": ("catching",),
    "lifting": ("lowering",),
    "opening": ("closing",),
    "reading": ("folding",),
    "swinging": ("dropping",),
}
_THINGS = (
    *(
        "ladder",
        "lamp",
        "flag",
        "statue",
        "fountain",
        "guitar",
        "piano",
        "drum",
        "candle",
        "basket",
        "barrel",
    ),
    *("tent", "telescope", "helicopter", "windmill", "wheelchair", "camera", "globe", "trumpet", "anchor"),
    *("rocket", "cactus", "mannequin", "snowman", "lighthouse", "robot", "hammock", "chandelier", "lantern"),
    *("scarecrow", "stroller", "trophy", "cello", "typewriter", "harp", "tractor"),
)
_NEVER = frozenset({"person", "skis", "scissors", "dining table", "sports ball", "potted plant", "tv"})
"""COCO classes that are hard to miss in any image, or that no one calls so."""

_NOWHERE = frozenset(
    {"arm", "cobblestone", "dune", "ear", "edge", "grass", "ground", "hand", "playground", "river", "road"}
    | {"sand", "shoulder", "soil", "street", "trail", "wall", "water"}
)
"""What nothing is under, above or behind in natural words, or what nobody lets go of."""

_OWN_SENTENCES = (
    "There is {} in the background.",
    "In the background, there is {}.",
    "{} can be seen nearby.",
    "{} is visible in the scene.",
    "There is also {} in the image.",
)
_ADDED = (" with {} nearby", " next to {}", " and {} is visible in the background", ", and {} is nearby")
_ENDS = frozenset({"and", "or", "with", "in", "on", "at", "of", "is", "are", "that", "who", "which", "to"})
"""Words that end a noun phrase."""

_PHRASE = 4
"""A thing's word stands among so many words behind what is said of it."""


def plant(caption: Caption, random: Random, rates: Mapping[Kind, float] = RATES) -> PlantedAnswer:
    """Plant into a caption, each kind at its rate; the same state of `random` plants the same.

    `rates` may leave kinds out, and has no comparisons. The order in which kinds are tried is drawn for
    each sentence.
    """
    parts: list[str] = []
    marks: list[tuple[Kind, int, _Change]] = []
    known = _Known(caption)
    for sentence in caption.sentences:
        kinds = sorted(rates, key=lambda kind: (random.random(), kind))
        for kind in kinds:
            if random.random() >= rates[kind]:
                continue
            changes = list(_ROOM[kind](sentence, known, random))
            if changes:
                change = _one(changes, random)
                start = sum(len(part) + 1 for part in parts)
                parts.append(change.sentence)
                marks.append((kind, start + change.at, change))
                break
        else:
            parts.append(sentence)
    answer = " ".join(parts)
    units = split(answer)
    return PlantedAnswer(
        answer=answer,
        reference=caption.reference,
        planted=tuple(
            Planted(
                kind=kind,
                unit=next(index for index, unit in enumerate(units) if unit.start <= at < unit.end),
                text=change.text,
                instead_of=change.instead_of,
            )
            for kind, at, change in marks
        ),
    )


class _Known:
    """What a caption's reference says, by the last word of a name in the singular."""

    def __init__(self, caption: Caption) -> None:
        reference = caption.reference
        self.triplets = reference.triplets
        self.worn = {base(thing) for _, relation, thing in reference.triplets if relation == "wearing"}
        true = [fact.text for fact in reference.facts if fact.holds]
        ends = [end for subject, _, thing in reference.triplets for end in (subject, thing)]
        texts = [*reference.objects, *ends, *true, *caption.sentences]
        self.words = {base(word) for text in texts for word in re.findall(r"\w+", text)}
        self.classes = {mention.name for text in texts for mention in vocabulary().mentions(text)}
        self.used: set[str] = set()

    def values(self, thing: str, relation: str) -> set[str]:
        """Everything that a relation gives for a thing."""
        return {
            value for subject, found, value in self.triplets if found == relation and base(subject) == thing
        }

    def relations(self, subject: str, thing: str) -> set[str]:
        """Every relation between two things."""
        return {
            relation
            for left, relation, right in self.triplets
            if base(left) == subject and base(right) == thing
        }


def base(name: str) -> str:
    """The last word of a name, in the singular."""
    return singular(" ".join(name.casefold().split())).rpartition(" ")[2]


def _objects(sentence: str, known: _Known, random: Random) -> Iterator[_Change]:
    free = [
        name
        for name in vocabulary().classes
        if name not in known.classes | _NEVER | known.used and base(name) not in known.words
    ]
    yield from _inserted(sentence, free, known, random)


def _things(sentence: str, known: _Known, random: Random) -> Iterator[_Change]:
    free = [name for name in _THINGS if name not in known.words | known.used]
    yield from _inserted(sentence, free, known, random)


def _inserted(sentence: str, free: Sequence[str], known: _Known, random: Random) -> Iterator[_Change]:
    if not free:
        return
    name = _one(free, random)
    known.used.add(name)
    phrase = f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    if random.random() < 0.5:
        before, _, after = _one(_OWN_SENTENCES, random).partition("{}")
        start = len(sentence) + 1 + len(before)
        added = before + phrase if before else phrase[0].upper() + phrase[1:]
        yield _Change(f"{sentence} {added}{after}", start, phrase)
        return
    body = sentence.rstrip(".!")
    before, _, after = _one(_ADDED, random).partition("{}")
    yield _Change(f"{body}{before}{phrase}{after}.", len(body) + len(before), phrase)


def _colors(sentence: str, known: _Known, random: Random, *, worn: bool = False) -> Iterator[_Change]:
    for thing, relation, color in known.triplets:
        if relation != "is" or color not in _COLORS or (base(thing) in known.worn) is not worn:
            continue
        found = _modifying(color, thing, sentence)
        alike = set().union(*(group for group in _ALIKE if color in group)) | {color}
        others = set(_COLORS) - alike - known.values(base(thing), "is") - set(sentence.casefold().split())
        if found is not None and others:
            yield _replaced(sentence, *found, _one(sorted(others), random))


def _modifying(color: str, thing: str, sentence: str) -> tuple[int, int] | None:
    """Where the color stands before the thing's word or behind it with a verb."""
    for found in re.finditer(rf"\b(\w+) (?:is|are) ({color})\b", sentence, re.IGNORECASE):
        if base(found.group(1)) == base(thing):
            return found.span(2)
    return next(_before(color, thing, sentence), None)


def _before(words: str, thing: str, sentence: str, between: str = "") -> Iterator[tuple[int, int]]:
    """Where these words stand before a noun phrase that holds the thing's word."""
    rest = f" {between}" if between else ""
    for found in re.finditer(rf"\b({words}){rest}((?: \w+){{1,{_PHRASE}}})", sentence, re.IGNORECASE):
        phrase = list(takewhile(lambda word: word not in _ENDS, found.group(2).split()))
        if base(thing) in map(base, phrase):
            yield found.span(1)


def _counts(sentence: str, known: _Known, random: Random) -> Iterator[_Change]:
    for thing, relation, number in known.triplets:
        if relation != "count" or number not in _NUMBERS:
            continue
        at = _NUMBERS.index(number)
        given = known.values(base(thing), "count")
        others = [
            other
            for index, other in enumerate(_NUMBERS)
            if 1 < abs(index - at) < 4 and other not in given and f" {other} " not in sentence.casefold()
        ]
        found = next(_before(number, thing, sentence), None)
        if found is not None and others:
            yield _replaced(sentence, *found, _one(others, random))


def _positions(sentence: str, known: _Known, random: Random) -> Iterator[_Change]:
    yield from _related(sentence, known, random, _POSITIONS, whole=False)


def _actions(sentence: str, known: _Known, random: Random) -> Iterator[_Change]:
    yield from _related(sentence, known, random, _ACTIONS, whole=True)


def _related(
    sentence: str, known: _Known, random: Random, table: Mapping[str, tuple[str, ...]], *, whole: bool
) -> Iterator[_Change]:
    """Relations that the sentence states in the reference's words: subject, relation, then the object."""
    for subject, relation, thing in known.triplets:
        said = next((key for key in table if f" {relation} ".endswith(f" {key} ")), "")
        if whole:
            said = relation.split()[0] if relation.split()[0] in table else ""
        rest = relation.removeprefix(said).strip() if whole else ""
        stated = relation in known.relations(base(subject), base(thing))
        if not said or not stated or base(subject) == base(thing) or base(thing) in _NOWHERE:
            continue
        for start, end in _before(said, thing, sentence, rest):
            if base(subject) not in map(base, re.findall(r"\w+", sentence[:start])):
                continue
            known_ones = " ".join(known.relations(base(subject), base(thing)))
            others = [other for other in table[said] if other not in known_ones]
            if others:
                yield _replaced(sentence, start, end, _one(others, random))
                break


def _replaced(sentence: str, start: int, end: int, text: str) -> _Change:
    """The sentence with other words, with the article before them and its capital letter kept right."""
    old, head = sentence[start:end], sentence[:start]
    new = text[0].upper() + text[1:] if old[0].isupper() else text
    article = re.search(r"\b([Aa])n? $", head)
    if article:
        head = head[: article.start()] + article.group(1) + ("n " if text[0] in "aeiou" else " ")
    return _Change(head + new + sentence[end:], len(head), text, old.casefold())


def _one(items: Sequence[T], random: Random) -> T:
    """Any item, by `Random.random` alone: its sequence stays the same in every Python."""
    return items[int(random.random() * len(items))]


def _clothing(sentence: str, known: _Known, random: Random) -> Iterator[_Change]:
    return _colors(sentence, known, random, worn=True)


_ROOM: dict[Kind, Callable[[str, _Known, Random], Iterator[_Change]]] = {
    Kind.OBJECT: _objects,
    Kind.THING: _things,
    Kind.COLOR: _colors,
    Kind.CLOTHING: _clothing,
    Kind.COUNT: _counts,
    Kind.POSITION: _positions,
    Kind.ACTION: _actions,
}
