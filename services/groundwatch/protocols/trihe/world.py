"""What Tri-HE asks about scenes of the miniature world."""

from collections.abc import Iterator

from groundwatch.events import Reference
from groundwatch.miniature.graph import objects, picture, triplets
from groundwatch.miniature.language import PROMPTS
from groundwatch.miniature.world import Scene
from groundwatch.protocols.suite import Question
from groundwatch.protocols.trihe.protocol import TriHe


def questions(shown: list[Scene]) -> Iterator[Question]:
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
