"""Seeds of GenCeption's chains: scenes of the miniature world."""

from collections.abc import Iterator

from groundwatch.miniature.language import picture
from groundwatch.miniature.world import Scene
from groundwatch.protocols.genception.protocol import CATEGORY_TAG, GenCeption
from groundwatch.protocols.method import Question


def questions(shown: list[Scene]) -> Iterator[Question]:
    for at, one in enumerate(shown):
        yield Question(
            id=f"scene-{at}",
            protocol=GenCeption.name,
            prompt="",
            images=(picture(one, f"scene-{at}"),),
            tags={CATEGORY_TAG: f"{len(one.things)} things"},
            unit=f"scene-{at}",
        )
