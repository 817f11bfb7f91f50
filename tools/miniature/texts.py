"""What models are trained on and measured with: statements with their truth, questions, reference captions.

The templates are those in which the decomposer writes atomic facts, and the sentences of the answers
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import msgspec
from tools.miniature.answers import comparison, mention, relation

from groundwatch.miniature.language import PLURALS, article, counted, phrase, sentence
from groundwatch.miniature.world import COLORS, KINDS, PLACES, SIZES, Scene, Thing, missing_partners

Pair = tuple[str, str]
"""A statement that holds and one that does not, as alike as can be."""

ABSENT = 0.15
"""How often what is wrong about a statement is that its subject is not there at all."""


def _absent(shown: Scene, random: Random) -> str:
    kinds = {thing.kind for thing in shown.things}
    return random.choice([kind for kind in KINDS if kind not in kinds])


def _noun(words: str) -> str:
    return f"{article(words)} {words}"


def _named(shown: Scene, random: Random) -> list[tuple[Thing, str]]:
    named = [(thing, name) for thing in shown.things if (name := mention(thing, shown))]
    random.shuffle(named)
    return named


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
    right = sentence(f"{name} is in the {thing.place} corner")
    draw = random.random()
    if draw < ABSENT:
        return right, f"The {_absent(shown, random)} is in the {thing.place} corner."
    taken = [other.place for other in shown.things if other.place != thing.place]
    places = taken if taken and draw < 0.6 else [place for place in PLACES if place != thing.place]
    return right, sentence(f"{name} is in the {random.choice(places)} corner")


def _side(shown: Scene, random: Random) -> Pair | None:
    named = _named(shown, random)
    if not named:
        return None
    thing, name = named[0]
    if random.random() < 0.5:
        return (
            sentence(f"{name} is on the {('left', 'right')[thing.column]}"),
            sentence(f"{name} is on the {('right', 'left')[thing.column]}"),
        )
    return (
        sentence(f"{name} is at the {('top', 'bottom')[thing.row]}"),
        sentence(f"{name} is at the {('bottom', 'top')[thing.row]}"),
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
                right = sentence(f"{first_name} is {word} {second_name}")
                draw = random.random()
                if draw < ABSENT / 2:
                    return right, f"The {_absent(shown, random)} is {word} {second_name}."
                if draw < ABSENT:
                    return right, sentence(f"{first_name} is {word} the {_absent(shown, random)}")
                if draw < 0.5:
                    return right, sentence(f"{first_name} is {other} {second_name}")
                return right, sentence(f"{second_name} is {word} {first_name}")
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
            right = sentence(f"{first_name} is {word} {second_name}")
            draw = random.random()
            if draw < ABSENT / 2:
                return right, f"The {_absent(shown, random)} is {word} {second_name}."
            same = [name for thing, name in named if thing is not first and thing.size == first.size]
            if draw < 0.35 and same:
                return right, sentence(f"{first_name} is {word} {same[0]}")
            if draw < 0.65:
                return right, sentence(f"{first_name} is {other} {second_name}")
            return right, sentence(f"{second_name} is {word} {first_name}")
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


def ask_existence(words: str) -> str:
    """POPE's question about an object."""
    return f"Is there {article(words)} {words} in the image?"


def questions(shown: Scene, random: Random, number: int) -> Iterator[tuple[str, bool]]:
    """`number` questions about one scene in pairs of yes and no: kinds, and kinds with a color."""
    kinds = {thing.kind for thing in shown.things}
    held = {(thing.color, thing.kind) for thing in shown.things}
    for _ in range((number + 1) // 2):
        thing = random.choice(shown.things)
        if random.random() < 0.6:
            yield ask_existence(thing.kind), True
            yield ask_existence(random.choice([kind for kind in KINDS if kind not in kinds])), False
        else:
            colors = [color for color in COLORS if (color, thing.kind) not in held]
            yield ask_existence(f"{thing.color} {thing.kind}"), True
            yield ask_existence(f"{random.choice(colors)} {thing.kind}"), False


def reference(shown: Scene, random: Random) -> str:
    """A caption as a person might write it: words, order and detail vary."""
    things = list(shown.things)
    random.shuffle(things)
    size = {"small": ("small", "little", "tiny"), "large": ("large", "big", "huge")}
    where = {
        "top left": ("in the top left corner", "at the upper left"),
        "top right": ("in the top right corner", "at the upper right"),
        "bottom left": ("in the bottom left corner", "at the lower left"),
        "bottom right": ("in the bottom right corner", "at the lower right"),
    }
    said = []
    for thing in things:
        words = f"{random.choice(size[thing.size])} {thing.color} {thing.kind}"
        named = f"{article(words)} {words}"
        place = random.choice(where[thing.place])
        said.append(
            random.choice(
                (
                    f"there is {named} {place}",
                    f"{named} is {place}",
                    f"{place} one sees {named}",
                    f"the image has {named} {place}",
                )
            )
        )
    extra = [text for text in (relation(shown), comparison(shown)) if text and random.random() < 0.6]
    return " ".join([*(sentence(words) for words in said), *extra])


def with_partners(shown: Scene, random: Random) -> Scene:
    """The scene as the biased split annotates it: missing partners stand in free corners."""
    things = list(shown.things)
    for partner in missing_partners(shown):
        free = [place for place in PLACES if place not in {thing.place for thing in things}]
        if not free:
            break
        things.append(
            Thing(
                kind=partner,
                color=random.choice(tuple(COLORS)),
                size=random.choice(tuple(SIZES)),
                place=random.choice(free),
            )
        )
    things.sort(key=lambda thing: PLACES.index(thing.place))
    return Scene(things=tuple(things), seed=shown.seed)
