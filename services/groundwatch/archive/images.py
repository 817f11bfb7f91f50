"""Images in the archive's place.

An image lies at `images/<sha256>` below the archive's address. It is written under another name first, so
that what lies there is whole; whoever reads it looks at its hash.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import secrets
from collections.abc import Container, Iterator, Set
from contextlib import suppress
from typing import TYPE_CHECKING

from groundwatch.archive.place import IMAGES, SWITCHED_OFF, local_folder
from groundwatch.errors import TransientError, UsageError
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores.images import images_in
from groundwatch.topology import OUTCOMES

if TYPE_CHECKING:
    from groundwatch.archive.events import Events
    from groundwatch.archive.store import Store

UNFINISHED = "unfinished"
"""Below the folder of images, in a local archive: what is being written."""

NAMING_BATCH = 256
"""Events that are held in memory while those are looked for that name an image."""


class DamagedImage(OSError):
    """What lies under an image's name has another hash."""


def archived_images(settings: ArchiveSettings) -> ArchivedImages | None:
    """The images of these settings' archive; None where they name none. Nothing is opened yet."""
    return ArchivedImages(settings) if settings.url not in ("", SWITCHED_OFF) else None


class ArchivedImages:
    """Images in the archive's place, for any number of processes.

    What it takes is loaded when it is first asked: most processes never are.
    """

    def __init__(self, settings: ArchiveSettings) -> None:
        self._settings = settings
        self._opened: Store | None = None
        self.folder = local_folder(settings.url)
        """Of an archive that is a folder, of this machine."""

    async def load(self, sha256: str) -> bytes | None:
        """The bytes; None where it is not there. Raises `TransientError` when nobody can tell."""
        try:
            return await asyncio.to_thread(self.get, sha256)
        except (OSError, UsageError) as error:
            # Settings or packages can be put right: the event that needs the image is not to blame.
            raise TransientError(f"cannot load image {sha256} from the archive: {error}") from error

    def get(self, sha256: str) -> bytes | None:
        """The same for a thread. Raises `OSError`, and `UsageError` for what must be put right."""
        if not self._is_here():
            return None
        name = f"{IMAGES}/{sha256}"
        if self.folder is not None and (self.folder / name).exists() and not (self.folder / name).is_file():
            raise DamagedImage(errno.EIO, f"image {sha256} of the archive is damaged: it is no file")
        try:
            with self._store.files.open_input_file(name) as file:
                data: bytes = file.readall()
        except FileNotFoundError:
            return None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise DamagedImage(errno.EIO, f"image {sha256} of the archive is damaged: another hash")
        return data

    def has(self, sha256: str) -> bool:
        """Whether it is there; its bytes are not looked at."""
        return self._is_here() and bool(self._store.files.get_file_info(f"{IMAGES}/{sha256}").is_file)

    def put(self, sha256: str, data: bytes) -> None:
        """Write it, durably. Raises `OSError`."""
        store, name = self._store, f"{IMAGES}/{sha256}"
        if store.folder is None:
            try:
                with store.files.open_output_stream(name) as file:
                    file.write(data)
            except BaseException:
                # The library may have stored what it had by then.
                with suppress(OSError):
                    store.delete([name])
                raise
            return
        store.prepare(f"{IMAGES}/{UNFINISHED}")
        unfinished = f"{IMAGES}/{UNFINISHED}/{sha256}-{secrets.token_hex(8)}"
        try:
            with store.files.open_output_stream(unfinished) as file:
                file.write(data)
            store.sync([unfinished])
            store.files.move(unfinished, name)
        except BaseException:
            store.delete([unfinished])
            raise
        store.sync([name], folders_only=True)

    def remove(self, sha256: str) -> bool:
        """Remove it, and what was left of a writing that broke off; tells whether it was there."""
        if not self._is_here():
            return False
        store, there = self._store, self.has(sha256)
        left = store.names(f"{IMAGES}/{UNFINISHED}") if store.folder is not None else []
        names = [name for name in left if name.rpartition("/")[2].startswith(sha256)]
        store.delete(gone := [f"{IMAGES}/{sha256}", *names])
        if there or names:
            store.sync(gone, folders_only=True)
        return there

    def stored_before(self, before: float) -> list[str]:
        """Images that were written before that time, in seconds since the epoch."""
        from pyarrow import fs

        if not self._is_here():
            return []
        found = self._store.files.get_file_info(fs.FileSelector(IMAGES, allow_not_found=True))
        return [one.base_name for one in found if one.is_file and (one.mtime_ns or 0) / 1e9 <= before]

    def _is_here(self) -> bool:
        """Whether a folder is on this machine: where it is not, no image has left the object store for it."""
        return self.folder is None or self.folder.is_dir()

    @property
    def _store(self) -> Store:
        if self._opened is None:
            # It takes a second to load, and memory.
            from groundwatch.archive.store import Store

            self._opened = Store(self._settings.url, self._settings.options)
        return self._opened


def named_in(events: Events, images: Set[str], keys: Container[str] = (), tenant: str = "") -> set[str]:
    """Those of these images that archived events name, without those of these responses or this tenant."""
    left = set(images)
    for data, own in _naming(events, keys, tenant) if left else ():
        if not own:
            left -= images_in(data)
        if not left:
            break
    return set(images) - left


def _naming(events: Events, keys: Container[str], tenant: str) -> Iterator[tuple[bytes, bool]]:
    """Every archived event that may name an image, and whether it is of these responses or this tenant."""
    from pyarrow import compute as pc
    from pyarrow import dataset as ds

    data = events.snapshot().dataset()
    if data is None:
        return
    scanner = data.scanner(
        columns=["key", "tenant", "data"],
        filter=~pc.starts_with(ds.field("stream"), OUTCOMES),
        batch_size=NAMING_BATCH,
        batch_readahead=0,
        fragment_readahead=0,
        use_threads=False,
    )
    for batch in scanner.to_batches():
        for key, owner, event in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield event, key in keys or (bool(tenant) and owner == tenant)
