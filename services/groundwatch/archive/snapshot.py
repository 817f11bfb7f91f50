"""A state of the archive: the files that the table then consists of, and how far it had come."""

from collections.abc import Iterator
from datetime import date

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from groundwatch.archive.rows import Row
from groundwatch.archive.store import Store
from groundwatch.events import digest


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A data file of the table. `first` to `last` are sequences of the streams `oldest` to `newest`."""

    path: str
    day: date
    rows: int
    bytes: int
    written: float
    first: int
    last: int
    oldest: int
    newest: int


class ErasedKeys(msgspec.Struct, frozen=True):
    """What an erasure wants the writer to leave out, by digests: no key stands in the log."""

    stream: int
    until: int
    digests: frozenset[str]

    def concern(self, row: Row) -> bool:
        """Whether this outcome is to be left out."""
        return (
            row.stream == self.stream and row.sequence <= self.until and key_digest(row.key) in self.digests
        )


class Snapshot:
    """One state of the archive, with all its files; an empty one where there is no table yet."""

    def __init__(self, store: Store, table: DeltaTable | None) -> None:
        self.store = store
        self.table = table

    @property
    def version(self) -> int:
        """Counts up with every change, from 0; -1 without a table."""
        return self.table.version() if self.table is not None else -1

    def position(self, stream: int) -> int:
        """The last sequence of this stream that the archive has, 0 for none."""
        return (self.table.transaction_version(application(stream)) or 0) if self.table is not None else 0

    def files(self) -> list[File]:
        """What the table consists of."""
        if self.table is None:
            return []
        return [
            File(
                path=action["path"],
                day=action["partition.day"],
                rows=action["num_records"],
                bytes=action["size_bytes"],
                written=action["modification_time"] / 1e3,
                first=action["min.sequence"],
                last=action["max.sequence"],
                oldest=action["min.stream"],
                newest=action["max.stream"],
            )
            for action in pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
        ]

    def dataset(self) -> ds.Dataset | None:
        """All rows, to be read by whoever reads Arrow."""
        return self.table.to_pyarrow_dataset(filesystem=self.store.files) if self.table is not None else None

    def erased_since(self, version: int) -> Iterator[ErasedKeys]:
        """What the transactions after this version say must not be written any more."""
        if self.table is not None and self.version > version:
            for commit in self.table.history(self.version - version):
                if (erased := commit.get("erased")) is not None:
                    yield msgspec.convert(erased, ErasedKeys)


def application(stream: int) -> str:
    """Whose transactions say how far this stream is archived."""
    return f"groundwatch-outcomes-{stream}"


def key_digest(key: str) -> str:
    """What the log says in place of a response's key."""
    return digest("archive", key)[:32]
