"""Tables of responses, in whatever file: columns that are ours, and the cells of a row as a record."""

import contextlib
import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Any, Self

import msgspec

from groundwatch.client.files.formats import first, whole
from groundwatch.errors import (
    UNDECODED,
    FileFormatError,
    InputError,
    MissingExtraError,
    UsageError,
    told_to_user,
)
from groundwatch.image_files import from_base64
from groundwatch.records import Record, Refusal, also_called, misspelt

IMAGE_COLUMNS = ("images", "image", "image_file", "file_name", "file_names", "image_path", "img")
"""Any one of them has a row's images: its own name first, then what tables and Hugging Face call it."""

_FIELDS = frozenset(Record.__struct_encode_fields__)
_TEXTS = frozenset({"id", "model", "prompt", "answer", "tenant", "earlier"})
_AS_JSON = frozenset({"reference", "tags", "protocols", "recorded_at", "earlier_images"})
_TAG = "tags."
_URL = re.compile(r"[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{256}")
"""How an image begins that a cell holds without any word about it; no name of a file is as long."""

_MAX_CELL = 64 * 1024 * 1024


def chosen(options: Sequence[str]) -> dict[str, str]:
    """Our fields with the columns that `--column THEIRS=OURS` names for them. Raises `UsageError`."""
    found: dict[str, str] = {}
    for option in options:
        theirs, _, ours = option.rpartition("=")
        if not theirs or not (ours in _FIELDS or (ours.startswith(_TAG) and ours != _TAG)):
            known = ", ".join(Record.__struct_encode_fields__)
            raise UsageError(f"--column {option}: write THEIRS=OURS, ours being one of {known} or {_TAG}NAME")
        if ours in found:
            raise UsageError(f"--column {option}: {found[ours]} is to be the {ours} already")
        found[ours] = theirs
    return found


class Columns:
    """Which columns of a table, or keys of records, are read as our fields, and what one of them says.

    `given` names them, by field; else they have our names, or those that other programs have for them, of
    which `told` says what was taken for what. Raises `FileFormatError` where that is no one's guess.
    """

    def __init__(
        self, path: Path, names: Sequence[str], given: Mapping[str, str], line: int | None = None
    ) -> None:
        """`line` is that of the names, where a file has them on one."""
        self.places: dict[str, tuple[str, ...]] = {}
        self.told: list[str] = []

        def wrong(message: str) -> FileFormatError:
            return FileFormatError(path, message, line=line)

        shown = _one_line(names)
        for field, place in given.items():
            if not reaches(place, names):
                raise wrong(f"there is no {place} for --column {place}={field}; there is: {shown}")
            self.places[field] = (place,)
        used = {place.split(".")[0] for place in given.values()}
        ours, others = dict[str, list[str]](), dict[str, list[str]]()
        for name in names:
            own = "images" if name in IMAGE_COLUMNS else name if name in _FIELDS else ""
            if own and own not in self.places and name not in used:
                ours.setdefault(own, []).append(name)
        for name in names:
            field = _meant(name)
            if field in _TEXTS and field not in ours.keys() | self.places.keys() and name not in used:
                others.setdefault(field, []).append(name)
        for field, found in (ours | others).items():
            if len(set(found)) > 1:
                which = f"or say which by --column {found[0]}={field}"
                raise wrong(f"the columns {' and '.join(found)} all name {field}: keep one of them, {which}")
            if len(found) > 1:
                raise wrong(f"two columns are called {found[0]}")
            # Not every record of a file has the names of the first.
            self.places[field] = tuple(dict.fromkeys((found[0], field)))
        self.told = [f"{name} is read as the {field}" for field, (name,) in others.items()]
        if "answer" not in self.places:
            raise wrong(f"needs a column answer, or --column THEIRS=answer; it has: {shown}")
        rest = [name for name in names if name not in used and not also_called(name)]
        known = [name for name in (*rest, *self.places) if name not in IMAGE_COLUMNS or name == "images"]
        if refusal := misspelt(dict.fromkeys(known), Record):
            raise wrong(f"column '{refusal.field}': {refusal.message}")

    @classmethod
    def of(cls, places: Mapping[str, tuple[str, ...]]) -> Self:
        """Those of a known format."""
        found = cls.__new__(cls)
        found.places, found.told = dict(places), []
        return found

    def needs(self, name: str) -> bool:
        """Whether anything of a column is read."""
        return any(reaches(place, [name]) for of in self.places.values() for place in of)

    def record(self, values: Mapping[str, Any]) -> dict[str, Any] | Refusal:
        """What a row says. A cell that is empty is an absent value, but for an answer, which may be empty."""
        found: dict[str, Any] = {}
        tags: dict[str, str] = {}
        for field, places in self.places.items():
            try:
                value = self._value(field, places, values)
            except InputError as error:
                name = first(values, self.places.get("id", ("id",)))
                return Refusal(field=places[0], message=str(error), id=str(name)[:256])
            if value is not None and field.startswith(_TAG):
                tags[field.removeprefix(_TAG)] = str(value)
            elif value is not None:
                found[field] = value
        if tags:
            held = found.get("tags")
            found["tags"] = held | tags if isinstance(held, dict) else tags
        return found

    def _value(self, field: str, places: tuple[str, ...], values: Mapping[str, Any]) -> Any:
        cell = first(values, places)
        if cell is None:
            given = [values[place] for place in places if place in values]
            if field == "answer" and any(isinstance(one, float) for one in given):
                raise InputError(NOT_A_NUMBER)
            return "" if field == "answer" and "" in given else None
        if field == "images":
            return images_of(cell, ours=places[0] == field)
        if field in _TEXTS:
            cell = _text_in(cell)
        if field == "recorded_at" and isinstance(cell, datetime):
            return seconds(cell)
        if field == "tags" and isinstance(cell, list):
            with contextlib.suppress(TypeError, ValueError):
                cell = dict(cell)
        if isinstance(cell, str) and field in _AS_JSON:
            # What is no JSON stays text, and the reading of records says what is wrong with it.
            with contextlib.suppress(*UNDECODED):
                cell = msgspec.json.decode(cell)
        return numbered(cell) if field == "id" else plain(cell)


def reaches(place: str, names: Collection[str]) -> bool:
    """Whether a place, a path with dots, begins at one of these names."""
    return place in names or any(place.startswith(f"{name}.") for name in names)


def numbered(value: Any) -> Any:
    """An id that is a whole number, as text."""
    value = whole(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else plain(value)


def _text_in(cell: Any) -> Any:
    """The text that lists hold as their only one."""
    while isinstance(cell, list) and len(cell) == 1:
        cell = cell[0]
    return cell


def images_of(cell: Any, *, ours: bool = False) -> list[str | bytes | dict[str, str]]:
    """The images that a cell names or holds; in our own form too where it is `ours`. Raises `InputError`."""
    if isinstance(cell, str) and cell.startswith("["):
        with contextlib.suppress(*UNDECODED):
            cell = msgspec.json.decode(cell)
    found: list[str | bytes | dict[str, str]] = []
    for image in cell if isinstance(cell, list) else [cell]:
        if ours and isinstance(image, dict) and image.keys() in ({"url"}, {"base64"}):
            found.append(image)
            continue
        if isinstance(image, dict):
            # Hugging Face's: the bytes, or else where they are.
            if not image.keys() <= {"bytes", "path"}:
                raise InputError(f"has the keys {_one_line(image)}; an image has bytes or path")
            image = image.get("bytes") if image.get("bytes") is not None else image.get("path")
        if image is None:
            continue
        if not isinstance(image, str | bytes):
            raise InputError(f"is {_kind(image)}; an image is a name, its bytes, or both as bytes and path")
        if isinstance(image, str) and _BASE64.match(image):
            image = from_base64(image)
        found.append({"url": image} if isinstance(image, str) and _URL.match(image) else image)
    return found


def plain(value: Any) -> Any:
    """A value as JSON has it, without what is absent. Raises `InputError` for what JSON does not have."""
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value if one is not None]
    if isinstance(value, datetime):
        return value.isoformat()
    raise InputError(f"is {_kind(value)}, which no field holds")


def seconds(moment: datetime) -> float:
    """Since the epoch; a moment without a zone is UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _one_line(names: Iterable[object]) -> str:
    return " ".join(", ".join(map(str, names)).split())[:200]


def _kind(value: Any) -> str:
    return "bytes" if isinstance(value, bytes) else f"of type {type(value).__name__}"


def delimited(first: bytes) -> tuple[str, list[str]]:
    """The delimiter of a table in text and the names on its first line; empty for a line that is none."""
    text = first.decode("utf-8", "replace").strip()
    delimiter = next((one for one in "\t,;" if one in text), "")
    if not delimiter:
        return "", []
    try:
        return delimiter, [one.strip() for one in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error:
        return "", []


NOT_A_NUMBER = "is NaN, which pandas writes for an empty cell"


def not_utf8(path: Path) -> str:
    """What is to be done about a file in another encoding; it is not written over."""
    old, new = quote(str(path)), quote(str(path.with_name(f"{path.stem}.utf8{path.suffix}")))
    return (
        "is not UTF-8 text. Excel's plain CSV is Windows-1252 (cp1252): save it as CSV UTF-8, or copy it: "
        f"iconv -f WINDOWS-1252 -t UTF-8 {old} > {new}"
    )


def are_called_otherwise(names: Mapping[str, Any]) -> bool:
    """Whether records have fields of ours under names of other programs alone."""
    meant = {"images" if name in IMAGE_COLUMNS else _meant(name) for name in names}
    return bool(meant & {"images", *_TEXTS} - names.keys())


def _meant(name: str) -> str:
    """Our field that a column is taken for. An `output` may be an answer, or what a chain of calls gave."""
    return "" if name == "output" else also_called(name)


def rows(text: Path, path: Path, delimiter: str) -> Iterator[tuple[int, dict[str, Any] | Refusal]]:
    """The cells of each row of `text` by their column, with the line that it begins on; errors say `path`."""
    csv.field_size_limit(_MAX_CELL)
    # Not universal newlines: a cell may hold some.
    with told_to_user(f"{path}: cannot be read"), text.open(encoding="utf-8-sig", newline="") as stream:
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
                    yield number, dict(zip(columns, cells, strict=False))
                number = reader.line_num
        except UnicodeDecodeError as error:
            raise FileFormatError(path, not_utf8(path)) from error
        except csv.Error as error:
            raise FileFormatError(path, f"is not CSV ({error})", line=number) from error


MAGIC = b"PAR1"
AT_ONCE = 16
"""Rows in memory: a column may name one long value for each of a million rows in a few bytes."""

MOST_BYTES = 256 * 1024 * 1024
"""Of one column in one row, on the average of a row group: an answer's images together are smaller."""

_BUFFER = 1024 * 1024


class ParquetTable:
    """An open file. Raises `FileFormatError`, and `MissingExtraError` without pyarrow."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtraError("pyarrow, which reads Parquet,", "archive") from error
        self._pa = pyarrow
        self._path = path
        with self._told():
            # What is asked for is read as it is needed: `pre_buffer` would hold a whole row group.
            self._file = pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)
            self.names: list[str] = list(self._file.schema_arrow.names)

    def __enter__(self) -> "ParquetTable":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def rows(self, columns: Collection[str]) -> Iterator[tuple[int, dict[str, Any] | Refusal]]:
        """The cells of these columns by row, counted from 1. Times are seconds since the epoch."""
        number = 0
        with self._told():
            self._check(columns)
            for batch in self._file.iter_batches(AT_ONCE, columns=list(columns), use_threads=False):
                # A name with a dot is also that of what lies within a column.
                wanted = [
                    (name, self._seconds(batch.column(name)))
                    for name in batch.schema.names
                    if name in columns
                ]
                for row in range(batch.num_rows):
                    number += 1
                    yield number, self._cells(wanted, row)

    def _check(self, columns: Collection[str]) -> None:
        """A value is decompressed as a whole, so that one of a gigabyte is refused before."""
        metadata = self._file.metadata
        for at in range(metadata.num_row_groups):
            group = metadata.row_group(at)
            for index in range(group.num_columns):
                column = group.column(index)
                name = next((one for one in columns if f"{column.path_in_schema}.".startswith(f"{one}.")), "")
                size = column.total_uncompressed_size // max(group.num_rows, 1)
                if name and size > MOST_BYTES:
                    message = f"column '{name}' has values of {size} bytes; at most {MOST_BYTES} are read"
                    raise FileFormatError(self._path, message)

    def _cells(self, columns: list[tuple[str, Any]], row: int) -> dict[str, Any] | Refusal:
        cells: dict[str, Any] = {}
        for name, column in columns:
            try:
                cells[name] = column[row].as_py()
            except (self._pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError) as error:
                return Refusal(field=name, message=f"cannot be read ({_first_line(error)})")
        return cells

    def _seconds(self, column: Any) -> Any:
        if not self._pa.types.is_timestamp(column.type):
            return column
        micros = column.cast(self._pa.timestamp("us"), safe=False).cast(self._pa.int64())
        return self._pa.compute.divide(micros.cast(self._pa.float64(), safe=False), 1e6)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (
            self._pa.ArrowException,
            OSError,
            ValueError,
            MemoryError,
            OverflowError,
            RecursionError,
        ) as error:
            raise FileFormatError(
                self._path, f"is no Parquet that can be read ({_first_line(error)})"
            ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
