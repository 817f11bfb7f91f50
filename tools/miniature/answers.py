"""What the models of the miniature world are taught to say: answers about a scene in six manners.

The manner of an answer follows from the prompt, and the words from manner and scene alone, so that a model
which sees well has exactly one right answer to learn. Each manner mixes description with remarks that no
image can prove or refute, as real answers do.
"""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from groundwatch.miniature.language import (
    REMARKS,
    corner,
    counted,
    enumerated,
    phrase,
    phrases,
    relations,
    sentence,
)
from groundwatch.miniature.world import PLACES, Scene, Thing


def mention(thing: Thing, shown: Scene) -> str | None:
    """The shortest definite phrase that only this thing of the scene fits; None when there is none."""
    alike = shown.of_kind(thing.kind)
    if len(alike) == 1:
        return f"the {thing.kind}"
    if sum(other.color == thing.color for other in alike) == 1:
        return f"the {thing.color} {thing.kind}"
    return None


def _named(shown: Scene) -> list[tuple[Thing, str]]:
    """The things that can be named, with their names."""
    return [(thing, name) for thing in shown.things if (name := mention(thing, shown))]


def direction(first: Thing, second: Thing) -> str:
    """How the first lies to the second, sideways where they stand in different columns."""
    return next(relations(first, second))


def relation(shown: Scene) -> str | None:
    """How the first thing that can be named lies to the last; None with fewer than two."""
    named = _named(shown)
    if len(named) < 2:
        return None
    (first, first_name), (last, last_name) = named[0], named[-1]
    return sentence(f"{first_name} is {direction(first, last)} {last_name}")


def comparison(shown: Scene) -> str | None:
    """The first pair of neighbours that can be named and differ in size."""
    named = _named(shown)
    for (first, first_name), (second, second_name) in pairwise(named):
        if first.size != second.size:
            return sentence(f"{first_name} is {[*relations(first, second)][-1]} {second_name}")
    return None


def remark(shown: Scene) -> str:
    """A sentence that nothing in the image could refute."""
    return REMARKS[len(shown.things) - 1][PLACES.index(shown.things[0].place) % 2]


def kinds_counted(shown: Scene) -> str:
    """ "two balls and one box", in order of first appearance."""
    counts = Counter(thing.kind for thing in shown.things)
    return enumerated([counted(kind, number) for kind, number in counts.items()])


def answer(shown: Scene, manner: int) -> str:
    """The right answer in one of the six manners of `PROMPTS`."""
    return " ".join(part for part in _MANNERS[manner](shown) if part)


def _in_detail(shown: Scene) -> list[str | None]:
    said: list[str | None] = []
    for at, thing in enumerate(shown.things):
        if at % 2 == 0:
            said.append(sentence(f"there is {phrase(thing)} {corner(thing)}"))
        else:
            said.append(sentence(f"{phrase(thing)} is {corner(thing)}"))
    return [*said, relation(shown), remark(shown)]


def _as_seen(shown: Scene) -> list[str | None]:
    said: list[str | None] = [sentence(f"I can see {phrases(shown.things)}")]
    for thing in shown.things[:2]:
        name = mention(thing, shown)
        said.append(sentence(f"{name} is {corner(thing)}") if name else None)
    return [*said, comparison(shown)]


def _counted(shown: Scene) -> list[str | None]:
    number = len(shown.things)
    be = "is" if number == 1 else "are"
    said: list[str | None] = [sentence(f"there {be} {counted('object', number)} in the picture")]
    first = Counter(thing.kind for thing in shown.things)[shown.things[0].kind]
    said.append(sentence(f"there {'is' if first == 1 else 'are'} {kinds_counted(shown)}"))
    for thing in shown.things:
        name = mention(thing, shown)
        if name == f"the {thing.kind}":
            said.append(sentence(f"{name} is {thing.color}"))
    return [*said, remark(shown)]


def _by_place(shown: Scene) -> list[str | None]:
    said: list[str | None] = []
    for row, where in enumerate(("at the top", "at the bottom")):
        parts = [
            f"{phrase(thing)} on the {('left', 'right')[thing.column]}"
            for thing in shown.things
            if thing.row == row
        ]
        if parts:
            said.append(sentence(f"{where} there is {' and '.join(parts)}"))
    return [*said, relation(shown)]


def _explained(shown: Scene) -> list[str | None]:
    return [
        "This may be a page from a book for children.",
        sentence(f"it shows {phrases(shown.things)}"),
        comparison(shown) or relation(shown),
        "The clear colors might help a child to learn.",
    ]


_MANNERS: tuple[Callable[[Scene], list[str | None]], ...] = (
    _in_detail,
    _as_seen,
    _counted,
    _by_place,
    lambda shown: [sentence(f"this is a picture of {phrases(shown.things)}")],
    _explained,
)
