"""What POPE asks about scenes of the miniature world."""

from collections.abc import Iterator

from groundwatch.events import KnownFact, Reference
from groundwatch.miniature.graph import objects, picture
from groundwatch.miniature.world import KINDS, Scene
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.pope.questions import build
from groundwatch.protocols.suite import Question


def questions(shown: list[Scene]) -> Iterator[Question]:
    by_name = {f"scene-{at}": one for at, one in enumerate(shown)}
    named = {name: objects(one) for name, one in by_name.items()}
    for strategy in ("random", "popular", "adversarial"):
        for asked in build(named, strategy, pool=KINDS):
            yield Question(
                id=f"{strategy}-{asked.question_id}",
                protocol=Pope.name,
                prompt=asked.text,
                images=(picture(by_name[asked.image], asked.image),),
                reference=Reference(facts=(KnownFact(text=asked.text, holds=asked.label == "yes"),)),
                tags={"category": strategy, "image": asked.image},
                unit=asked.image,
            )
