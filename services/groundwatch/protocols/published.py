"""Files that the works publish: JSON documents and JSON lines, errors with file, line and key.

Nothing but JSON is ever read; a pickle is recognised by its first byte and refused.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from groundwatch.errors import UNDECODED, FileFormatError, UsageError

T = TypeVar("T")

UNNAMED_MODEL = "annotated"
"""Published files do not always say which model gave an answer."""

_BYTE = re.compile(r"\(byte (\d+)\)")
_PICKLE = b"\x80"


class Piece(NamedTuple):
    """A part of a JSON document: the line it begins in, its key in an object ("" in a list), its value."""

    line: int
    key: str
    value: Any


class Place(NamedTuple):
    """Where something stands, for the errors about it; `what` leads the message ("image '7'")."""

    path: Path
    line: int
    what: str = ""

    def wrong(self, message: str) -> FileFormatError:
        """The error that says so."""
        return FileFormatError(self.path, f"{self.what}: {message}" if self.what else message, line=self.line)

    def take(self, record: Mapping[str, Any], key: str, kind: type[T] | tuple[type[T], ...], name: str) -> T:
        """`record[key]`, which must be of that kind; `name` says it in words. A bool is no number here."""
        if key not in record:
            raise self.wrong(f"key '{key}': is missing")
        value = record[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.wrong(f"key '{key}': expected {name}")
        return value


def read_bytes(path: Path) -> bytes:
    """The file; raises `FileFormatError` when it cannot be read or is a pickle."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileFormatError(path, f"cannot be read ({error.strerror or error})") from error
    if data.startswith(_PICKLE):
        raise FileFormatError(path, "is not JSON but looks like a pickle, which is never loaded")
    return data.removeprefix(b"\xef\xbb\xbf")


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


def json_items(path: Path) -> list[Piece]:
    """The items of a JSON list, each with its line."""
    data = read_bytes(path)
    raws = _decode(path, data, list[msgspec.Raw], "a JSON list")
    return _place(data, [("", raw) for raw in raws])


def json_members(path: Path) -> list[Piece]:
    """The members of a JSON object, each with its line and key."""
    data = read_bytes(path)
    raws = _decode(path, data, dict[str, msgspec.Raw], "a JSON object")
    return _place(data, list(raws.items()))


def write_lines(path: Path, lines: Iterable[object]) -> None:
    """Write JSON lines; raises `UsageError` where that is not possible."""
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


def _place(data: bytes, raws: list[tuple[str, msgspec.Raw]]) -> list[Piece]:
    pieces = []
    line, counted, start = 1, 0, 0
    for key, raw in raws:
        text = bytes(raw)
        at = data.find(text, start)
        if at >= counted:
            line += data.count(b"\n", counted, at)
            counted, start = at, at + len(text)
        pieces.append(Piece(line, key, msgspec.json.decode(text)))
    return pieces
