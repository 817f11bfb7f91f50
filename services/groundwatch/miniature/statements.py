"""Statements about a scene with their truth: minimal pairs for training and measuring a verifier.

A statement with a definite phrase, "the ball is red", holds when some ball of the scene is red: what is said
of a thing that is not there does not hold. The templates are those in which the decomposer writes atomic
facts, and the sentences of the answers themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random

import msgspec

from groundwatch.miniature.language import NUMBERS, PLURALS, article, counted, mention, phrase
from groundwatch.miniature.world import COLORS, KINDS, PLACES, SIZES, Scene, Thing

Pair = tuple[str, str]
"""A statement that holds and one that does not, as alike as can be."""

ABSENT = 0.15
"""How often what is wrong about a statement is that its subject is not there at all."""


class Stated(msgspec.Struct, frozen=True, kw_only=True):
    """A statement, whether it holds, and the template that it comes from."""

    text: str
    holds: bool
    template: str


def _absent(shown: Scene, random: Random) -> str:
    kinds = {thing.kind for thing in shown.things}
    return random.choice([kind for kind in KINDS if kind not in kinds])


def _noun(words: str) -> str:
    return f"{article(words)} {words}"


def _named(shown: Scene, random: Random) -> list[tuple[Thing, str]]:
    named = [(thing, name) for thing in shown.things if (name := mention(thing, shown))]
    random.shuffle(named)
    return named


def _say(name: str, rest: str) -> str:
    return f"{name[0].upper()}{name[1:]} {rest}."


def _existence(shown: Scene, random: Random) -> Pair:
    if random.random() < 0.15:
        plenty = [kind for kind in KINDS if len(shown.of_kind(kind)) > 1]
        if plenty:
            kind = random.choice(plenty)
            return f"There are {PLURALS[kind]}.", f"There are {PLURALS[_absent(shown, random)]}."
    here = random.choice(shown.things).kind
    return f"There is {_noun(here)}.", f"There is {_noun(_absent(shown, random))}."


def _existence_color(shown: Scene, random: Random) -> Pair:
    thing = random.choice(shown.things)
    held = {(other.color, other.kind) for other in shown.things}
    wrong = _bound(thing.color, thing.kind, held, tuple(COLORS), random)
    return f"There is {_noun(f'{thing.color} {thing.kind}')}.", f"There is {_noun(' '.join(wrong))}."


def _existence_size(shown: Scene, random: Random) -> Pair:
    thing = random.choice(shown.things)
    held = {(other.size, other.kind) for other in shown.things}
    wrong = _bound(thing.size, thing.kind, held, tuple(SIZES), random)
    return f"There is {_noun(f'{thing.size} {thing.kind}')}.", f"There is {_noun(' '.join(wrong))}."


def _bound(
    value: str, kind: str, held: set[tuple[str, str]], values: Sequence[str], random: Random
) -> tuple[str, str]:
    """A pair that no thing has, half the time one whose parts are both there on different things."""
    crossed = [(a, b) for a, _ in sorted(held) for _, b in sorted(held) if (a, b) not in held]
    swapped = [(a, b) for a, b in crossed if a == value or b == kind]
    if swapped and random.random() < 0.5:
        return random.choice(swapped)
    others = [(other, kind) for other in values if (other, kind) not in held]
    kinds = [(value, other) for other in KINDS if (value, other) not in held]
    return random.choice(others if others and random.random() < 0.6 else kinds)


def _whole(shown: Scene, random: Random) -> Pair:
    thing = random.choice(shown.things)
    draw = random.random()
    if draw < 0.25:
        free = [place for place in PLACES if place != thing.place]
        wrong = msgspec.structs.replace(thing, place=random.choice(free))
    else:
        wrong = thing.changed(random, ("kind", "color", "size")[int((draw - 0.25) * 4)])
    if wrong in shown.things:
        wrong = msgspec.structs.replace(wrong, kind=_absent(shown, random))
    return tuple(  # type: ignore[return-value]
        f"There is {phrase(one)} in the {one.place} corner." for one in (thing, wrong)
    )


_KEEP = {1: 0.13, 2: 0.42, 3: 1.0, 4: 0.0}
"""How often a count is used: one of a kind is common, three are rare, and "one" must not mean "true"."""


def _count(shown: Scene, random: Random) -> Pair | None:
    kind = random.choice(shown.things).kind
    number = len(shown.of_kind(kind))
    if random.random() > _KEEP[number]:
        return None
    other = random.choice([n for n in (1, 2, 3) if n != number])
    return _there(kind, number), _there(kind, other)


def _count_all(shown: Scene, random: Random) -> Pair:
    number = len(shown.things)
    other = random.choice([n for n in (1, 2, 3, 4) if n != number])
    return _there("object", number), _there("object", other)


def _there(kind: str, number: int) -> str:
    return f"There {'is' if number == 1 else 'are'} {counted(kind, number)}."


def _attribute(name: str) -> Callable[[Scene, Random], Pair | None]:
    values = {"color": tuple(COLORS), "size": tuple(SIZES)}[name]

    def pair(shown: Scene, random: Random) -> Pair | None:
        kind = random.choice(shown.things).kind
        alike = shown.of_kind(kind)
        held = {getattr(thing, name) for thing in alike}
        value = random.choice(sorted(held))
        right = f"The {kind} is {value}."
        if random.random() < ABSENT:
            return right, f"The {_absent(shown, random)} is {value}."
        elsewhere = sorted({getattr(thing, name) for thing in shown.things} - held)
        free = [other for other in values if other not in held]
        if not free:
            return None
        wrong = random.choice(elsewhere if elsewhere and random.random() < 0.5 else free)
        return right, f"The {kind} is {wrong}."

    return pair


def _place(shown: Scene, random: Random) -> Pair | None:
    named = _named(shown, random)
    if not named:
        return None
    thing, name = named[0]
    right = _say(name, f"is in the {thing.place} corner")
    draw = random.random()
    if draw < ABSENT:
        return right, f"The {_absent(shown, random)} is in the {thing.place} corner."
    taken = [other.place for other in shown.things if other.place != thing.place]
    places = taken if taken and draw < 0.6 else [place for place in PLACES if place != thing.place]
    return right, _say(name, f"is in the {random.choice(places)} corner")


def _side(shown: Scene, random: Random) -> Pair | None:
    named = _named(shown, random)
    if not named:
        return None
    thing, name = named[0]
    if random.random() < 0.5:
        return (
            _say(name, f"is on the {('left', 'right')[thing.column]}"),
            _say(name, f"is on the {('right', 'left')[thing.column]}"),
        )
    return (
        _say(name, f"is at the {('top', 'bottom')[thing.row]}"),
        _say(name, f"is at the {('bottom', 'top')[thing.row]}"),
    )


def _beside(sideways: bool) -> Callable[[Scene, Random], Pair | None]:
    words = ("to the left of", "to the right of") if sideways else ("above", "below")

    def pair(shown: Scene, random: Random) -> Pair | None:
        named = _named(shown, random)
        for first, first_name in named:
            for second, second_name in named:
                axis = (first.column, second.column) if sideways else (first.row, second.row)
                if axis[0] == axis[1]:
                    continue
                word, other = words if axis[0] < axis[1] else words[::-1]
                right = _say(first_name, f"is {word} {second_name}")
                draw = random.random()
                if draw < ABSENT / 2:
                    return right, f"The {_absent(shown, random)} is {word} {second_name}."
                if draw < ABSENT:
                    return right, _say(first_name, f"is {word} the {_absent(shown, random)}")
                if draw < 0.5:
                    return right, _say(first_name, f"is {other} {second_name}")
                return right, _say(second_name, f"is {word} {first_name}")
        return None

    return pair


def _comparison(shown: Scene, random: Random) -> Pair | None:
    named = _named(shown, random)
    for first, first_name in named:
        for second, second_name in named:
            if first.size == second.size:
                continue
            words = ("larger than", "smaller than")
            word, other = words if first.size == "large" else words[::-1]
            right = _say(first_name, f"is {word} {second_name}")
            draw = random.random()
            if draw < ABSENT / 2:
                return right, f"The {_absent(shown, random)} is {word} {second_name}."
            same = [name for thing, name in named if thing is not first and thing.size == first.size]
            if draw < 0.35 and same:
                return right, _say(first_name, f"is {word} {same[0]}")
            if draw < 0.65:
                return right, _say(first_name, f"is {other} {second_name}")
            return right, _say(second_name, f"is {word} {first_name}")
    return None


def _plural(shown: Scene, random: Random) -> Pair | None:
    plenty = [kind for kind in KINDS if len(shown.of_kind(kind)) > 1]
    if not plenty:
        return None
    kind = random.choice(plenty)
    alike = shown.of_kind(kind)
    colors, sizes = {thing.color for thing in alike}, {thing.size for thing in alike}
    usable = [(colors, tuple(COLORS))] if len(colors) == 1 else []
    usable += [(sizes, tuple(SIZES))] if len(sizes) == 1 else []
    if not usable:
        return None
    held, values = random.choice(usable)
    value = next(iter(held))
    seen = sorted({getattr(thing, "color" if value in COLORS else "size") for thing in shown.things} - held)
    others = [other for other in values if other not in held]
    wrong = random.choice(seen if seen and random.random() < 0.5 else others)
    return f"The {PLURALS[kind]} are {value}.", f"The {PLURALS[kind]} are {wrong}."


TEMPLATES: dict[str, Callable[[Scene, Random], Pair | None]] = {
    "existence": _existence,
    "existence-color": _existence_color,
    "existence-size": _existence_size,
    "whole": _whole,
    "count": _count,
    "count-all": _count_all,
    "color": _attribute("color"),
    "size": _attribute("size"),
    "place": _place,
    "side": _side,
    "horizontal": _beside(True),
    "vertical": _beside(False),
    "comparison": _comparison,
    "plural": _plural,
}
"""Every template by name; a template gives None for a scene that it has nothing to say about."""


def pairs(
    shown: Scene, random: Random, number: int, weights: dict[str, float] | None = None
) -> Iterator[tuple[str, Pair]]:
    """Up to `number` pairs with their templates, templates drawn by weight (alike by default)."""
    names = list(TEMPLATES)
    scale = [1.0 if weights is None else weights[name] for name in names]
    for name in random.choices(names, scale, k=4 * number):
        pair = TEMPLATES[name](shown, random)
        if pair is not None:
            yield name, pair
            number -= 1
            if number <= 0:
                return


_SIZE, _COLOR, _KIND = "|".join(SIZES), "|".join(COLORS), "|".join((*KINDS, "object"))
_THING = rf"(?:the|a|an|one|another) (?:({_SIZE}) )?(?:({_COLOR}) )?({_KIND})"
_MANY = "|".join(PLURALS.values())
_PLACE = "|".join(PLACES)
_SHAPES = {
    "count": re.compile(
        rf"there (?:is|are) ({'|'.join(NUMBERS)}) ({_KIND}|{_MANY})(?: in the (?:picture|image))?"
    ),
    "exists": re.compile(rf"there is {_THING}(?: (?:in|at) the ({_PLACE})(?: corner)?)?"),
    "several": re.compile(rf"there are (?:({_SIZE}) )?(?:({_COLOR}) )?({_MANY})"),
    "is": re.compile(rf"{_THING} is ({_SIZE}|{_COLOR})"),
    "are": re.compile(rf"the ({_MANY}) are ({_SIZE}|{_COLOR})"),
    "in": re.compile(rf"{_THING} is (?:in|at) the ({_PLACE})(?: corner)?"),
    "on": re.compile(rf"{_THING} is (?:on|at) the (left|right|top|bottom)(?: side)?"),
    "by": re.compile(
        rf"{_THING} is ((?:to the )?(?:left|right) of|above|below|larger than|smaller than) {_THING}"
    ),
}
_SINGULAR = {plural: kind for kind, plural in PLURALS.items()}


def holds(shown: Scene, text: str) -> bool | None:
    """Whether a statement holds for a scene; None when it is in no form that this world speaks.

    Understands what the templates, the answers and the decomposer write about scenes.
    """
    words = text.strip().rstrip(".").lower()
    for name, shape in _SHAPES.items():
        found = shape.fullmatch(words)
        if found is not None:
            return _TRUTHS[name](shown, *found.groups())
    return None


def _fitting(shown: Scene, size: str | None, color: str | None, kind: str) -> list[Thing]:
    return [
        thing
        for thing in shown.of_kind(kind)
        if (size is None or thing.size == size) and (color is None or thing.color == color)
    ]


def _truth_exists(shown: Scene, size: str | None, color: str | None, kind: str, place: str | None) -> bool:
    return any(place in (None, thing.place) for thing in _fitting(shown, size, color, kind))


def _truth_count(shown: Scene, number: str, kind: str) -> bool:
    return len(shown.of_kind(_SINGULAR.get(kind, kind))) == NUMBERS.index(number)


def _truth_several(shown: Scene, size: str | None, color: str | None, kinds: str) -> bool:
    return len(_fitting(shown, size, color, _SINGULAR[kinds])) > 1


def _truth_is(shown: Scene, size: str | None, color: str | None, kind: str, value: str) -> bool:
    return any(value in (thing.size, thing.color) for thing in _fitting(shown, size, color, kind))


def _truth_are(shown: Scene, kinds: str, value: str) -> bool:
    alike = shown.of_kind(_SINGULAR[kinds])
    return len(alike) > 1 and all(value in (thing.size, thing.color) for thing in alike)


def _truth_on(shown: Scene, size: str | None, color: str | None, kind: str, side: str) -> bool:
    return any(side in thing.place for thing in _fitting(shown, size, color, kind))


def _truth_by(shown: Scene, *parts: str) -> bool:
    relation = parts[3].removeprefix("to the ")
    for first in _fitting(shown, *parts[:3]):
        for second in _fitting(shown, *parts[4:]):
            if first is not second and _RELATIONS[relation](first, second):
                return True
    return False


_RELATIONS: dict[str, Callable[[Thing, Thing], bool]] = {
    "left of": lambda a, b: a.column < b.column,
    "right of": lambda a, b: a.column > b.column,
    "above": lambda a, b: a.row < b.row,
    "below": lambda a, b: a.row > b.row,
    "larger than": lambda a, b: (a.size, b.size) == ("large", "small"),
    "smaller than": lambda a, b: (a.size, b.size) == ("small", "large"),
}
_TRUTHS: dict[str, Callable[..., bool]] = {
    "exists": _truth_exists,
    "count": _truth_count,
    "several": _truth_several,
    "is": _truth_is,
    "are": _truth_are,
    "in": _truth_exists,
    "on": _truth_on,
    "by": _truth_by,
}
