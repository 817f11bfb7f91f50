"""What VLM²-Bench asks about scenes of the miniature world."""

from collections.abc import Iterator
from random import Random

from groundwatch.miniature.graph import picture
from groundwatch.miniature.questions import pair_questions
from groundwatch.miniature.world import Scene, changed
from groundwatch.protocols.suite import Question
from groundwatch.protocols.vlm2.protocol import LEVEL, SEQUENCE, TASK, TRUTH, Vlm2

SEED = 4 * 10**9


def questions(shown: list[Scene]) -> Iterator[Question]:
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
