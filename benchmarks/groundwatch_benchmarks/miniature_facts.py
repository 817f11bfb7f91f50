"""What is known of a scene of the miniature world, and what is asked about two."""

from collections.abc import Iterator
from functools import partial
from random import Random

from groundwatch.miniature.language import article, relations
from groundwatch.miniature.world import COLORS, KINDS, Scene, png
from groundwatch.protocols.method import Picture


def picture(shown: Scene, name: str) -> Picture:
    """The scene's image, drawn when it is wanted."""
    return Picture(name=f"{name}.png", load=partial(png, shown))


def triplets(shown: Scene) -> tuple[tuple[str, str, str], ...]:
    """The scene's graph: attributes, corners and sides, and how things lie to each other."""
    found: dict[tuple[str, str, str], None] = {}
    for thing in shown.things:
        found[thing.kind, "is", thing.color] = None
        found[thing.kind, "is", thing.size] = None
        found[thing.kind, "in", f"{thing.place} corner"] = None
        found[thing.kind, "on", ("left", "right")[thing.column]] = None
    for first in shown.things:
        for second in shown.things:
            if first is not second:
                found |= {(first.kind, word, second.kind): None for word in relations(first, second)}
    return tuple(found)


def objects(shown: Scene) -> tuple[str, ...]:
    return tuple(dict.fromkeys(thing.kind for thing in shown.things))


COARSE = "Do the images show the same objects?"
"""The gate before the fine-grained questions about two images."""


def pair_questions(first: Scene, second: Scene, random: Random, number: int) -> Iterator[tuple[str, bool]]:
    """The coarse question about two images, then up to `number` fine-grained ones with either truth."""
    yield COARSE, first.things == second.things
    both = (first, second)
    for _ in range((number + 1) // 2):
        at = random.randrange(2)
        shown, other = both[at], both[1 - at]
        if random.random() < 0.5:
            yield from _presence(shown, other, at + 1, random)
        else:
            yield from _color(shown, other, at + 1, random)


def _presence(shown: Scene, other: Scene, image: int, random: Random) -> Iterator[tuple[str, bool]]:
    here = random.choice(shown.things).kind
    elsewhere = [thing.kind for thing in other.things if not shown.of_kind(thing.kind)]
    absent = elsewhere or [kind for kind in KINDS if not shown.of_kind(kind)]
    for kind, truth in ((here, True), (random.choice(absent), False)):
        yield f"In image {image}, is there {article(kind)} {kind}?", truth


def _color(shown: Scene, other: Scene, image: int, random: Random) -> Iterator[tuple[str, bool]]:
    thing = random.choice(shown.things)
    values = {alike.color for alike in shown.of_kind(thing.kind)}
    elsewhere = [there.color for there in other.of_kind(thing.kind) if there.color not in values]
    wrong = elsewhere or [color for color in COLORS if color not in values]
    for color, truth in ((thing.color, True), (random.choice(wrong), False)):
        yield f"In image {image}, is the {thing.kind} {color}?", truth
