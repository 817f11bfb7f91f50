"""What VLM²-Bench asks about scenes of the miniature world."""

from collections.abc import Iterator
from random import Random

from groundwatch.miniature.language import pair_questions, picture
from groundwatch.miniature.world import Scene, changed
from groundwatch.protocols.method import Question
from groundwatch.protocols.vlm2.files import question

SEED = 4 * 10**9


def questions(shown: list[Scene]) -> Iterator[Question]:
    random = Random(SEED)
    for at, first in enumerate(shown):
        second = changed(first, random.choice((0, 1, 2)), random)
        pictures = (picture(first, f"scene-{at}-1"), picture(second, f"scene-{at}-2"))
        asked = list(pair_questions(first, second, random, 4))
        for number, (text, holds) in enumerate(asked):
            yield question(str(at), "pair", number, len(asked), text, "yes" if holds else "no", pictures)
