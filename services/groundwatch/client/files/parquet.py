"""Parquet, read by pyarrow a few rows at a time: what is in memory does not grow with the file."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from groundwatch.errors import FileFormatError, MissingExtraError
from groundwatch.records import Refusal

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
