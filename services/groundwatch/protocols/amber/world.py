"""What AMBER asks about scenes of the miniature world: to describe it, and what is there.

Its model knows no questions about attributes or relations of things in one image.
"""

from collections.abc import Iterator

from groundwatch.miniature.language import PROMPTS, objects, picture
from groundwatch.miniature.world import KINDS, Scene
from groundwatch.protocols.amber.protocol import Existence
from groundwatch.protocols.amber.scoring import EXISTENCE, Annotation
from groundwatch.protocols.amber.suite import description
from groundwatch.protocols.method import Question
from groundwatch.protocols.questions import ANSWERS, ask, question


def questions(shown: list[Scene]) -> Iterator[Question]:
    for at, one in enumerate(shown):
        there, image = objects(one), f"scene-{at}"
        gone = tuple(kind for kind in KINDS if kind not in there)
        drawn = picture(one, image)
        known = Annotation(truth=there, hallu=gone, listed=frozenset(KINDS))
        yield description(image, PROMPTS[0][0], known, image, drawn)
        for name, label in ((there[0], "yes"), (gone[at % len(gone)], "no")):
            asked = (Existence.name, f"{image}-{name}", ask(name), ANSWERS[label], image, drawn)
            yield question(*asked, EXISTENCE)
