"""A scene as suites show it: its image, its objects and its scene graph."""

from collections.abc import Iterator
from functools import partial

from groundwatch.miniature.world import Scene, Thing, png
from groundwatch.protocols.suite import Picture


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


def relations(first: Thing, second: Thing) -> Iterator[str]:
    """How the first lies to the second, and which is larger."""
    if first.column != second.column:
        yield "to the left of" if first.column < second.column else "to the right of"
    if first.row != second.row:
        yield "above" if first.row < second.row else "below"
    if first.size != second.size:
        yield "larger than" if first.size == "large" else "smaller than"


def objects(shown: Scene) -> tuple[str, ...]:
    """The kinds that are there, in reading order."""
    return tuple(dict.fromkeys(thing.kind for thing in shown.things))
