"""D"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from groundwatch.client.formats import converted
from groundwatch.errors import FileFormatError, InputError, UsageError
from groundwatch.events import ResponseRecorded, ResponseScored
from groundwatch.image_files import read_image_file
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.records import DEFAULT_LIMITS, Limits, Refusal, read_file, read_record
from groundwatch.replay.pipeline import Pipeline, judging_stage
from groundwatch.runtime.settings import IntakeSettings, Settings
from groundwatch.runtime.stores.images import check_image


class Responses:
    """The responses of a file, read anew each time: a long file is never held as a whole.

    Raises `FileFormatError` for the first line that is wrong, naming file, line and key, before anything
    is judged.
    """

    def __init__(self, path: str | Path, limits: Limits = DEFAULT_LIMITS) -> None:
        self._path = path
        self._limits = limits
        self._published = registry.published_answers(Path(path))
        self._count = sum(1 for _ in self)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ResponseRecorded]:
        if self._published is not None:
            yield from self._published
            return
        lines = converted(Path(self._path))
        records = (
            read_file(self._path, self._limits)
            if lines is None
            else ((number, read_record(line, self._limits)) for number, line in lines)
        )
        for number, found in records:
            if isinstance(found, Refusal):
                raise FileFormatError(self._path, str(found), line=number)
            yield found


class ImageFolder:
    """Images of a folder for judges that look: by SHA-256 of their bytes, or by plain file name.

    A name with a path in it reads nothing: what is judged does not choose files.
    """

    def __init__(self, folder: Path, limits: IntakeSettings) -> None:
        if not folder.is_dir():
            raise UsageError(f"{folder}: is not a folder")
        self._folder = folder
        self._limits = limits
        self._by_digest: dict[str, Path] | None = None

    async def load(self, image: str) -> tuple[bytes, str]:
        """Bytes and media type. Raises `FileNotFoundError` when there is none, `InputError` for no image."""
        found = self._digests().get(image)
        if found is None and image == Path(image).name:
            found = self._folder / image
        if found is None or found.is_symlink() or not found.is_file():
            raise FileNotFoundError(image)
        checked = check_image(self._read(found), self._limits)
        return checked.data, checked.media_type

    def _digests(self) -> dict[str, Path]:
        if self._by_digest is None:
            self._by_digest = {}
            for path in sorted(self._folder.iterdir()):
                # What is no regular file, too large or gone by now is no image of ours.
                with contextlib.suppress(InputError, OSError):
                    self._by_digest[hashlib.sha256(self._read(path)).hexdigest()] = path
        return self._by_digest

    def _read(self, path: Path) -> bytes:
        return read_image_file(path, max_bytes=self._limits.max_image_bytes)


async def no_images(image: str) -> tuple[bytes, str]:
    """Stands for a folder of images where none was given."""
    raise FileNotFoundError(f"{image}: no folder of images was given")


def read_responses(
    protocol: str, file: Path, annotation: Path | None, limits: Limits
) -> Sequence[ResponseRecorded] | Responses:
    if annotation is None:
        return Responses(file, limits)
    annotate = registry.method(protocol).annotate
    if annotate is None:
        raise UsageError(f"{protocol} takes no annotation of a benchmark", "annotation")
    return annotate(file, annotation, lambda path: Responses(path, limits))


async def judge_file(
    protocol: EvaluationProtocol,
    responses: Sequence[ResponseRecorded] | Responses,
    settings: Settings,
    images: Path | None,
    out: Path | None,
    take: Callable[[ResponseScored], None],
    progress: Callable[[int, int], None],
) -> None:
    """Give each outcome to `take`, and to the file `out`, a line each."""
    judging_stage(protocol)
    loader = no_images if images is None else ImageFolder(images, settings.gateway.intake).load
    pipeline = Pipeline(settings, load_image=loader)
    encoder = msgspec.json.Encoder()
    try:
        with ExitStack() as stack:
            try:
                sink = stack.enter_context(out.open("wb")) if out else None
            except OSError as error:
                raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from error
            done = 0
            async for outcome in pipeline.outcomes(protocol.name, responses):
                take(outcome)
                if sink is not None:
                    sink.write(encoder.encode(outcome) + b"\n")
                done += 1
                progress(done, len(responses))
    finally:
        await pipeline.close()
