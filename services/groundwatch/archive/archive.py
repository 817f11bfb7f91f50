"""The archive's table of outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from groundwatch.archive.rows import (
    CLAIMS,
    OUTCOMES,
    OUTCOMES_TABLE,
    Row,
    to_table,
)
from groundwatch.archive.table import ArchiveTable


class Archive(ArchiveTable[Row]):
    """The outcomes of an archive, with their claims."""

    spec = OUTCOMES_TABLE

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        *,
        version_tags: Sequence[str] = ("version",),
        merge_files: int = 8,
        file_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        super().__init__(url, options, merge_files=merge_files, file_bytes=file_bytes)
        self._version_tags = version_tags

    def to_table(self, rows: Sequence[Row]) -> pa.Table:
        return to_table(rows, self._version_tags)

    def count(self, table: pa.Table) -> dict[str, int]:
        return {OUTCOMES: len(table), CLAIMS: pc.sum(pc.list_value_length(table[CLAIMS])).as_py() or 0}
