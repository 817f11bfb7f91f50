"""Suites from a benchmark's folder, in the layout in which its authors published it.

Annotation files lie in the folder, images in its subfolder `images`, or wherever the command says. Questions
whose image is not there are left out and counted: published annotations come without their images.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from groundwatch.errors import UsageError
from groundwatch.protocols import registry
from groundwatch.protocols.suite import Picture, Question, Suite
from groundwatch.runtime.settings import IntakeSettings
from groundwatch.runtime.stores.image_reading import read_image_file

ENDINGS = (".jpg", ".jpeg", ".png", ".webp")
NO_IMAGE = "no_image"


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
        return None if path is None else self.at(path)

    def at(self, path: Path) -> Picture:
        """The image in this file."""
        return Picture(name=path.name, load=partial(_read, path))


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
            raise UsageError(f"{self._folder}: {why}: name the folder of the images", "images")


def _read(path: Path) -> bytes:
    """The image; a benchmark's folder may hold links to where its images lie."""
    return read_image_file(path.resolve(), max_bytes=IntakeSettings().max_image_bytes)


def suite(name: str, folder: Path, images: Path | None = None) -> Suite:
    """The suite of this name in a folder; images lie in its `images`, or beside it where there is none.

    Raises `UsageError` for a folder that is none and a suite that nobody knows.
    """
    read = registry.method(name, "suite", "suite").suite
    assert read is not None
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder")
    place = images or (folder / "images" if (folder / "images").is_dir() else folder)
    known = Images(place)
    return FolderSuite(name, lambda where: read(where, known), folder)


def names() -> tuple[str, ...]:
    """The suites that can be read from a folder."""
    return tuple(name for name, method in registry.methods().items() if method.suite)
