"""Suites about the miniature world: questions whose truth is known because the images were drawn from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from random import Random

from groundwatch.events import KnownFact, Reference
from groundwatch.miniature.language import PROMPTS
from groundwatch.miniature.questions import pair_questions
from groundwatch.miniature.world import KINDS, Scene, Thing, changed, png, scenes
from groundwatch.protocols import registry
from groundwatch.protocols.base import load
from groundwatch.protocols.genception.chain import CATEGORY_TAG
from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.pope import questions as pope_questions
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.suite import Picture, Question
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.valor.scoring import Subset, protocol_name
from groundwatch.protocols.vlm2.protocol import LEVEL, SEQUENCE, TASK, TRUTH, Vlm2

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
                found |= {(first.kind, word, second.kind): None for word in _relations(first, second)}
    return tuple(found)


def _relations(first: Thing, second: Thing) -> Iterator[str]:
    if first.column != second.column:
        yield "to the left of" if first.column < second.column else "to the right of"
    if first.row != second.row:
        yield "above" if first.row < second.row else "below"
    if first.size != second.size:
        yield "larger than" if first.size == "large" else "smaller than"


def objects(shown: Scene) -> tuple[str, ...]:
    """The kinds that are there, in reading order."""
    return tuple(dict.fromkeys(thing.kind for thing in shown.things))


def pope(shown: list[Scene]) -> Iterator[Question]:
    by_name = {f"scene-{at}": one for at, one in enumerate(shown)}
    named = {name: objects(one) for name, one in by_name.items()}
    for strategy in ("random", "popular", "adversarial"):
        for asked in pope_questions.build(named, strategy, pool=KINDS):
            yield Question(
                id=f"{strategy}-{asked.question_id}",
                protocol=Pope.name,
                prompt=asked.text,
                images=(picture(by_name[asked.image], asked.image),),
                reference=Reference(facts=(KnownFact(text=asked.text, holds=asked.label == "yes"),)),
                tags={"category": strategy, "image": asked.image},
                unit=asked.image,
            )


def valor(shown: list[Scene]) -> Iterator[Question]:
    for subset, features in _VALOR.items():
        for at, one in enumerate(shown):
            if found := features(one):
                yield Question(
                    id=f"{subset.value}-{at}",
                    protocol=protocol_name(subset),
                    prompt=PROMPTS[0][0],
                    images=(picture(one, f"scene-{at}"),),
                    reference=Reference(objects=found),
                    tags={"category": subset.value, "image": f"scene-{at}"},
                    unit=f"scene-{at}",
                )


def _attributes(shown: Scene) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"({thing.color}, {thing.kind})" for thing in shown.things))


def _positions(shown: Scene) -> tuple[str, ...]:
    by_words = [
        f"the {first.kind} is {word} the {second.kind}"
        for at, first in enumerate(shown.things)
        for second in shown.things[at + 1 :]
        if first.kind != second.kind
        for word in _relations(first, second)
        if "than" not in word
    ]
    return tuple(dict.fromkeys(by_words))


_VALOR: dict[Subset, Callable[[Scene], tuple[str, ...]]] = {
    Subset.OBJECT_EXISTENCE: objects,
    Subset.ATTRIBUTE_OBJECT: _attributes,
    Subset.RELATION_POSITIONAL: _positions,
}
"""People, and things in order of size, are not in this world."""


def tri_he(shown: list[Scene]) -> Iterator[Question]:
    for at, one in enumerate(shown):
        for number, prompt in enumerate((PROMPTS[0][0], PROMPTS[3][0])):
            yield Question(
                id=f"{at}-{number}",
                protocol=TriHe.name,
                prompt=prompt,
                images=(picture(one, f"scene-{at}"),),
                reference=Reference(triplets=triplets(one), objects=objects(one)),
                tags={"image_id": f"scene-{at}"},
                unit=f"scene-{at}",
            )


def vlm2(shown: list[Scene]) -> Iterator[Question]:
    random = Random(SEED)
    for at, first in enumerate(shown):
        second = changed(first, random.choice((0, 1, 2)), random)
        pictures = (picture(first, f"scene-{at}-1"), picture(second, f"scene-{at}-2"))
        for number, (text, holds) in enumerate(pair_questions(first, second, random, 4)):
            yield Question(
                id=f"pair-{at}-{number}",
                protocol=Vlm2.name,
                prompt=text,
                images=pictures,
                tags={
                    SEQUENCE: str(at),
                    TASK: "pair",
                    LEVEL: "fine" if number else "coarse",
                    TRUTH: "yes" if holds else "no",
                },
                unit=f"pair-{at}",
            )


def genception(shown: list[Scene]) -> Iterator[Question]:
    for at, one in enumerate(shown):
        yield Question(
            id=f"scene-{at}",
            protocol=GenCeption.name,
            prompt="",
            images=(picture(one, f"scene-{at}"),),
            tags={CATEGORY_TAG: f"{len(one.things)} things"},
            unit=f"scene-{at}",
        )
