"""JSON lines, JSON arrays, and the documents with a list of records that APIs answer with."""

import mmap
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

from groundwatch.client.files.foreign import converted
from groundwatch.errors import UNDECODED, FileFormatError, told_to_user
from groundwatch.records import Refusal, split_lines, too_long

MAX_ARRAY = 512 * 1024 * 1024
"""Bytes of a JSON array or document, which is read as a whole."""

BOM = b"\xef\xbb\xbf"


class _Document(msgspec.Struct):
    """Langfuse's and Phoenix's APIs answer with `data`; one trace of Langfuse has its `observations`."""

    data: list[msgspec.Raw] = []
    observations: list[msgspec.Raw] = []


_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_DOCUMENT = msgspec.json.Decoder(_Document)


def lines(path: Path, most: int) -> Iterator[tuple[int, bytes | Refusal]]:
    """Every line with its number, as it is there."""
    with told_to_user(f"{path}: cannot be read"), path.open("rb") as stream:
        for number, line in split_lines(stream, most):
            yield number, too_long(most) if len(line) > most else line


def array(path: Path) -> Iterator[tuple[int, bytes]]:
    """Every item with its number from 1."""
    if path.stat().st_size > MAX_ARRAY:
        raise FileFormatError(
            path,
            f"is a JSON array of more than {MAX_ARRAY} bytes. To convert it: "
            f"jq -c '.[]' {shlex.quote(str(path))} > {shlex.quote(str(converted(path, '.jsonl')))}",
        )
    try:
        items = _ARRAY.decode(path.read_bytes().removeprefix(BOM))
    except UNDECODED as error:
        raise FileFormatError(path, f"begins as a JSON array and is none ({error})") from error
    return _numbered(items)


def document(path: Path) -> Iterator[tuple[int, bytes]] | None:
    """The records of a document of an API, each with its number from 1; None for a file that is none."""
    if not 0 < path.stat().st_size <= MAX_ARRAY:
        return None
    # Lines may come to as much, and are told from a document by their beginning: nothing is read into memory.
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        start = len(BOM) if mapped[: len(BOM)] == BOM else 0
        view = memoryview(mapped)
        try:
            found = _DOCUMENT.decode(view[start:])
            items = [msgspec.Raw(bytes(item)) for item in found.data or found.observations]
            del found
        except UNDECODED:
            return None
        finally:
            view.release()
    return _numbered(items) if items else None


def _numbered(items: list[msgspec.Raw]) -> Iterator[tuple[int, bytes]]:
    return ((number, msgspec.json.format(bytes(item), indent=-1)) for number, item in enumerate(items, 1))
