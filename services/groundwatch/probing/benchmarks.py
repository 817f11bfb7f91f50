"""Suites from a benchmark's folder, in the layout in which its authors published it.

Annotation files lie in the folder, images in its subfolder `images`, or wherever the command says. Questions
whose image is not there are left out and counted: published annotations come without their images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from groundwatch.errors import FileFormatError, UsageError
from groundwatch.events import KnownFact, Reference
from groundwatch.probing.suite import GENCEPTION, Picture, Question, Suite
from groundwatch.protocols import prompts
from groundwatch.protocols.genception import chain
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.published import Place, json_lines
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.trihe.published import read_benchmark
from groundwatch.protocols.valor.features import written
from groundwatch.protocols.valor.files import read_annotations
from groundwatch.protocols.valor.scoring import Subset, protocol_name
from groundwatch.protocols.vlm2.protocol import LEVEL, SEQUENCE, TASK, TRUTH, Vlm2
from groundwatch.runtime.settings.tree import IntakeSettings
from groundwatch.runtime.stores.image_reading import read_image_file

ENDINGS = (".jpg", ".jpeg", ".png", ".webp")
NO_IMAGE = "no_image"
CATEGORY = "category"
IMAGE = "image"
PACKAGE = "groundwatch.probing"


class Images:
    """The images of a benchmark, by file name or by its stem; a name with a path in it finds nothing."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UsageError(f"{folder}: is not a folder of images")
        self.paths = sorted(
            path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file()
        )
        self._found = {path.stem: path for path in self.paths} | {path.name: path for path in self.paths}

    def picture(self, name: str) -> Picture | None:
        """The image of this name, None where there is none."""
        path = self._found.get(name)
        return None if path is None else Picture(name=path.name, load=partial(_read, path))


class FolderSuite:
    """A suite whose questions a function reads from a folder."""

    def __init__(self, name: str, read: Callable[[Path], Iterable[Question | None]], folder: Path) -> None:
        self.name = name
        self.left_out: dict[str, int] = {}
        self._read = read
        self._folder = folder

    def questions(self) -> Iterator[Question]:
        """Those whose images are there. Raises `UsageError` where none is."""
        found = left = 0
        for question in self._read(self._folder):
            if question is None:
                left += 1
            else:
                found += 1
                yield question
        if left:
            self.left_out[NO_IMAGE] = left
        if not found:
            why = f"none of the images of its {left} questions is there" if left else "holds no question"
            raise UsageError(f"{self._folder}: {why}: name their folder with --images")


def _read(path: Path) -> bytes:
    """The image; a benchmark's folder may hold links to where its images lie."""
    return read_image_file(path.resolve(), max_bytes=IntakeSettings().max_image_bytes)


def suite(name: str, folder: Path, images: Path | None = None) -> Suite:
    """The suite of this name in a folder; images lie in its `images`, or beside it where there is none.

    Raises `UsageError` for a folder that is none and a suite that nobody knows.
    """
    if name not in _READERS:
        raise UsageError(f"no suite '{name}'; known are {', '.join(sorted(_READERS))}")
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder")
    place = images or (folder / "images" if (folder / "images").is_dir() else folder)
    known = Images(place)
    return FolderSuite(name, lambda where: _READERS[name](where, known), folder)


def names() -> tuple[str, ...]:
    """The suites that can be read from a folder."""
    return tuple(sorted(_READERS))


def _pope(folder: Path, images: Images) -> Iterator[Question | None]:
    """`*_pope_STRATEGY.json`, JSON lines of question_id, image, text, label."""
    for path in _files(folder, "*pope_*.json*", "POPE's question files, such as coco_pope_random.json"):
        strategy = path.name.partition(".")[0].rpartition("_")[2]
        for place, record in json_lines(path):
            number = place.take(record, "question_id", (int, str), "a number or a string")
            name = place.take(record, "image", str, "the image's file name")
            text = place.take(record, "text", str, "the question")
            label = place.take(record, "label", str, "yes or no").strip().casefold()
            if label not in ("yes", "no"):
                raise place.wrong("key 'label': expected yes or no")
            picture = images.picture(name)
            yield (
                Question(
                    id=f"{strategy}-{number}",
                    protocol=Pope.name,
                    prompt=text,
                    images=(picture,),
                    reference=Reference(facts=(KnownFact(text=text, holds=label == "yes"),)),
                    tags={CATEGORY: strategy, IMAGE: name},
                    unit=name,
                )
                if picture
                else None
            )


def _tri_he(folder: Path, images: Images) -> Iterator[Question | None]:
    """`tri-he.json`: image to triplets, objects and questions."""
    (path,) = _files(folder, "tri-he.json", "tri-he.json")[:1]
    for one in read_benchmark(path):
        picture = images.picture(one.image)
        for at, asked in enumerate(one.questions):
            yield (
                Question(
                    id=f"{one.image}-{at}",
                    protocol=TriHe.name,
                    prompt=asked.question,
                    images=(picture,),
                    reference=Reference(triplets=one.triplets, objects=one.objects),
                    tags={"image_id": one.image},
                    unit=one.image,
                )
                if picture
                else None
            )


def _valor(folder: Path, images: Images) -> Iterator[Question | None]:
    """A file for each subset, such as object_existence.jsonl; those that are there are asked."""
    found = [
        (subset, path)
        for subset in Subset
        for path in sorted(folder.glob(f"{subset.value.replace('-', '_')}.json*"))
    ]
    if not found:
        raise UsageError(f"{folder}: holds none of VALOR-Bench's files, such as object_existence.jsonl")
    for subset, path in found:
        prompt = prompts.load(PACKAGE, f"valor_{subset.value.replace('-', '_')}")
        for one in read_annotations(path, subset):
            picture = images.picture(one.image_id)
            yield (
                Question(
                    id=f"{subset.value}-{one.image_id}",
                    protocol=protocol_name(subset),
                    prompt=f"{prompt.user} {prompt.system}",
                    images=(picture,),
                    reference=Reference(objects=tuple(written(wordings) for wordings in one.reference)),
                    tags={CATEGORY: subset.value, IMAGE: one.image_id},
                    unit=one.image_id,
                )
                if picture
                else None
            )


def _vlm2(folder: Path, images: Images) -> Iterator[Question | None]:
    """JSON lines of {sequence, task, images, coarse: {question, truth}, fine: [{question, truth}]}."""
    for path in _files(folder, "*.jsonl", "JSON lines of sequences"):
        for place, record in json_lines(path):
            sequence = str(place.take(record, "sequence", (str, int), "the sequence's name"))
            task = place.take(record, "task", str, "a string")
            files = place.take(record, "images", list, "the names of the sequence's images")
            pictures = [images.picture(str(name)) for name in files]
            fine = place.take(record, "fine", list, "a list of questions")
            asked = [("coarse", place.take(record, "coarse", dict, "a question"))]
            asked += [("fine", one) for one in fine]
            for number, (level, one) in enumerate(asked):
                yield _of_sequence(place, sequence, task, level, number, one, pictures)


def _of_sequence(
    place: Place,
    sequence: str,
    task: str,
    level: str,
    number: int,
    one: object,
    pictures: list[Picture | None],
) -> Question | None:
    place = place._replace(what=f"key '{level}'")
    if not isinstance(one, dict):
        raise place.wrong("expected an object with question and truth")
    text = place.take(one, "question", str, "a string")
    truth = place.take(one, "truth", (str, bool, int, float), "yes, no, a number or a string")
    there = tuple(picture for picture in pictures if picture is not None)
    if not there or len(there) < len(pictures):
        return None
    told = {True: "yes", False: "no"}[truth] if isinstance(truth, bool) else str(truth)
    return Question(
        id=f"{task}-{sequence}-{number}",
        protocol=Vlm2.name,
        prompt=text,
        images=there,
        tags={SEQUENCE: sequence, TASK: task, LEVEL: level, TRUTH: told},
        unit=f"{task}-{sequence}",
    )


def _genception(folder: Path, images: Images) -> Iterator[Question | None]:
    """A folder of images; a subfolder's name is the category of those inside."""
    for path in images.paths:
        inside = path.relative_to(folder).parts[:-1] if path.is_relative_to(folder) else ()
        category = "/".join(part for part in inside if part != "images")
        yield Question(
            id="/".join((*inside, path.name)),
            protocol=GENCEPTION,
            prompt="",
            images=(Picture(name=path.name, load=partial(_read, path)),),
            tags={chain.CATEGORY_TAG: category} if category else {},
            unit=path.name,
        )


def _files(folder: Path, pattern: str, what: str) -> list[Path]:
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileFormatError(folder, f"holds no {what}")
    return found


_READERS: dict[str, Callable[[Path, Images], Iterator[Question | None]]] = {
    "pope": _pope,
    "vlm2": _vlm2,
    "valor": _valor,
    "tri-he": _tri_he,
    GENCEPTION: _genception,
}
