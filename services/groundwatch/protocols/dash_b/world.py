"""What DASH-B asks about scenes of the miniature world: a thing that is there, and one that is not."""

from collections.abc import Iterator

from groundwatch.miniature.language import objects, picture
from groundwatch.miniature.world import KINDS, Scene
from groundwatch.protocols.dash_b.suite import DashB
from groundwatch.protocols.method import Question
from groundwatch.protocols.questions import Answer, ask, question


def questions(shown: list[Scene]) -> Iterator[Question]:
    for at, one in enumerate(shown):
        there, image = objects(one), f"scene-{at}"
        gone = [kind for kind in KINDS if kind not in there]
        for name in (there[0], gone[at % len(gone)]):
            label: Answer = "yes" if name in there else "no"
            drawn = picture(one, image)
            yield question(DashB.name, f"{at}-{name}", ask(name), label, image, drawn, name)
