"""What a table of the archive is like: its columns, by what its files lie apart, and where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from groundwatch.topology import OUTCOMES


class Row(Protocol):
    """What the archive must know of a row, of whatever table.

    `created` tells when its stream was made, µs since the epoch: one that was made anew counts from 1 again.
    `supersedes` is the sequence of the message whose place it takes, 0 for none.
    """

    @property
    def created(self) -> int: ...

    @property
    def sequence(self) -> int: ...

    @property
    def run(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def supersedes(self) -> int: ...


class TableSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it must be. `folder` is its place below the archive's; `created` is the column that tells
    when a row's stream was made. Files lie apart by the columns of `partition`, which the files lack.

    So many rows as `batch` are held in memory while files are rewritten or searched.
    """

    name: str
    folder: str
    schema: pa.Schema
    partition: tuple[str, ...]
    created: str
    batch: int

    def application(self, created: int, stream: str = OUTCOMES) -> str:
        """Whose transactions say how far this stream is archived."""
        names = (stream, str(created)) if "stream" in self.partition else (str(created),)
        return "-".join(("groundwatch", self.name, *names))

    @property
    def statistics(self) -> tuple[str, str]:
        """Columns whose lowest and highest values stand in the table's log: numbers alone."""
        return ("sequence", self.created)

    def folder_of(self, partition: Mapping[str, Any]) -> str:
        """Where the files of one part lie."""
        return "/".join(f"{name}={partition[name]}" for name in self.partition)

    def holds(self, path: str) -> bool:
        """Whether a file below the archive's address is one of this table's, by its place."""
        return path.startswith(f"{self.partition[0]}=")
