"""What a suite is: questions for a model under test, each with its images and its truth.

A suite asks nobody and judges nothing. Anything that can yield questions is one: a benchmark's folder, the
miniature world, or what somebody writes tomorrow.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol

import msgspec

from groundwatch.errors import FileFormatError
from groundwatch.events import Reference, ResponseRecorded, ResponseScored
from groundwatch.protocols.tally import Result
from groundwatch.statistics.intervals import Interval, Moments, bootstrap, mean_interval

CATEGORY = "category"
IMAGE = "image"
RESAMPLES = 1000


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is read when it is wanted. `load` raises `OSError` when it cannot be."""

    name: str
    load: Callable[[], bytes]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to ask: `id` is its own within the suite, `protocol` says how the answer is scored.

    `reference` and `tags` are the truth, as that protocol reads it from a response; `unit` names what
    questions have in common that are not independent of each other, such as their image.
    """

    id: str
    protocol: str
    prompt: str
    images: tuple[Picture, ...]
    reference: Reference | None = None
    tags: dict[str, str] = {}
    unit: str = ""

    def response(self, model: str) -> ResponseRecorded:
        """What is recorded of it, but for answer and images."""
        return ResponseRecorded(
            id=self.id,
            model=model,
            answer="",
            prompt=self.prompt,
            reference=self.reference,
            tags=self.tags,
            protocols=(self.protocol,),
        )


class Images(Protocol):
    """The images of a benchmark, by file name or by its stem; `paths` are all of them."""

    @property
    def paths(self) -> Sequence[Path]: ...

    def at(self, path: Path) -> Picture:
        """The image in this file."""
        ...

    def picture(self, name: str) -> Picture | None:
        """The image of this name, None where there is none."""
        ...


Pair = tuple[Question, ResponseScored]
"""A question, and the outcome of the answer to it."""


class Suite(Protocol):
    """Questions, the same ones in the same order whenever it is asked; `left_out` counts by reason."""

    name: str
    left_out: dict[str, int]

    def questions(self) -> Iterable[Question]:
        """All of them. Raises `FileFormatError` for a benchmark's file that is wrong."""
        ...


def sample(questions: Iterable[Question], limit: int | None, seed: int) -> list[Question]:
    """`limit` questions at random, by whole units, in the suite's order; all of them without a limit.

    Units stay whole because some scores need all questions of one, such as those about one sequence; the
    last one may go beyond the limit.
    """
    found = list(questions)
    if limit is None or limit >= len(found):
        return found
    units: dict[str, list[int]] = {}
    for place, question in enumerate(found):
        units.setdefault(question.unit or question.id, []).append(place)
    names = list(units)
    Random(seed).shuffle(names)
    chosen: list[int] = []
    for name in names:
        if len(chosen) >= limit:
            break
        chosen += units[name]
    return [found[place] for place in sorted(chosen)]


def files(folder: Path, pattern: str, what: str) -> list[Path]:
    """The files of this pattern; raises `FileFormatError` where there is none."""
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileFormatError(folder, f"holds no {what}")
    return found


def mean_score(pairs: Sequence[Pair]) -> Result:
    """The figures of a suite that has none of its own."""
    moments = Moments()
    for _, outcome in pairs:
        if outcome.score is not None:
            moments.add(outcome.score)
    return {"score": mean_interval(moments, bounds=(0.0, 1.0)), "answers": len(pairs)}


def interval(units: Sequence[Any], statistic: Callable[[Sequence[Any]], float | None]) -> Interval | None:
    """The bootstrap's interval over units: questions about one image are not independent."""
    return bootstrap(units, statistic, resamples=RESAMPLES)
