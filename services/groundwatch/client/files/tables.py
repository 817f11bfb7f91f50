"""Tables of responses, in whatever file: columns that are ours, and the cells of a row as a record."""

import contextlib
import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from groundwatch.errors import UNDECODED, FileFormatError, InputError, MissingExtraError, told_to_user
from groundwatch.records import Record, Refusal, misspelt

IMAGE_COLUMNS = ("images", "image", "image_file", "file_name", "file_names")
"""Any one of them has a row's images: its own name first, then what tables and Hugging Face call it."""

_FIELDS = frozenset(Record.__struct_encode_fields__) - {"images"}
_NEEDED = ("id", "answer")
_AS_JSON = frozenset({"reference", "tags", "protocols", "recorded_at"})
_URL = re.compile(r"[a-z][a-z0-9+.-]{1,20}://", re.IGNORECASE)
_MAX_CELL = 64 * 1024 * 1024


class Columns:
    """Which columns of a table are read, and what a row of them says."""

    def __init__(self, path: Path, names: Sequence[str], line: int | None = None) -> None:
        """`line` is that of the names, where a file has them on one."""

        def wrong(message: str) -> FileFormatError:
            return FileFormatError(path, message, line=line)

        if not set(_NEEDED) <= set(names):
            told = _one_line(names)
            if line is None:
                raise wrong(f"needs the columns {' and '.join(_NEEDED)}; it has: {told}")
            needed = f"the columns, {' and '.join(_NEEDED)} among them"
            raise wrong(f"its first line must name {needed}; it says: {told}")
        images = [name for name in names if name in IMAGE_COLUMNS]
        if len(set(images)) > 1:
            raise wrong(f"the columns {' and '.join(images)} all name images: keep one of them")
        self.image = images[0] if images else ""
        self.names = [name for name in names if name in _FIELDS or name == self.image]
        for name in self.names:
            if names.count(name) > 1:
                raise wrong(f"two columns are called {name}")
        others = dict.fromkeys(name for name in names if name not in IMAGE_COLUMNS or name == "images")
        if refusal := misspelt(others, Record):
            raise wrong(f"column '{refusal.field}': {refusal.message}")

    def record(self, cells: Mapping[str, Any]) -> dict[str, Any] | Refusal:
        """A row's values. A cell that is empty is an absent value, but for an answer, which may be empty."""
        found: dict[str, Any] = {}
        name = cells.get("id")
        for column in self.names:
            try:
                value = self._value(column, cells.get(column))
            except InputError as error:
                return Refusal(field=column, message=str(error), id=str(name)[:256])
            if value is not None:
                found["images" if column == self.image else column] = value
        return found

    def _value(self, column: str, cell: Any) -> Any:
        if cell is None or (cell == "" and column != "answer"):
            return None
        if column == self.image:
            return images_of(cell)
        if column == "id" and isinstance(cell, int) and not isinstance(cell, bool):
            return str(cell)
        if column == "recorded_at" and isinstance(cell, datetime):
            return seconds(cell)
        if column == "tags" and isinstance(cell, list):
            with contextlib.suppress(TypeError, ValueError):
                cell = dict(cell)
        if isinstance(cell, str) and column in _AS_JSON:
            # What is no JSON stays text, and the reading of records says what is wrong with it.
            with contextlib.suppress(*UNDECODED):
                cell = msgspec.json.decode(cell)
        return plain(cell)


def images_of(cell: Any) -> list[str | bytes | dict[str, str]]:
    """The images that a cell names or holds. Raises `InputError`."""
    if isinstance(cell, str) and cell.startswith("["):
        with contextlib.suppress(*UNDECODED):
            cell = msgspec.json.decode(cell)
    found: list[str | bytes | dict[str, str]] = []
    for image in cell if isinstance(cell, list) else [cell]:
        if isinstance(image, dict):
            # Hugging Face's: the bytes, or else where they are.
            if not image.keys() <= {"bytes", "path"}:
                raise InputError(f"has the keys {_one_line(image)}; an image has bytes or path")
            image = image.get("bytes") if image.get("bytes") is not None else image.get("path")
        if image is None:
            continue
        if not isinstance(image, str | bytes):
            raise InputError(f"is {_kind(image)}; an image is a name, its bytes, or both as bytes and path")
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


def rows(path: Path, delimiter: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The cells of each row by their column, with the line that it begins on."""
    csv.field_size_limit(_MAX_CELL)
    # Not universal newlines: a cell may hold some.
    with told_to_user(f"{path}: cannot be read"), path.open(encoding="utf-8-sig", newline="") as stream:
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
            raise FileFormatError(path, "is not UTF-8 text") from error
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
