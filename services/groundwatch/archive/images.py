"""Images in the archive's place, and on their way there: copied before the events that name them, and out of
the object store when they are no longer hot.

An image lies at `images/<sha256>` below the archive's address. It is written under another name first, so
that what lies there is whole; whoever reads it looks at its hash.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Container, Iterable, Iterator, Sequence, Set
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

import msgspec

from groundwatch.archive.place import IMAGES, SWITCHED_OFF, local_folder
from groundwatch.errors import TransientError, UsageError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.direct import overwrite
from groundwatch.runtime.delivery.streams import Read, read_stream
from groundwatch.runtime.delivery.unanswered import consumers_of, done_up_to, filters_of
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores import images
from groundwatch.runtime.stores.images import ImageStore, StoredImage, images_in, stored_images
from groundwatch.runtime.stores.tombstones import tombstones
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ASKED, DAY, EXTRACTED, OUTCOMES, RESPONSES, RETRY
from groundwatch.topology.partitions import streams_of_kind

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

    wanted = ~pc.starts_with(ds.field("stream"), OUTCOMES)
    for batch in events.snapshot().scan(["key", "tenant", "data"], wanted, NAMING_BATCH):
        for key, owner, event in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield event, key in keys or (bool(tenant) and owner == tenant)


AT_ONCE = 8
"""Images that are held in memory at once."""

COPIED_SECONDS = 300.0
COPIED_MOST = 50_000
"""For how long an image that was copied is believed to be there, and how many are remembered."""

TOGETHER = 20_000
"""Old images that are looked for together in what is in work."""

LOOKED_AT = (RETRY, ASKED, RESPONSES, EXTRACTED)
"""Streams whose stages look at images, or send on to one that does."""


class Cooled(msgspec.Struct, kw_only=True):
    """A round: images that left the object store, and old ones that are needed, or used again, or damaged."""

    removed: int = 0
    kept: int = 0


class ImageCooling:
    """Copies images to the archive's place, and removes them from the object store when they are old."""

    def __init__(self, bus: Bus, settings: ArchiveSettings, metrics: Metrics) -> None:
        self._bus = bus
        self._settings = settings
        self._cold = ArchivedImages(settings)
        self._hot = ImageStore(bus.js)
        self._counter = metrics.archive_images
        self._copied: OrderedDict[str, float] = OrderedDict()
        self._free = asyncio.Semaphore(AT_ONCE)
        self._swept = False

    async def copy(self, reads: Iterable[Read]) -> None:
        """Have in the archive what these events name; returns when it is there.

        Raises `TransientError`, `OSError` and `UsageError`. An image that was erased meanwhile is left out.
        """
        now = time.monotonic()
        names = set[str]()
        for read in reads:
            names |= images_in(read.data)
        wanted = [one for one in names if now - self._copied.get(one, -COPIED_SECONDS) >= COPIED_SECONDS]
        await _all(*(self._copy(one) for one in sorted(wanted)))

    async def _copy(self, sha256: str) -> None:
        async with self._free:
            if not await asyncio.to_thread(self._cold.has, sha256) and not await self._copy_anew(sha256):
                return
        self._copied[sha256] = time.monotonic()
        while len(self._copied) > COPIED_MOST:
            self._copied.popitem(last=False)

    async def _copy_anew(self, sha256: str) -> bool:
        """Copy it, whatever lies there; whether it was there to be copied, and stays."""
        stored = await self._hot.stored(sha256)
        data = await self._load(stored) if stored is not None else None
        if stored is None or data is None:
            # It may have left between the question whether it is cold and this one.
            if await asyncio.to_thread(self._cold.has, sha256):
                return True
            self._counter.labels("missing").inc()
            return False
        if hashlib.sha256(data).hexdigest() != sha256:
            self._counter.labels("damaged").inc()
            logger.error("archive.image_damaged", sha256=sha256, meaning="it stays where it is")
            return False
        await asyncio.to_thread(self._cold.put, sha256, data)
        if await self._hot.stored(sha256) is None and await self._was_erased(stored):
            # An erasure looks into the archive last, but may have done so before this copy was there.
            await asyncio.to_thread(self._cold.remove, sha256)
            self._counter.labels("missing").inc()
            return False
        self._counter.labels("copied").inc()
        return True

    async def _load(self, image: StoredImage) -> bytes | None:
        """Its bytes, none where its pieces are gone: what cannot come back must keep nothing up."""
        try:
            return await self._hot.load_hot(image.sha256)
        except TransientError:
            if await images.pieces_of(self._bus.js, image.nuid):
                raise
            return b""

    async def _was_erased(self, image: StoredImage) -> bool:
        """Whether it is gone by an erasure, and not because it was copied and old."""
        async for stone in tombstones(self._bus.js):
            if image.sha256 in stone.images and (stone.kind == "image" or stone.at >= image.time):
                return True
        return False

    async def cool(self) -> Cooled:
        """Remove from the object store what was used last before the hot window, and is in the archive.

        An image that an event in work names stays, and so does one that is used at this moment: it was marked
        anew, and what is removed is what was read. Raises what NATS and the archive raise; what had left by
        then was in the archive.
        """
        hot = max(self._settings.hot_days * DAY, images.GRACE_SECONDS)
        before = time.time() - hot
        if not self._swept:
            await images.drop_orphans(self._bus.js, before)
            self._swept = True
        cooled = Cooled()
        start = 1
        while True:
            old: list[StoredImage] = []
            async with aclosing(stored_images(self._bus.js, before, start)) as reading:
                async for one in reading:
                    old.append(one)
                    if len(old) == TOGETHER:
                        break
            await self._cool(old, cooled)
            if len(old) < TOGETHER:
                return cooled
            start = old[-1].sequence + 1

    async def _cool(self, old: Sequence[StoredImage], cooled: Cooled) -> None:
        needed = await needed_in_work(self._bus, {one.sha256 for one in old})

        async def leave(one: StoredImage) -> None:
            async with self._free:
                if one.sha256 in needed or not await self._leave(one):
                    cooled.kept += 1
                else:
                    cooled.removed += 1
                    self._counter.labels("cooled").inc()

        await _all(*(leave(one) for one in old))

    async def _leave(self, one: StoredImage) -> bool:
        """Remove an image from the object store, if it is whole in the archive; whether it is gone."""
        if not await self._is_archived(one.sha256):
            await self._copy_anew(one.sha256)
            if not await self._is_archived(one.sha256):
                return False
        if not await overwrite(self._bus.js, images.IMAGES_STREAM, (one.sequence,)):
            return False
        # Overwritten and not purged: an erasure of it must not have to look for what is left of it here.
        await images.drop_pieces(self._bus.js, one.nuid)
        return True

    async def _is_archived(self, sha256: str) -> bool:
        try:
            return await asyncio.to_thread(self._cold.get, sha256) is not None
        except DamagedImage as error:
            logger.error("archive.copy_damaged", sha256=sha256, error=str(error), meaning="it is copied anew")
            return False


async def needed_in_work(bus: Bus, names: Set[str]) -> set[str]:
    """Those of these images that an event names which a stage has yet to acknowledge.

    A stage publishes before it acknowledges. So where all positions are asked for first, what moves on
    meanwhile lies behind the position of its next stage.
    """
    needed = set[str]()
    if not names:
        return needed
    in_work = [
        (stream, subject, done_up_to(info) + 1)
        for kind in LOOKED_AT
        for stream in streams_of_kind(kind, bus.partitions)
        for info in await consumers_of(bus.js, stream)
        for subject in filters_of(info)
    ]
    for stream, subject, start in in_work:
        async for read in read_stream(bus.js, stream, subjects=(subject,), start_sequence=start):
            needed |= names & images_in(read.data)
    return needed


async def _all(*work: Awaitable[None]) -> None:
    """Do all of it, then raise the first fault."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
