"""What Tri-HE asks about scenes of the miniature world."""

from collections.abc import Iterator

from groundwatch.miniature.language import PROMPTS, objects, picture, triplets
from groundwatch.miniature.world import Scene
from groundwatch.protocols.method import Question
from groundwatch.protocols.trihe.files import AnnotatedImage
from groundwatch.protocols.trihe.suite import question


def questions(shown: list[Scene]) -> Iterator[Question]:
    for at, one in enumerate(shown):
        image = AnnotatedImage(image=f"scene-{at}", triplets=triplets(one), objects=objects(one))
        for number, prompt in enumerate((PROMPTS[0][0], PROMPTS[3][0])):
            yield question(f"{at}-{number}", prompt, image, picture(one, image.image))
