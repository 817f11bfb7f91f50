"""What VALOR asks about scenes of the miniature world."""

from collections.abc import Callable, Iterator

from groundwatch.miniature.language import PROMPTS, objects, picture, relations
from groundwatch.miniature.world import Scene
from groundwatch.protocols.method import Question
from groundwatch.protocols.valor.scoring import Subset
from groundwatch.protocols.valor.suite import question


def questions(shown: list[Scene]) -> Iterator[Question]:
    for subset, features in _FEATURES.items():
        for at, one in enumerate(shown):
            if found := features(one):
                image = f"scene-{at}"
                yield question(subset, image, PROMPTS[0][0], found, picture(one, image), name=str(at))


def _attributes(shown: Scene) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"({thing.color}, {thing.kind})" for thing in shown.things))


def _positions(shown: Scene) -> tuple[str, ...]:
    by_words = [
        f"the {first.kind} is {word} the {second.kind}"
        for at, first in enumerate(shown.things)
        for second in shown.things[at + 1 :]
        if first.kind != second.kind
        for word in relations(first, second)
        if "than" not in word
    ]
    return tuple(dict.fromkeys(by_words))


_FEATURES: dict[Subset, Callable[[Scene], tuple[str, ...]]] = {
    Subset.OBJECT_EXISTENCE: objects,
    Subset.ATTRIBUTE_OBJECT: _attributes,
    Subset.RELATION_POSITIONAL: _positions,
}
"""People, and things in order of size, are not in this world."""
