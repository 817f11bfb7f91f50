"""Answers of a file, judged without a server by the stages' own engines, with images from a folder."""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from groundwatch.client.files import AnswerFile, Record
from groundwatch.client.files.reading import Told
from groundwatch.client.files.sources import decoded
from groundwatch.errors import FileFormatError, InputError, UsageError, told_to_user
from groundwatch.events import ResponseRecorded, ResponseScored
from groundwatch.image_files import ImageFolders, from_base64, read_image_file
from groundwatch.models.engines import LoadImage
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.protocols.method import IMAGE_ENDINGS
from groundwatch.records import DEFAULT_LIMITS, Limits, Refusal, read_record
from groundwatch.replay.pipeline import Pipeline, judging_stage
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.settings.judges import EngineSettings
from groundwatch.runtime.stores.images import check_image


class Responses:
    """The responses of a file, read anew each time: a long file is never held as a whole.

    Raises `FileFormatError` for the first line that is wrong, naming file, line and key, before anything
    is judged. Images that the file itself holds are kept in a folder until the responses are gone.
    """

    def __init__(self, file: str | Path | AnswerFile, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        if not isinstance(file, AnswerFile):
            file = AnswerFile(Path(file), published=registry.published_answers, max_line=limits.line)
        self._file = file
        self.folder = self._file.path.parent
        self._held: TemporaryDirectory[str] | None = None
        self._count = sum(1 for _ in self._read(keep=False))

    @property
    def told(self) -> Told:
        """What was not in the file."""
        return self._file.told

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ResponseRecorded]:
        return self._read(keep=True)

    def held(self, image: str) -> Path | None:
        """Where an image lies that the file itself holds."""
        if self._held is None or not _DIGEST.fullmatch(image):
            return None
        path = Path(self._held.name, image)
        return path if path.exists() else None

    def close(self) -> None:
        """Let go of the images that the file itself holds."""
        if self._held is not None:
            self._held.cleanup()
            self._held = None

    def _read(self, *, keep: bool) -> Iterator[ResponseRecorded]:
        for number, record in self._file:
            found = self._response(record, keep=keep)
            if isinstance(found, Refusal):
                raise FileFormatError(self._file.path, str(found), line=number)
            yield found

    def _response(self, record: Record, *, keep: bool) -> ResponseRecorded | Refusal:
        if isinstance(record, Refusal):
            return record
        if isinstance(record, bytes):
            inline = any(name in record for name in (b'"data:', b'"base64"', b'"url"'))
            if not inline or not (values := decoded(record)):
                return read_record(record, self._limits)
            record = values
        images = record.get("images")
        if isinstance(images, list):
            for index, image in enumerate(images):
                try:
                    data = inline_image(image)
                except InputError as error:
                    name = str(record.get("id", ""))[:256]
                    return Refusal(field=f"images[{index}]", message=str(error), id=name)
                if isinstance(image, dict) and image.keys() == {"url"}:
                    # Nothing is fetched here: a judge that looks finds no image of this name.
                    images[index] = image["url"]
                elif data is not None:
                    images[index] = self._hold(data) if keep else hashlib.sha256(data).hexdigest()
        return read_record(msgspec.json.encode(record), self._limits)

    def _hold(self, image: bytes) -> str:
        digest = hashlib.sha256(image).hexdigest()
        with told_to_user("images of the file cannot be kept while they are judged"):
            if self._held is None:
                self._held = TemporaryDirectory(prefix="groundwatch-images-")
            path = Path(self._held.name, digest)
            if not path.exists():
                path.write_bytes(image)
        return digest


_DIGEST = re.compile(r"[0-9a-f]{64}")
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)


class ImageFolder:
    """Images of a folder for judges that look: by SHA-256 of their bytes, by plain file name or its stem.

    A name with a path in it reads nothing: what is judged does not choose files.
    """

    def __init__(self, folder: Path, limits: IntakeSettings) -> None:
        if not folder.is_dir():
            raise UsageError(f"{folder}: is not a folder")
        self._folder = folder
        self._limits = limits
        self._by_digest: dict[str, Path] | None = None
        self._stems = {path.stem: path for path in folder.iterdir() if path.suffix.lower() in IMAGE_ENDINGS}

    async def load(self, image: str) -> tuple[bytes, str]:
        """Bytes and media type. Raises `FileNotFoundError` when there is none, `InputError` for no image."""
        found = self._digests().get(image) if _DIGEST.fullmatch(image) else None
        if found is None and image == Path(image).name:
            found = self._stems.get(image, self._folder / image)
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


def inline_image(image: object) -> bytes | None:
    """The bytes of an image that a record itself holds. Raises `InputError` for what is no base64."""
    if isinstance(image, bytes):
        return image
    text = image.get("base64") if isinstance(image, dict) else image
    if not isinstance(text, str) or (text is image and not _DATA_URL.match(text)):
        return None
    return from_base64(text)


async def no_images(image: str) -> tuple[bytes, str]:
    """Stands for a folder of images where none was given."""
    raise FileNotFoundError(f"{image}: no folder of images was given")


def images_of(
    responses: Sequence[ResponseRecorded] | Responses, folder: Path | None, limits: IntakeSettings
) -> LoadImage:
    """Loads an image of these responses: what the file holds, or of `folder`, or from beside the file."""
    named = no_images if folder is None else ImageFolder(folder, limits).load
    if not isinstance(responses, Responses):
        return named
    places = [responses.folder] if folder is None else [responses.folder, folder]
    beside = ImageFolders(places, max_bytes=limits.max_image_bytes)

    async def load(image: str) -> tuple[bytes, str]:
        if (path := responses.held(image)) is not None:
            checked = check_image(read_image_file(path, max_bytes=limits.max_image_bytes), limits)
            return checked.data, checked.media_type
        try:
            return await named(image)
        except FileNotFoundError:
            checked = check_image(beside.read(image), limits)
            return checked.data, checked.media_type

    return load


def read_responses(
    protocol: str,
    file: Path,
    annotation: Path | None,
    limits: Limits,
    opened: Callable[[Path], AnswerFile | Path] = Path,
) -> Sequence[ResponseRecorded] | Responses:
    """`opened` makes of a file of responses the one that is read."""
    if annotation is None:
        return Responses(opened(file), limits)
    annotate = registry.benchmark(protocol, "annotate", "benchmark with annotations of").annotate
    assert annotate is not None
    return annotate(file, annotation, lambda path: Responses(opened(path), limits))


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
    pipeline = Pipeline(settings, load_image=images_of(responses, images, settings.gateway.intake))
    encoder = msgspec.json.Encoder()
    try:
        with ExitStack() as stack:
            with told_to_user(f"{out}: cannot be written"):
                sink = stack.enter_context(out.open("wb")) if out else None
            done = 0
            async for outcome in pipeline.outcomes(protocol.name, responses):
                take(outcome)
                if sink is not None:
                    sink.write(encoder.encode(outcome) + b"\n")
                done += 1
                progress(done, len(responses))
    finally:
        await pipeline.close()
        if isinstance(responses, Responses):
            responses.close()


def with_engines(settings: Settings, engines: Mapping[str, str], protocol: str) -> Settings:
    """The settings with these engines by stage. Raises `UsageError` for a judge that cannot serve it."""
    found = registry.get(protocol) if protocol in registry.names() else None
    judges = found is not None and Stage.VERIFICATION in found.route
    if found and judges and (why := found.why_not(engines.get(Stage.VERIFICATION, ""))):
        raise UsageError(why, "judge")
    changed = {
        stage: getattr(settings, stage).with_engine(engine) for stage, engine in engines.items() if engine
    }
    if judges and (judge := engines.get(Stage.VERIFICATION)):
        named = changed[Stage.VERIFICATION]
        own = {**named.protocols, protocol: EngineSettings(engine=judge)}
        changed[Stage.VERIFICATION] = named.model_copy(update={"protocols": own})
    return settings.model_copy(update=changed)
