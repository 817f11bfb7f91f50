"""Suites about the miniature world: questions whose truth is known because the images were drawn from it."""

from collections.abc import Iterator
from itertools import islice

from groundwatch.miniature.world import scenes
from groundwatch.protocols import registry
from groundwatch.protocols.base import load
from groundwatch.protocols.suite import Question

SEED = 4 * 10**9
"""Scenes from here on are asked about and belong to no training."""

SCENES = 200
NAME = "miniature"


class WorldSuite:
    """`scenes` scenes, and what a suite asks about them."""

    def __init__(self, name: str, number: int = SCENES) -> None:
        self._ask = load(registry.method(name, "world", "suite of the miniature world").world)
        self.name = name
        self.left_out: dict[str, int] = {}
        self._number = number

    def questions(self) -> Iterator[Question]:
        """The same ones in the same order, always."""
        found: Iterator[Question] = self._ask(list(islice(scenes(SEED), self._number)))
        return found


def names() -> tuple[str, ...]:
    """The suites that the world has questions for."""
    return tuple(name for name, method in registry.methods().items() if method.world)
