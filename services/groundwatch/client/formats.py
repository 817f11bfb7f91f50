"""Which format a file of responses has: lines, a JSON array and CSV are read; others are told how to convert.

What other programs write says nothing of a model or calls its fields otherwise; guessed, the figures would
be of something else.
"""

import contextlib
import csv
import shlex
from collections.abc import Iterator, Mapping
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from groundwatch.errors import UNDECODED, FileFormatError

MAX_ARRAY = 512 * 1024 * 1024
"""Bytes of a JSON array, which is read as a whole."""

_MAX_CELL = 64 * 1024 * 1024
_MAX_HEADER = 64 * 1024
_BOM = b"\xef\xbb\xbf"
_MAGIC = {
    b"PAR1": ("Parquet", "read_parquet({path!r})"),
    b"PK\x03\x04": ("an Excel workbook or another zip archive", "read_excel({path!r})"),
}
_COLUMNS = "['id', 'model', 'prompt', 'answer']"
_AS_JSON = frozenset({"reference", "tags", "protocols", "recorded_at"})
_CALLED = "{'index': 'id', 'question': 'prompt', 'prediction': 'answer'}"
"""VLMEvalKit's columns as ours."""


class _Foreign(msgspec.Struct, frozen=True):
    """Another program's records: keys that tell them, what they are, and one of them as ours, for jq."""

    keys: frozenset[str]
    what: str
    jq: str


_FOREIGN = msgspec.toml.decode(
    resources.files("groundwatch.client").joinpath("formats.toml").read_bytes(),
    type=dict[str, list[_Foreign]],
)["foreign"]


def converted(path: Path) -> Iterator[tuple[int, bytes]] | None:
    """The records of a JSON array or of CSV as JSON lines, each with its number; None for a file of lines.

    An array's are numbered by item, CSV's by line. Raises `FileFormatError` for what is known and not read,
    with the way to convert it.
    """
    try:
        with path.open("rb") as stream:
            start = stream.readline(_MAX_HEADER).removeprefix(_BOM)
            _refuse_binary(path, start)
            first = next((line for line in chain([start], stream) if line.strip()), b"").lstrip()
    except OSError as error:
        raise FileFormatError(path, f"cannot be read ({error.strerror or error})") from error
    if first.startswith(b"["):
        return _array(path)
    if first.startswith(b"{"):
        with contextlib.suppress(*UNDECODED):
            _refuse_foreign(path, msgspec.json.decode(first), array=False)
        return None
    return _table(path, first)


def _refuse_binary(path: Path, start: bytes) -> None:
    if start.startswith(b"\x1f\x8b"):
        raise FileFormatError(path, f"is compressed: run gunzip {shlex.quote(str(path))}")
    for magic, (what, reading) in _MAGIC.items():
        if start.startswith(magic):
            raise FileFormatError(path, f"is {what}, which is not read. {_by_pandas(path, reading)}")


def _refuse_foreign(path: Path, record: object, *, array: bool) -> None:
    if not isinstance(record, Mapping) or {"model", "answer"} <= record.keys():
        return
    for one in _FOREIGN:
        if one.keys <= record.keys():
            command = f"jq -c {shlex.quote(('.[] | ' if array else '') + one.jq)} {shlex.quote(str(path))}"
            raise FileFormatError(path, f"holds {one.what}. To convert it: {command} > answers.jsonl")


def _by_pandas(path: Path, reading: str) -> str:
    code = (
        f"import pandas as p; p.{reading.format(path=str(path))}.rename(columns={_CALLED})"
        f".assign(model='MODEL')[{_COLUMNS}].to_csv('answers.csv', index=False)"
    )
    return f"To convert it, with its own names of columns: python -c {shlex.quote(code)}"


def _array(path: Path) -> Iterator[tuple[int, bytes]]:
    if path.stat().st_size > MAX_ARRAY:
        raise FileFormatError(
            path,
            f"is a JSON array of more than {MAX_ARRAY} bytes. To convert it: "
            f"jq -c '.[]' {shlex.quote(str(path))} > answers.jsonl",
        )
    try:
        items = msgspec.json.decode(path.read_bytes().removeprefix(_BOM), type=list[msgspec.Raw])
        if items:
            _refuse_foreign(path, msgspec.json.decode(items[0]), array=True)
    except UNDECODED as error:
        raise FileFormatError(path, f"begins as a JSON array and is none ({error})") from error
    return ((number, msgspec.json.format(bytes(item), indent=-1)) for number, item in enumerate(items, 1))


def _table(path: Path, header: bytes) -> Iterator[tuple[int, bytes]] | None:
    text = header.decode("utf-8", "replace").strip()
    delimiter = next((one for one in "\t,;" if one in text), "")
    if not delimiter:
        return None
    try:
        columns = [one.strip() for one in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error:
        return None
    if {"id", "answer"} <= set(columns):
        return _rows(path, delimiter)
    if {"index", "question", "prediction"} <= set(columns):
        what = f"holds {_FOREIGN[-1].what}. "
        raise FileFormatError(path, what + _by_pandas(path, f"read_csv({{path!r}}, sep={delimiter!r})"))
    if path.suffix.lower() in {".csv", ".tsv"}:
        told = ", ".join(columns)[:200]
        message = f"its first line must name the columns, id and answer among them; it says: {told}"
        raise FileFormatError(path, message, line=1)
    return None


def _rows(path: Path, delimiter: str) -> Iterator[tuple[int, bytes]]:
    csv.field_size_limit(_MAX_CELL)
    # Not universal newlines: a cell may hold some.
    with path.open(encoding="utf-8-sig", newline="") as stream:
        number = 0
        try:
            reader = csv.reader(stream, delimiter=delimiter, strict=True)
            columns = [one.strip() for one in next(row for row in reader if row)]
            number = reader.line_num
            for cells in reader:
                number += 1
                if len(cells) > len(columns):
                    message = f"has {len(cells)} cells; the first line names {len(columns)} columns"
                    raise FileFormatError(path, message, line=number)
                if cells:
                    yield number, msgspec.json.encode(_record(dict(zip(columns, cells, strict=False))))
                number = reader.line_num
        except UnicodeDecodeError as error:
            raise FileFormatError(path, "is not UTF-8 text") from error
        except csv.Error as error:
            raise FileFormatError(path, f"is not CSV ({error})", line=number) from error


def _record(cells: dict[str, str]) -> dict[str, Any]:
    """A row's values. An empty cell is an absent value, but for an answer, which may be empty."""
    record: dict[str, Any] = {}
    for column, cell in cells.items():
        if not cell and column != "answer":
            continue
        record[column] = cell
        if column == "images":
            record[column] = [cell]
        if column in _AS_JSON or (column == "images" and cell.startswith("[")):
            # What is no JSON stays text, and the reading of records says what is wrong with it.
            with contextlib.suppress(*UNDECODED):
                record[column] = msgspec.json.decode(cell)
    return record
