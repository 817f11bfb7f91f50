"""Where a table of the archive lies, or all of it: the files there, in a folder or an object store."""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError, DeltaError

from groundwatch.archive.place import Place, place
from groundwatch.errors import UNDECODED, UsageError
from groundwatch.runtime.security.private_files import make_folders

LONGEST = 300
"""Characters of what delta-rs says."""

BETWEEN_CHECKPOINTS = 100
"""Files of the log that are read behind a checkpoint."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A data file of the table. `first` to `last` are sequences of the streams `oldest` to `newest`.

    `stream` is the stream's name where files of several lie apart.
    """

    path: str
    day: date
    stream: str = ""
    rows: int
    bytes: int
    written: float
    first: int
    last: int
    oldest: int
    newest: int

    @property
    def partition(self) -> dict[str, str]:
        """In which part of the table it lies."""
        return {"day": self.day.isoformat()} | ({"stream": self.stream} if self.stream else {})


class LostFileError(UsageError, FileNotFoundError):
    """A file of the table at `url` is lost or damaged; the message says what was in it, and what to do."""

    def __init__(self, url: str, file: File, why: str) -> None:
        stream = f" of {file.stream}" if file.stream else ""
        super().__init__(
            f"the archive has lost {url}/{file.path} ({' '.join(why.split())}): {file.rows:,} rows of "
            f"{file.day}, sequences {file.first:,} to {file.last:,}{stream}; put it back from the backup, "
            "under this name"
        )
        self.file, self.why = file, why


class Store:
    """Where a table lies, or all of an archive. Raises `SettingsError` for an address that cannot be."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, *, folder: str = "") -> None:
        found = place(f"{url.rstrip('/')}/{folder}" if folder else url, options)
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
        return sorted(file.path.lstrip("/") for file in self.infos(folder))

    def infos(self, folder: str = "") -> list[pafs.FileInfo]:
        """Every file below a folder, with its size and age."""
        if self.folder is not None and not self.folder.is_dir():
            return []
        selector = pafs.FileSelector(folder, recursive=True, allow_not_found=True)
        return [file for file in self.files.get_file_info(selector) if file.type == pafs.FileType.File]

    def delete(self, names: Iterable[str]) -> None:
        """Those that are there; what cannot be deleted raises."""
        for name in names:
            with suppress(FileNotFoundError):
                self.files.delete_file(name)

    @contextmanager
    def open(self, file: File) -> Iterator[pa.NativeFile]:
        """A data file of the table. Raises `LostFileError` for one that is not there, or not all of it."""
        self.check(file)
        try:
            opened = self.files.open_input_file(file.path)
        except FileNotFoundError as error:
            raise LostFileError(self.url, file, "it is not there") from error
        with opened:
            yield opened

    def check(self, file: File) -> None:
        """Raises `LostFileError` for a file of a folder that is not there, is none, or has another length. Of
        a store that is known when it is read."""
        if self.folder is None:
            return
        try:
            found = (self.folder / file.path).stat()
        except OSError as error:
            raise LostFileError(self.url, file, error.strerror or "it is not there") from error
        if not stat.S_ISREG(found.st_mode):
            raise LostFileError(self.url, file, "something else has its name")
        if found.st_size != file.bytes:
            raise LostFileError(self.url, file, f"it has {found.st_size:,} of its {file.bytes:,} bytes")

    def damage(self, file: File) -> LostFileError | None:
        """Read it whole, and say what is wrong with it."""
        try:
            with (
                self.open(file) as opened,
                pq.ParquetFile(opened, page_checksum_verification=True) as parquet,
            ):
                for group in range(parquet.num_row_groups):
                    parquet.read_row_group(group, use_threads=False)
                number = parquet.metadata.num_rows
        except LostFileError as error:
            return error
        except (pa.ArrowException, OSError) as error:
            if self.folder is None and not isinstance(error, pa.ArrowException):
                # The store may be away.
                raise
            return LostFileError(self.url, file, str(error))
        return None if number == file.rows else LostFileError(self.url, file, f"it has {number:,} rows")

    def check_log(self, version: int) -> None:
        """Raises `UsageError` where one of the last files of a local log, or the next one, is empty or no
        file: delta-rs would take an older state for the present one."""
        if self.folder is None:
            return
        for number in range(max(0, version - BETWEEN_CHECKPOINTS), version + 2):
            path = self.folder / "_delta_log" / f"{number:020d}.json"
            with suppress(FileNotFoundError):
                found = path.stat()
                if not stat.S_ISREG(found.st_mode) or not found.st_size:
                    raise UsageError(self._log_damaged(path.name, "there is nothing in it"))

    def _log_damaged(self, name: str, why: str) -> str:
        return (
            f"the log of the archive's table at {self.url} is damaged: _delta_log/{name}: {why}; put this "
            "file back from the backup"
        )

    def damaged_log(self) -> str:
        """Which file of a folder's log is damaged, in a line; empty where none is seen to be."""
        if self.folder is None:
            return ""
        before = -1
        for path in sorted((self.folder / "_delta_log").glob("*.json")):
            try:
                if not path.is_file():
                    return self._log_damaged(path.name, "it is no file")
                for line in path.read_bytes().splitlines():
                    msgspec.json.decode(line)
            except (OSError, *UNDECODED) as error:
                return self._log_damaged(path.name, str(error))
            number = int(path.stem) if path.stem.isdecimal() else before + 1
            if number != before + 1 and before >= 0:
                return self._log_damaged(f"{before + 1:020d}.json", "it is not there")
            before = number
        return ""

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
def plain_errors(store: Store) -> Iterator[None]:
    """What delta-rs says, in one line without colours and stack; a disk that is full by its number. Where the
    log is damaged, which file of it."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError) as error:
        message = " ".join(re.sub(r"\x1b\[[0-9;]*m|↳", "", str(error)).split())
        message = re.sub(r" 0: \S.*", "", message)[:LONGEST]
        number = re.search(r"os error (\d+)", message)
        if isinstance(error, OSError) or number:
            raise OSError(int(number[1]) if number else errno.EIO, message) from error
        raise UsageError(store.damaged_log() or f"{store.url}: {message}") from error


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
