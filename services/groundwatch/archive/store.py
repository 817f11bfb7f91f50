"""Where the archive lies: the files below its table, in a folder or an object store, and its state."""

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from groundwatch.archive.place import Place, place
from groundwatch.archive.rows import Row
from groundwatch.errors import UsageError
from groundwatch.events import digest
from groundwatch.runtime.security.private_files import make_folders

BATCH = 4_096
"""Rows that are held in memory while files are rewritten or searched."""


class Store:
    """Where an archive lies. Raises `SettingsError` for an address that cannot be."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        found = place(url, options)
        self.url = found.shown
        """The address as it may be shown."""
        self.address, self.options = found.url, found.options
        """The table for delta-rs."""
        self.folder = found.folder
        """Of a local archive."""
        self.files = _file_system(found)

    def prepare(self, folder: str = "") -> None:
        """Make a folder of a local archive, and the archive's own."""
        if self.folder is not None:
            make_folders(self.folder / folder)

    def names(self, folder: str = "") -> list[str]:
        """Every file below a folder, in order."""
        if self.folder is not None and not self.folder.is_dir():
            return []
        selector = pafs.FileSelector(folder, recursive=True, allow_not_found=True)
        files = self.files.get_file_info(selector)
        return sorted(file.path.lstrip("/") for file in files if file.type == pafs.FileType.File)

    def delete(self, names: Iterable[str]) -> None:
        """Those that are there; what cannot be deleted raises."""
        for name in names:
            with suppress(FileNotFoundError):
                self.files.delete_file(name)

    def search(self, needles: Sequence[bytes]) -> list[str]:
        """The files that hold one of these byte strings, in a name, in any value, or as they lie there.

        Parquet is compressed, so its values are read and looked through; other files are as they are.
        """
        return [
            name
            for name in self.names()
            if any(needle in name.encode() for needle in needles) or self._holds(name, needles)
        ]

    def _holds(self, name: str, needles: Sequence[bytes]) -> bool:
        with self.files.open_input_file(name) as file:
            if not name.endswith(".parquet"):
                data = file.readall()
                return any(needle in data for needle in needles)
            for batch in pq.ParquetFile(file).iter_batches(BATCH):
                values = msgspec.json.encode([list(row.values()) for row in batch.to_pylist()])
                if any(needle in values for needle in needles):
                    return True
        return False

    def sync(self, names: Iterable[str], *, folders_only: bool = False) -> None:
        """Have a local disk write these files, and that they are there or gone, before we go on."""
        if self.folder is None:
            return
        paths = [self.folder / name for name in names]
        folders = {folder for path in paths for folder in (path.parent, path.parent.parent)}
        for path in [*(paths if not folders_only else ()), *folders]:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


@contextmanager
def plain_errors() -> Iterator[None]:
    """What delta-rs says, in one line without colours; a disk that is full by its number."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError) as error:
        message = " ".join(re.sub(r"\x1b\[[0-9;]*m|↳", "", str(error)).split())
        number = re.search(r"os error (\d+)", message)
        if isinstance(error, OSError) or number:
            raise OSError(int(number[1]) if number else errno.EIO, message) from error
        raise UsageError(message) from error


def _file_system(place: Place) -> pafs.FileSystem:
    """The files below the table. That of delta-rs would hold up the whole process while the store answers."""
    if place.folder is not None:
        return pafs.SubTreeFileSystem(str(place.folder), pafs.LocalFileSystem())
    if not place.url.startswith("s3"):
        found, path = pafs.FileSystem.from_uri(place.url)
        return pafs.SubTreeFileSystem(path, found)
    options = {name.lower().removeprefix("aws_"): value for name, value in place.options.items()}
    endpoint = options.get("endpoint_url", options.get("endpoint", ""))
    found = pafs.S3FileSystem(
        access_key=options.get("access_key_id"),
        secret_key=options.get("secret_access_key"),
        session_token=options.get("session_token"),
        region=options.get("region", options.get("default_region")),
        endpoint_override=endpoint or None,
        request_timeout=20.0,
        connect_timeout=5.0,
    )
    return pafs.SubTreeFileSystem(place.url.partition("://")[2], found)


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
