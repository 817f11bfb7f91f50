"""Yes/no questions about two scenes, as VLM²-Bench asks."""

from collections.abc import Iterator
from random import Random

from groundwatch.miniature.language import article
from groundwatch.miniature.world import COLORS, KINDS, Scene, Thing

COARSE = "Do the images show the same objects?"
"""The gate before the fine-grained questions about two images."""


def pair_questions(first: Scene, second: Scene, random: Random, number: int) -> Iterator[tuple[str, bool]]:
    """The coarse question about two images, then up to `number` fine-grained ones with either truth."""
    yield COARSE, alike(first, second)
    both = (first, second)
    for _ in range((number + 1) // 2):
        at = random.randrange(2)
        shown, other = both[at], both[1 - at]
        if random.random() < 0.5:
            yield from _presence(shown, other, at + 1, random)
        else:
            yield from _color(shown, other, at + 1, random)


def alike(first: Scene, second: Scene) -> bool:
    """Whether two scenes have the same things in the same places."""
    return first.things == second.things


def _presence(shown: Scene, other: Scene, image: int, random: Random) -> Iterator[tuple[str, bool]]:
    here = random.choice(shown.things).kind
    elsewhere = [thing.kind for thing in other.things if not shown.of_kind(thing.kind)]
    absent = elsewhere or [kind for kind in KINDS if not shown.of_kind(kind)]
    for kind, truth in ((here, True), (random.choice(absent), False)):
        yield f"In image {image}, is there {article(kind)} {kind}?", truth


def _color(shown: Scene, other: Scene, image: int, random: Random) -> Iterator[tuple[str, bool]]:
    thing = random.choice(shown.things)
    values = _colors(shown, thing)
    elsewhere = [there.color for there in other.of_kind(thing.kind) if there.color not in values]
    wrong = elsewhere or [color for color in COLORS if color not in values]
    for color, truth in ((thing.color, True), (random.choice(wrong), False)):
        yield f"In image {image}, is the {thing.kind} {color}?", truth


def _colors(shown: Scene, thing: Thing) -> set[str]:
    return {alike.color for alike in shown.of_kind(thing.kind)}
