"""Hallucinations planted into captions that are true, so that what a judge finds can be counted. Pure.

What is planted is false by the caption's own complete reference: a thing that it does not name, a color or a
number that it does not give, a relation that it states otherwise. A sentence takes one at most. Comparisons
of size have answers of their own: true rankings of things whose usual lengths lie so far apart that the order
is beyond doubt, and the same with two of them exchanged.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from itertools import pairwise, takewhile
from random import Random
from typing import TypeVar

import msgspec

from groundwatch.events import Reference
from groundwatch.language.lexicon import singular
from groundwatch.language.subsentences import split
from groundwatch.language.tokens import NUMBER_WORDS
from groundwatch.protocols.base import folded, with_article
from groundwatch.protocols.chair.protocol import vocabulary
from groundwatch.protocols.planted import Kind

T = TypeVar("T")


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


class _Words(msgspec.Struct, frozen=True):
    colors: tuple[str, ...]
    alike: tuple[frozenset[str], ...]
    things: tuple[str, ...]
    never: frozenset[str]
    nowhere: frozenset[str]
    ends: frozenset[str]
    own_sentences: tuple[str, ...]
    added: tuple[str, ...]
    rankings: tuple[str, ...]
    comparisons: tuple[str, ...]
    positions: dict[str, tuple[str, ...]]
    actions: dict[str, tuple[str, ...]]
    metres: dict[str, float]


@cache
def words() -> _Words:
    """The words that are planted, read once."""
    text = resources.files(__package__).joinpath("planting.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Words)


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


_NUMBERS = tuple(word for word, number in NUMBER_WORDS.items() if 1 < number < 10)
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
                change = any_of(changes, random)
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
        return {
            value for subject, found, value in self.triplets if found == relation and base(subject) == thing
        }

    def relations(self, subject: str, thing: str) -> set[str]:
        return {
            relation
            for left, relation, right in self.triplets
            if base(left) == subject and base(right) == thing
        }


def base(name: str) -> str:
    return singular(folded(name)).rpartition(" ")[2]


def _inserted(sentence: str, known: _Known, random: Random, *, coco: bool) -> Iterator[_Change]:
    free = [name for name in words().things if name not in known.words | known.used]
    if coco:
        taken = known.classes | words().never | known.used
        free = [n for n in vocabulary().classes if n not in taken and base(n) not in known.words]
    if not free:
        return
    name = any_of(free, random)
    known.used.add(name)
    phrase = with_article(name)
    if random.random() < 0.5:
        before, _, after = any_of(words().own_sentences, random).partition("{}")
        start = len(sentence) + 1 + len(before)
        added = before + phrase if before else phrase[0].upper() + phrase[1:]
        yield _Change(f"{sentence} {added}{after}", start, phrase)
        return
    body = sentence.rstrip(".!")
    before, _, after = any_of(words().added, random).partition("{}")
    yield _Change(f"{body}{before}{phrase}{after}.", len(body) + len(before), phrase)


def _colors(sentence: str, known: _Known, random: Random, *, worn: bool = False) -> Iterator[_Change]:
    for thing, relation, color in known.triplets:
        if relation != "is" or color not in words().colors or (base(thing) in known.worn) is not worn:
            continue
        found = _modifying(color, thing, sentence)
        alike = set().union(*(group for group in words().alike if color in group)) | {color}
        given = known.values(base(thing), "is") | set(sentence.casefold().split())
        others = set(words().colors) - alike - given
        if found is not None and others:
            yield _replaced(sentence, *found, any_of(sorted(others), random))


def _modifying(color: str, thing: str, sentence: str) -> tuple[int, int] | None:
    for found in re.finditer(rf"\b(\w+) (?:is|are) ({color})\b", sentence, re.IGNORECASE):
        if base(found.group(1)) == base(thing):
            return found.span(2)
    return next(_before(color, thing, sentence), None)


def _before(said: str, thing: str, sentence: str, between: str = "") -> Iterator[tuple[int, int]]:
    """Where these words stand before a noun phrase that holds the thing's word."""
    rest = f" {between}" if between else ""
    for found in re.finditer(rf"\b({said}){rest}((?: \w+){{1,{_PHRASE}}})", sentence, re.IGNORECASE):
        phrase = list(takewhile(lambda word: word not in words().ends, found.group(2).split()))
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
            yield _replaced(sentence, *found, any_of(others, random))


def _related(sentence: str, known: _Known, random: Random, *, actions: bool) -> Iterator[_Change]:
    """Relations that the sentence states in the reference's words: subject, relation, then the object."""
    table = words().actions if actions else words().positions
    for subject, relation, thing in known.triplets:
        said = next((key for key in table if f" {relation} ".endswith(f" {key} ")), "")
        if actions:
            said = relation.split()[0] if relation.split()[0] in table else ""
        rest = relation.removeprefix(said).strip() if actions else ""
        stated = relation in known.relations(base(subject), base(thing))
        if not said or not stated or base(subject) == base(thing) or base(thing) in words().nowhere:
            continue
        for start, end in _before(said, thing, sentence, rest):
            if base(subject) not in map(base, re.findall(r"\w+", sentence[:start])):
                continue
            known_ones = " ".join(known.relations(base(subject), base(thing)))
            others = [other for other in table[said] if other not in known_ones]
            if others:
                yield _replaced(sentence, start, end, any_of(others, random))
                break


def _replaced(sentence: str, start: int, end: int, text: str) -> _Change:
    """The sentence with other words, with the article before them and its capital letter kept right."""
    old, head = sentence[start:end], sentence[:start]
    new = text[0].upper() + text[1:] if old[0].isupper() else text
    article = re.search(r"\b([Aa])n? $", head)
    if article:
        head = head[: article.start()] + article.group(1) + ("n " if text[0] in "aeiou" else " ")
    return _Change(head + new + sentence[end:], len(head), text, old.casefold())


def any_of(items: Sequence[T], random: Random) -> T:
    """Any item, by `Random.random` alone: its sequence stays the same in every Python."""
    return items[int(random.random() * len(items))]


_ROOM: dict[Kind, Callable[[str, _Known, Random], Iterator[_Change]]] = {
    Kind.OBJECT: partial(_inserted, coco=True),
    Kind.THING: partial(_inserted, coco=False),
    Kind.COLOR: _colors,
    Kind.CLOTHING: partial(_colors, worn=True),
    Kind.COUNT: _counts,
    Kind.POSITION: partial(_related, actions=False),
    Kind.ACTION: partial(_related, actions=True),
}

APART = 2.5
"""Each thing is at least so many times as long as the next smaller one."""

FEWEST, MOST = 3, 5
"""Things that an answer compares."""


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that compares sizes. `things` are in true order, from large to small.

    `exchanged` are the two that the answer has in each other's place; None for an answer that is true.
    """

    answer: str
    things: tuple[str, ...]
    exchanged: tuple[str, str] | None = None


def comparable(names: Iterable[str], random: Random) -> tuple[str, ...]:
    """Names of things whose sizes are beyond doubt, from large to small; fewer than `FEWEST` give none."""
    metres = words().metres
    found: list[str] = []
    for name in sorted(sorted(metres.keys() & set(names)), key=lambda name: (-metres[name], random.random())):
        if not found or metres[found[-1]] >= APART * metres[name]:
            found.append(name)
    while len(found) > MOST:
        found.pop(int(random.random() * len(found)))
    return tuple(found) if len(found) >= FEWEST else ()


def rank(things: Sequence[str], random: Random, *, wrong: bool) -> Ranking:
    """An answer about things from large to small; with `wrong`, two of them change places."""
    if len(things) < 2:
        raise ValueError("nothing to compare")
    said = list(things)
    exchanged = None
    if wrong:
        first = int(random.random() * (len(said) - 1))
        second = first + 1 + int(random.random() * (len(said) - 1 - first))
        said[first], said[second] = said[second], said[first]
        exchanged = things[first], things[second]
    return Ranking(answer=_sentence(said, random), things=tuple(things), exchanged=exchanged)


def _sentence(said: Sequence[str], random: Random) -> str:
    style = int(random.random() * (len(words().rankings) + 1))
    if style == len(words().rankings):
        forms = words().comparisons
        return " ".join(
            forms[int(random.random() * 2) if at else 0].format(one=one, other=other)
            for at, (one, other) in enumerate(pairwise(said))
        )
    first, *others = said
    rest = ", ".join(f"the {name}" for name in others[:-1])
    rest = f"{rest} and the {others[-1]}" if rest else f"the {others[-1]}"
    return words().rankings[style].format(first=first, rest=rest)
