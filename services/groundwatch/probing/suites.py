"""Suites: questions from a benchmark's folder, or about the miniature world, whose truth is known.

A benchmark's folder has the layout in which its authors published it: annotation files, with the images in
its subfolder `images` or wherever the command says. Questions whose image is not there are left out and
counted: published annotations come without their images.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from random import Random

from groundwatch.errors import UsageError
from groundwatch.image_files import read_image_file
from groundwatch.miniature.world import scenes
from groundwatch.protocols import registry
from groundwatch.protocols.base import load
from groundwatch.protocols.method import Images, Question
from groundwatch.runtime.settings import IntakeSettings

WORLD = "miniature"
SEED = 4 * 10**9
"""Scenes from here on are asked about and belong to no training."""

SCENES = 200


class Suite:
    """Questions, the same ones in the same order whenever it is asked; `left_out` counts by reason."""

    def __init__(self, name: str, place: Path | str, read: Callable[[], Iterable[Question | None]]) -> None:
        self.name = name
        self.left_out: dict[str, int] = {}
        self._place = place
        self._read = read

    def questions(self) -> Iterator[Question]:
        """Those whose images are there. Raises `UsageError` where there is none."""
        found = left = 0
        for question in self._read():
            if question is None:
                left += 1
            else:
                found += 1
                yield question
        if left:
            self.left_out["no_image"] = left
        if not found:
            why = f"none of the images of its {left} questions is there" if left else "holds no question"
            raise UsageError(f"{self._place}: {why}: name the folder of the images", "images")


def benchmark(name: str, folder: Path, images: Path | None = None) -> Suite:
    """The suite of this name in a folder; images lie in its `images`, or beside it where there is none."""
    read = registry.method(name, "suite", "suite").suite
    assert read is not None
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder")
    known = Images(images or (folder / "images" if (folder / "images").is_dir() else folder), _read)
    return Suite(name, folder, lambda: read(folder, known))


def world(name: str, number: int = SCENES) -> Suite:
    """What this suite asks about `number` scenes of the miniature world."""
    ask = load(registry.method(name, "world", "suite of the miniature world").world)
    return Suite(name, WORLD, lambda: ask(list(islice(scenes(SEED), number))))


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


def _read(path: Path) -> bytes:
    """The image; a benchmark's folder may hold links to where its images lie."""
    return read_image_file(path.resolve(), max_bytes=IntakeSettings().max_image_bytes)
