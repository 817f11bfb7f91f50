"""Files that the works publish: JSON documents and JSON lines, errors with file, line and key.

Nothing but JSON is ever read; a pickle is recognised by its first byte and refused.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from groundwatch.errors import UNDECODED, FileFormatError, UsageError, check_regular
from groundwatch.events import ResponseScored

T = TypeVar("T")

UNNAMED_MODEL = "annotated"
"""Published files do not always say which model gave an answer."""

_BYTE = re.compile(r"\(byte (\d+)\)")
_WRONG = re.compile(
    r"(?:Object missing required field `(?P<missing>.+?)`|(?P<why>.+?))(?: - at `\$\.?(?P<key>.+)`)?",
    re.DOTALL,
)
_PICKLE = b"\x80"
_BEGINNING = 1024 * 1024


class Place(NamedTuple):
    """Where something stands, for the errors about it; `what` leads the message ("image '7'")."""

    path: Path
    line: int
    what: str = ""

    def wrong(self, message: str) -> FileFormatError:
        return FileFormatError(self.path, f"{self.what}: {message}" if self.what else message, line=self.line)

    def inside(self, what: str) -> "Place":
        return self._replace(what=f"{self.what}, {what}" if self.what else what)

    def read(self, record: object, form: type[T]) -> T:
        """The record in its form, without what the form does not name. Raises `FileFormatError`."""
        try:
            return msgspec.convert(record, form)
        except msgspec.ValidationError as error:
            found = _WRONG.fullmatch(str(error))
            assert found is not None
            key = ".".join(filter(None, (found["key"], found["missing"])))
            why = "is missing" if found["missing"] else found["why"][0].lower() + found["why"][1:]
            raise self.wrong(f"key '{key}': {why}" if key else why) from error


def read_bytes(path: Path, most: int = -1) -> bytes:
    """The file, or its first `most` bytes. Raises `FileFormatError` when it cannot be read or is a pickle."""
    check_regular(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(most)
    except OSError as error:
        raise FileFormatError(path, f"cannot be read ({error.strerror or error})") from error
    if data.startswith(_PICKLE):
        raise FileFormatError(path, "is not JSON but looks like a pickle, which is never loaded")
    return data.removeprefix(b"\xef\xbb\xbf")


def beginning(path: Path) -> tuple[bytes, Any]:
    """How a file begins, and what its first line that says something holds: None if that is not JSON."""
    begins = read_bytes(path, _BEGINNING)
    try:
        return begins, msgspec.json.decode(begins.lstrip().partition(b"\n")[0])
    except UNDECODED:
        return begins, None


def json_lines(path: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The objects of a JSON lines file; empty lines are skipped, an empty file is an error."""
    found = False
    for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        found = True
        place = Place(path, number)
        try:
            record = msgspec.json.decode(line)
        except UNDECODED as error:
            raise place.wrong(f"not JSON ({error})") from error
        if not isinstance(record, dict):
            raise place.wrong("expected a JSON object")
        yield place, record
    if not found:
        raise FileFormatError(path, "is empty", line=1)


def read_lines(path: Path, form: type[T]) -> Iterator[tuple[Place, T]]:
    """The same, each line in this form."""
    return ((place, place.read(record, form)) for place, record in json_lines(path))


def json_items(path: Path) -> list[tuple[Place, Any]]:
    data = read_bytes(path)
    raws = _decode(path, data, list[msgspec.Raw], "a JSON list")
    found = _values(data, raws)
    return [(Place(path, line, f"item {at}"), value) for at, (line, value) in enumerate(found, start=1)]


def json_document(path: Path, form: type[T]) -> T:
    """A JSON object in this form, with all that the form does not name left out."""
    return Place(path, 1).read(_decode(path, read_bytes(path), dict[str, Any], "a JSON object"), form)


def json_images(path: Path) -> list[tuple[Place, str, Any]]:
    """The members of a JSON object whose keys are images, each with its place and key."""
    data = read_bytes(path)
    raws = _decode(path, data, dict[str, msgspec.Raw], "a JSON object")
    found = _values(data, raws.values())
    return [
        (Place(path, line, f"image '{key}'"), key, value)
        for key, (line, value) in zip(raws, found, strict=True)
    ]


def write_lines(path: Path, lines: Iterable[object]) -> None:
    try:
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror or error})") from error


def _decode(path: Path, data: bytes, kind: type[T], name: str) -> T:
    try:
        msgspec.json.decode(data)
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise FileFormatError(path, f"expected {name} ({error})", line=1) from error
    except UNDECODED as error:
        told = _BYTE.search(str(error))
        end = int(told[1]) if told else len(data.rstrip())
        raise FileFormatError(path, f"not JSON ({error})", line=data.count(b"\n", 0, end) + 1) from error


def _values(data: bytes, raws: Iterable[msgspec.Raw]) -> Iterator[tuple[int, Any]]:
    line, counted, start = 1, 0, 0
    for raw in raws:
        text = bytes(raw)
        at = data.find(text, start)
        if at >= counted:
            line += data.count(b"\n", counted, at)
            counted, start = at, at + len(text)
        yield line, msgspec.json.decode(text)


def is_outcome(record: Any) -> bool:
    """Whether a line is an outcome, and in no work's own format."""
    return isinstance(record, dict) and record.keys() >= {"outcome", "protocol"}


def read_outcomes(
    lines: Iterable[tuple[Place, dict[str, Any]]], protocol: str
) -> Iterator[tuple[Place, ResponseScored]]:
    """The lines that `groundwatch score … --out` writes. Raises `FileFormatError` for another protocol's."""
    for place, record in lines:
        outcome = place.read(record, ResponseScored)
        if outcome.protocol != protocol:
            raise place.wrong(f"key 'protocol': expected {protocol}, not {outcome.protocol}")
        yield place, outcome


def recorded_outcomes(path: Path, protocol: str) -> Iterator[ResponseScored] | None:
    """The outcomes in a file; None for a file of anything else."""
    if not is_outcome(beginning(path)[1]):
        return None
    return (outcome for _, outcome in read_outcomes(json_lines(path), protocol))
