"""What stands in a file, record after record, before anything is made of it: lines, JSON, tables.

A file may be compressed or in UTF-16: it is then read from a copy, and errors name the file itself.
"""

import bz2
import gzip
import json
import lzma
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from groundwatch.client.files import tables
from groundwatch.client.files.formats import format_of, whole
from groundwatch.client.files.tables import ParquetTable
from groundwatch.errors import UNDECODED, FileFormatError, MissingExtraError, check_regular, told_to_user
from groundwatch.records import Refusal, split_lines, too_long

Values = dict[str, Any]
Raw = bytes | Values | Refusal
"""What stands in a file: a line or an item as it is there, or the cells of a row."""

Numbered = Iterator[tuple[int, Raw]]


class Source(msgspec.Struct, frozen=True):
    """What a file holds: the first record, or for a table its `columns`; and all records, of a table with
    those columns alone for which the function says so. `line` is that of the columns, where it is one."""

    names: Values
    rows: Callable[[Callable[[str], bool]], Numbered]
    columns: tuple[str, ...] = ()
    line: int | None = None


def everything(column: str) -> bool:
    return True


MAX_LINE = 64 * 1024 * 1024

_HEAD = 4096
_TABLES = {".csv", ".tsv"}
_COPY = "which is not read. Give a copy: python -c 'import {}, sys; {}' {} {}"
_UNREAD = {
    b"PK\x03\x04": (
        "an Excel workbook or another zip archive",
        "pandas",
        "pandas.read_excel(sys.argv[1]).to_csv(sys.argv[2], index=False)",
        "csv",
    ),
    b"\xff\xff\xff\xff": (
        "an Arrow file of a data set",
        "datasets",
        "datasets.Dataset.from_file(sys.argv[1]).to_parquet(sys.argv[2])",
        "parquet",
    ),
}
"""By how such a file begins: what it is, and what makes which other file of it."""


MAX_ARRAY = 512 * 1024 * 1024
"""Bytes of a JSON array or document, which is read as a whole."""

BOM = b"\xef\xbb\xbf"

_CONTAINERS = ("data", "observations", "runs", "content", "traces", "logs", "results", "records", "items")
"""Where APIs and exports have a list of records."""

_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_DOCUMENT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_source(text: Path, path: Path, most: int, *, table: bool = False) -> Source:
    """What the file `text` holds, which errors call `path`; of a `table` the first line names columns."""
    begins = begins_with(text)
    if begins.startswith(tables.MAGIC):
        return _parquet(text)
    if (found := _UNREAD.get(begins[:4])) is not None:
        what, module, code, kind = found
        copy = _COPY.format(module, code, quote(str(path)), quote(f"{path}.{kind}"))
        raise FileFormatError(path, f"is {what}, {copy}")
    with _told(path), text.open("rb") as stream:
        begin = stream.readline(most).removeprefix(BOM)
        line = next((one for one in chain([begin], stream) if one.strip()), b"").strip()
    if b"\0" in begin[:_HEAD] or b"\0" in begins:
        raise FileFormatError(path, "is no text, no Parquet and nothing else that is read")
    if not line.startswith((b"[", b"{")):
        delimiter, columns = tables.delimited(line)
        names: Values = dict.fromkeys(columns, "")
        is_table = table or {"id", "answer"} <= names.keys() or text.suffix.lower() in _TABLES
        if columns and (is_table or format_of(names) is not None):
            return Source(names, lambda _: tables.rows(text, path, delimiter), tuple(columns), line=1)
        return Source({}, lambda _: _lines(text, path, most))
    items = _array(text, path) if line.startswith(b"[") else _documents(text, line, cut=len(begin) >= most)
    rest = _lines(text, path, most) if items is None else items
    first_of = next(rest, None)
    held = {} if first_of is None else values_of(first_of[1])
    rest = rest if first_of is None else chain([first_of], rest)
    return Source({} if isinstance(held, Refusal) else held, lambda _: rest)


def _parquet(path: Path) -> Source:
    with ParquetTable(path) as table:
        names = table.names

    def rows(reads: Callable[[str], bool]) -> Numbered:
        with ParquetTable(path) as table:
            yield from table.rows([name for name in names if reads(name)])

    return Source(dict.fromkeys(names, ""), rows, tuple(names))


def begins_with(path: Path) -> bytes:
    """The first bytes of a file, which say what it is."""
    with _told(path), path.open("rb") as stream:
        return stream.read(8)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileFormatError(path, f"cannot be read ({why})") from error


def _lines(text: Path, path: Path, most: int) -> Iterator[tuple[int, Raw]]:
    """Every line with its number, as it is there."""
    with told_to_user(f"{path}: cannot be read"), text.open("rb") as stream:
        for number, line in split_lines(stream, most):
            yield number, too_long(most) if len(line) > most else line


def _array(text: Path, path: Path) -> Numbered:
    """Every item with its number from 1."""
    if text.stat().st_size > MAX_ARRAY:
        raise FileFormatError(path, f"is a JSON array of more than {MAX_ARRAY} bytes: write a record a line")
    data = text.read_bytes().removeprefix(BOM)
    try:
        return _numbered(_ARRAY.decode(data))
    except UnicodeDecodeError as error:
        raise FileFormatError(path, tables.not_utf8(path)) from error
    except UNDECODED as error:
        with suppress(*UNDECODED):
            if isinstance(found := _loads(data), list):
                return ((number, _object(one)) for number, one in enumerate(found, 1))
        raise FileFormatError(path, f"begins as a JSON array and is none ({error})") from error


def _documents(text: Path, line: bytes, *, cut: bool) -> Numbered | None:
    """The records of a document of an API, or objects over many lines, each with its number from 1; None for
    a file that is none. `line` is the first, which may be `cut`."""
    record = decoded(line)
    if record and not any(isinstance(record.get(name), list) for name in _CONTAINERS):
        return None
    if text.stat().st_size > MAX_ARRAY:
        return None
    data = text.read_bytes().removeprefix(BOM)
    try:
        whole = _DOCUMENT.decode(data)
    except UNDECODED:
        return None if record or cut else _after_each_other(data)
    for name in _CONTAINERS:
        if bytes(whole.get(name, b""))[:1] == b"[":
            items = _ARRAY.decode(whole[name])
            if items and bytes(items[0])[:1] == b"{":
                return _numbered(items)
    return _numbered([msgspec.Raw(data)])


_NEXT = re.compile(r"\S")


def _after_each_other(data: bytes) -> Numbered | None:
    found: list[Values] = []
    try:
        rest, decoder = data.decode(), json.JSONDecoder()
        at = 0
        while begin := _NEXT.search(rest, at):
            value, at = decoder.raw_decode(rest, begin.start())
            found.append(value)
    except (ValueError, RecursionError):
        return None
    return enumerate(found, 1) if all(isinstance(one, dict) for one in found) else None


def _numbered(items: list[msgspec.Raw]) -> Numbered:
    return ((number, msgspec.json.format(bytes(item), indent=-1)) for number, item in enumerate(items, 1))


def read_questions(path: Path, key: str) -> dict[str, Values]:
    """The records of a file of questions, by what they have under a key."""
    text, _held = unpacked(path)
    found: dict[str, Values] = {}
    for number, row in read_source(text, path, MAX_LINE, table=True).rows(everything):
        values = values_of(row)
        if isinstance(values, Refusal):
            raise FileFormatError(path, str(values), line=number)
        # COCO's annotation is one document.
        many = values["images"] if {"images", "annotations"} <= values.keys() else [values]
        found |= {str(whole(one.get(key))): one for one in many if isinstance(one, dict)}
    return found


def _zstd(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("pyarrow, which reads Zstandard,", "archive") from error
    return pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd")


_PACKED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
    b"\x28\xb5\x2f\xfd": _zstd,
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"[\0")


def unpacked(path: Path) -> tuple[Path, TemporaryDirectory[str] | None]:
    """The file as plain text in UTF-8, in a folder of its own where it was compressed or in UTF-16."""
    check_regular(path)
    held: TemporaryDirectory[str] | None = None
    text = path
    for step in ("unpacked", "recoded"):
        with _told(path):
            begins = begins_with(text)
            unpack = next((how for magic, how in _PACKED.items() if begins.startswith(magic)), None)
            if unpack is None and not begins.startswith(_UTF16):
                break
            held = held or TemporaryDirectory(prefix="groundwatch-file-")
            name = text.name.removesuffix(text.suffix) if unpack and text.suffix in _SUFFIXES else text.name
            target = Path(held.name, step, name)
            target.parent.mkdir()
            if unpack is not None:
                with unpack(text) as packed, target.open("wb") as out:
                    shutil.copyfileobj(packed, out, _AT_ONCE)
            else:
                with (
                    text.open(encoding="utf-16", newline="") as wide,
                    target.open("w", encoding="utf-8", newline="") as plain,
                ):
                    shutil.copyfileobj(wide, plain, _AT_ONCE)
            text = target
    return text, held


_AT_ONCE = 1024 * 1024
_SUFFIXES = {".gz", ".bz2", ".xz", ".zst"}


def values_of(line: Raw) -> Values | Refusal:
    if not isinstance(line, bytes):
        return line
    try:
        found = _loads(line)
    except UNDECODED as error:
        return Refusal(message=f"not JSON ({error})")
    return _object(found)


def _object(found: Any) -> Values | Refusal:
    return found if isinstance(found, dict) else Refusal(message="expected a JSON object")


def decoded(line: bytes) -> Values:
    """The object on a line; empty for what is none."""
    try:
        found = msgspec.json.decode(line)
    except UNDECODED:
        return {}
    return found if isinstance(found, dict) else {}


def _loads(line: bytes) -> Any:
    """Also with NaN, which Python writes and JSON has not."""
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        if not _NOT_A_NUMBER.search(line):
            raise
        try:
            return json.loads(line)
        except ValueError:
            pass
        raise


_NOT_A_NUMBER = re.compile(rb"NaN|Infinity")
