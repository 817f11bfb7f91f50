"""What POPE asks about scenes of the miniature world."""

from collections.abc import Iterator

from groundwatch.miniature.language import objects, picture
from groundwatch.miniature.world import KINDS, Scene
from groundwatch.protocols.method import Question
from groundwatch.protocols.pope.dataset import STRATEGIES, build
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.questions import question


def questions(shown: list[Scene]) -> Iterator[Question]:
    by_name = {f"scene-{at}": one for at, one in enumerate(shown)}
    named = {name: objects(one) for name, one in by_name.items()}
    for strategy in STRATEGIES:
        for one in build(named, strategy, pool=KINDS):
            drawn, name = picture(by_name[one.image], one.image), f"{strategy}-{one.question_id}"
            yield question(Pope.name, name, one.text, one.label, one.image, drawn, strategy)
