"""Comparisons of size with one planted error: two things exchanged in a true ranking. Pure.

What is compared are things of one image whose usual lengths lie so far apart that the order is beyond doubt.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from random import Random

import msgspec

APART = 2.5
"""Each thing is at least so many times as long as the next smaller one."""

FEWEST, MOST = 3, 5
"""Things that an answer compares."""

METRES: Mapping[str, float] = {
    "mountain": 2000,
    "hill": 200,
    "airplane": 40,
    "plane": 40,
    "tower": 40,
    "lighthouse": 30,
    "building": 25,
    "barn": 15,
    "house": 12,
    "tree": 10,
    "palm tree": 10,
    "truck": 8,
    "cabin": 7,
    "car": 4.5,
    "taxi": 4.5,
    "horse": 2.4,
    "couch": 2.2,
    "sofa": 2.2,
    "man": 1.75,
    "woman": 1.7,
    "bicycle": 1.7,
    "bench": 1.6,
    "boy": 1.3,
    "girl": 1.3,
    "child": 1.1,
    "umbrella": 0.9,
    "dog": 0.7,
    "suitcase": 0.7,
    "backpack": 0.5,
    "cat": 0.45,
    "basket": 0.4,
    "bucket": 0.35,
    "laptop": 0.35,
    "helmet": 0.28,
    "hat": 0.28,
    "ball": 0.24,
    "bottle": 0.25,
    "book": 0.24,
    "bowl": 0.2,
    "bird": 0.2,
    "scissors": 0.18,
    "phone": 0.15,
    "glasses": 0.14,
    "sunglasses": 0.14,
    "cup": 0.1,
    "mug": 0.1,
    "candle": 0.1,
    "tomato": 0.07,
    "egg": 0.05,
    "coin": 0.02,
}
"""How long things of a kind usually are."""

_SENTENCES = (
    "The largest thing in the image is the {first}, followed by {rest}.",
    "From large to small, one sees the {first}, {rest}.",
    "In order of size, there is the {first}, then {rest}.",
)
_COMPARED = ("The {one} is larger than the {other}.", "The {other} is smaller than the {one}.")


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that compares sizes. `things` are in true order, from large to small.

    `exchanged` are the two that the answer has in each other's place; None for an answer that is true.
    """

    answer: str
    things: tuple[str, ...]
    exchanged: tuple[str, str] | None = None


def comparable(names: Iterable[str], random: Random) -> tuple[str, ...]:
    """Names of things whose sizes are beyond doubt, from large to small; fewer than `FEWEST` give none."""
    known = sorted({name for name in names if name in METRES})
    found: list[str] = []
    for name in sorted(known, key=lambda name: (-METRES[name], random.random())):
        if not found or METRES[found[-1]] >= APART * METRES[name]:
            found.append(name)
    while len(found) > MOST:
        found.pop(int(random.random() * len(found)))
    return tuple(found) if len(found) >= FEWEST else ()


def rank(things: Sequence[str], random: Random, *, wrong: bool) -> Ranking:
    """An answer about things from large to small; with `wrong`, two of them change places.

    Raises `ValueError` for fewer than two things.
    """
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
    style = int(random.random() * (len(_SENTENCES) + 1))
    if style == len(_SENTENCES):
        pairs = pairwise(said)
        compared = [_COMPARED[0 if not at else int(random.random() * 2)] for at in range(len(said) - 1)]
        return " ".join(
            text.format(one=one, other=other) for text, (one, other) in zip(compared, pairs, strict=True)
        )
    first, *others = said
    rest = ", ".join(f"the {name}" for name in others[:-1])
    rest = f"{rest} and the {others[-1]}" if rest else f"the {others[-1]}"
    return _SENTENCES[style].format(first=first, rest=rest)
