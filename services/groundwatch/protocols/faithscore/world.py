"""What FaithScore asks about scenes of the miniature world, whose manners of answering are its kinds."""

from collections import Counter
from collections.abc import Iterator

from groundwatch.events import KnownFact, Reference
from groundwatch.miniature.language import PROMPTS, counted, objects, picture, sentence, triplets
from groundwatch.miniature.world import PLACES, Scene
from groundwatch.protocols.faithscore.suite import CAPTION, Asked, question
from groundwatch.protocols.method import Question

MANNERS = {"detailed-description": 0, "conversation": 1, "complex-question": 5, CAPTION: 4}


def questions(shown: list[Scene]) -> Iterator[Question]:
    for at, one in enumerate(shown):
        image = f"scene-{at}"
        for task, manner in MANNERS.items():
            asked = Asked(PROMPTS[manner][at % len(PROMPTS[manner])], task)
            yield question(f"{at}-{task}", asked, image, picture(one, image), known(one))


def known(shown: Scene) -> Reference:
    """All of a scene: things, how many of each kind, what they are like, where they are and are not."""
    numbers = Counter(thing.kind for thing in shown.things)
    said = (f"there {'is' if many == 1 else 'are'} {counted(kind, many)}" for kind, many in numbers.items())
    facts = dict.fromkeys(said, True)
    places = {kind: {thing.place for thing in shown.of_kind(kind)} for kind in numbers}
    for kind, taken in places.items():
        facts |= {f"the {kind} is in the {place} corner": place in taken for place in PLACES}
    return Reference(
        facts=tuple(KnownFact(text=sentence(text), holds=holds) for text, holds in facts.items()),
        objects=objects(shown),
        triplets=triplets(shown),
        complete=True,
    )
