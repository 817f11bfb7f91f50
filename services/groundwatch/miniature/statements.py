"""What a statement about a scene says, and whether it holds.

A statement with a definite phrase, "the ball is red", holds when some ball of the scene is red: what is said
of a thing that is not there does not hold.
"""

import re
from collections.abc import Callable

from groundwatch.miniature.language import NUMBERS, PLURALS
from groundwatch.miniature.world import COLORS, KINDS, PLACES, SIZES, Scene, Thing

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

    Understands what the training's templates, the answers and the decomposer write about scenes.
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
