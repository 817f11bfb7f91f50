"""Building POPE's questions from annotated objects (Li et al. 2023, section 4), in the published format.

Each image gives as many questions about objects that it has as about objects that it has not, in turn.
Absent objects are drawn at random, by how popular they are over all images, or by how often they stand
beside the object just asked for (adversarial). A seed gives the same questions again; each image draws from
a generator of its own, so leaving one image out changes no other's random draws.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal, get_args

import msgspec

from groundwatch.keys import digest
from groundwatch.protocols.questions import Answer
from groundwatch_benchmarks.methods.yes_no import ask

Strategy = Literal["random", "popular", "adversarial"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

PER_IMAGE = 3
"""Objects of each image that are asked for, and as many absent ones (section 4.2)."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the published question files; its fields have their names."""

    question_id: int
    image: str
    text: str
    label: Answer


class Statistics:
    """Over all images: how many have each object, and how many each pair of objects."""

    def __init__(self, images: Mapping[str, Sequence[str]]) -> None:
        self._frequency: Counter[str] = Counter()
        self._together: dict[str, Counter[str]] = {}
        for objects in images.values():
            present = set(objects)
            self._frequency.update(present)
            for one in present:
                self._together.setdefault(one, Counter()).update(present - {one})
        self.popular = _ranked(self._frequency)
        self.objects = tuple(sorted(self._frequency))

    def beside(self, present: str) -> tuple[str, ...]:
        """What stands beside this object most often, first; what never does is absent."""
        return _ranked(self._together.get(present, Counter()))


def build(
    images: Mapping[str, Sequence[str]],
    strategy: Strategy,
    *,
    seed: int = 0,
    per_image: int = PER_IMAGE,
    pool: Sequence[str] | None = None,
) -> list[Question]:
    """Questions about images given with the names of their objects.

    Absent objects come from `pool`, by default every object that some image has. An image with fewer
    objects than `per_image` is asked about those that it has; where nothing absent is left to ask for, the
    negative question is left out. Raises `ValueError` for an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"no strategy '{strategy}'; there are {', '.join(STRATEGIES)}")
    known = Statistics(images)
    objects = tuple(sorted(set(pool))) if pool is not None else known.objects
    questions: list[Question] = []

    def add(image: str, name: str, label: Answer) -> None:
        questions.append(Question(question_id=len(questions) + 1, image=image, text=ask(name), label=label))

    for image, named in images.items():
        random = Random(f"{seed}-{digest(image)}")
        present = tuple(dict.fromkeys(named))
        asked: set[str] = set(present)
        for positive in random.sample(present, min(per_image, len(present))):
            add(image, positive, "yes")
            preferred = {"popular": known.popular, "adversarial": known.beside(positive)}.get(strategy, ())
            allowed = dict.fromkeys(name for name in objects if name not in asked)
            absent = next((name for name in preferred if name in allowed), None)
            if absent is None and allowed:
                absent = random.choice(list(allowed))
            if absent is not None:
                asked.add(absent)
                add(image, absent, "no")
    return questions


def _ranked(counts: Counter[str]) -> tuple[str, ...]:
    """Most frequent first, equals by name, so that no order of reading shows."""
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))
