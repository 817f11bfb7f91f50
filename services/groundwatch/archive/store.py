"""Where an archive lies: a folder, or any object store that fsspec reaches.

Two things are asked of it beyond reading and writing: a file is whole and durable when writing returns, and
`create` writes a file only if there is none of that name, so that of two writers one wins.

A local folder that is made here is for its owner alone. What is in it has the rights of the archive's own
folder: who lets others into that lets them read.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from groundwatch.addresses import shown_address
from groundwatch.errors import MissingExtraError, SettingsError
from groundwatch.runtime.security.private_files import FILE_MODE, FOLDER_MODE, make_folders


class Store:
    """Files by their names below one root. Raises what the file system raises, mostly `OSError`."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        """Raises `SettingsError` for a url that cannot be, `MissingExtraError` without fsspec."""
        self.url = shown_address(url)
        """The address as it may be shown."""
        require()
        import fsspec

        try:
            # A remembered listing would hide what another process has written.
            found = fsspec.core.url_to_fs(url, use_listings_cache=False, **(options or {}))
        except ImportError as error:
            raise SettingsError(f"setting 'archive.url': {self.url} needs a library: {error}") from error
        except (ValueError, TypeError) as error:
            raise SettingsError(f"setting 'archive.url': {self.url}: {error}") from error
        self.fs: Any = found[0]
        self.root: str = found[1].rstrip("/")
        protocols = self.fs.protocol
        self.protocol: str = protocols if isinstance(protocols, str) else protocols[0]
        self.local = self.protocol in ("file", "local")

    def path(self, name: str) -> str:
        """The name as the file system knows it, without the protocol."""
        return f"{self.root}/{name}"

    def address(self, name: str) -> str:
        """The name as DuckDB takes it."""
        return self.path(name) if self.local else f"{self.protocol}://{self.path(name).lstrip('/')}"

    def prepare(self) -> None:
        """Make the folder of a local archive; elsewhere names need none."""
        if self.local:
            make_folders(Path(self.root))

    def read(self, name: str) -> bytes:
        """A whole file. Raises `FileNotFoundError`."""
        data: bytes = self.fs.cat_file(self.path(name))
        return data

    def open(self, name: str) -> Any:
        """A file to read in pieces."""
        return self.fs.open(self.path(name), "rb")

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return int(self.fs.info(self.path(name))["size"])

    def create(self, name: str, data: bytes) -> None:
        """Write a new file, all of it or nothing. Raises `FileExistsError` when there is one already."""
        if self.local:
            self._create(Path(self.path(name)), data)
            return
        try:
            self.fs.pipe_file(self.path(name), data, mode="create")
        except (NotImplementedError, TypeError):
            # A store that cannot refuse: right as long as one archive writes to it.
            if self.fs.exists(self.path(name)):
                raise FileExistsError(name) from None
            self.fs.pipe_file(self.path(name), data)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A new file to write in pieces, durable after the block. What a failure leaves is nobody's yet."""
        if not self.local:
            with self.fs.open(self.path(name), "wb") as file:
                yield file
            return
        path = Path(self.path(name))
        self._make_folder(path.parent)
        try:
            with self._new_file(path) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            # On a full disk the room is needed at once.
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        _sync_folder(path.parent)

    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is as good as removed."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm_file(self.path(name))

    def names(self, folder: str = "") -> list[str]:
        """Every file below a folder, in order."""
        start = f"{self.root}/{folder}".rstrip("/")
        try:
            found = self.fs.find(start)
        except FileNotFoundError:
            return []
        prefix = len(self.root) + 1
        if self.local:
            return sorted(os.path.relpath(one, self.root) for one in found)
        return sorted(str(one)[prefix:] for one in found)

    def _create(self, path: Path, data: bytes) -> None:
        """A link is the one way to make a file appear whole and only where there is none."""
        self._make_folder(path.parent)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with self._new_file(draft) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        _sync_folder(path.parent)

    def _new_file(self, path: Path) -> IO[bytes]:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        os.fchmod(handle, self._rights() & 0o666)
        return os.fdopen(handle, "wb")

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if folder == Path(self.root):
            make_folders(folder)
        else:
            self._make_folder(folder.parent)
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            folder.chmod(self._rights())
        _sync_folder(folder.parent)

    def _rights(self) -> int:
        return stat.S_IMODE(Path(self.root).stat().st_mode)


def installed() -> bool:
    """Whether what the archive needs is there; asked without importing it."""
    return all(importlib.util.find_spec(name) is not None for name in ("pyarrow", "fsspec"))


def require() -> None:
    """Raises `MissingExtraError` unless what the archive needs is installed."""
    if not installed():
        raise MissingExtraError("what the archive needs (pyarrow, fsspec)", "archive")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
