"""Images by content hash: checked at the door, stored once, fetched by whoever must look."""

import asyncio
import base64
import contextlib
import hashlib
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Protocol

import msgspec
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.object_store import ObjectStore

from groundwatch.errors import TransientError, words
from groundwatch.image_files import media_type
from groundwatch.runtime.delivery.direct import overwrite, sequences_on
from groundwatch.runtime.delivery.publisher import WRONG_LAST_SEQUENCE
from groundwatch.runtime.delivery.streams import FAULTS, read_stream
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.image_worker import Decoded, decode
from groundwatch.topology import HEADER_EXPECT_SEQUENCE, IMAGES_BUCKET

IMAGES_STREAM = f"OBJ_{IMAGES_BUCKET}"

FRESH_SECONDS = 3_600.0
"""An image that is used is marked so when it was last marked so long ago."""

RECENT_SECONDS = 300.0
RECENT_MOST = 50_000
"""For how long an image that was seen is believed to be there, and how many are remembered."""

GRACE_SECONDS = 2 * FRESH_SECONDS
"""Retention removes no image that was marked as used within this time."""

PIECE_BYTES = 128 * 1024

LOAD_SECONDS = 30.0
"""After which an image's pieces are believed to be gone: the client library would wait for them for ever."""

_NAMED = re.compile(rb'"images":\[((?:"[0-9a-f]{64}",?)+)\]|"image":"([0-9a-f]{64})"')


class Image(Decoded, frozen=True, kw_only=True):
    """A checked image."""

    sha256: str
    data: bytes


def check_image(data: bytes, limits: IntakeSettings) -> Image:
    """Check what the file says of itself, then decode it, here: what strangers send goes to `ImageChecks`.

    Raises `InputError` that says what is wrong with it.
    """
    return image_of(data, decode(data, max_bytes=limits.max_image_bytes, max_pixels=limits.max_image_pixels))


def image_of(data: bytes, found: Decoded) -> Image:
    return Image(sha256=hashlib.sha256(data).hexdigest(), data=data, **msgspec.structs.asdict(found))


def images_in(data: bytes) -> set[str]:
    """Every image that an event names."""
    found = set()
    for several, one in _NAMED.findall(data):
        found |= {each.strip(b'"').decode() for each in several.split(b",") if each} | (
            {one.decode()} if one else set()
        )
    return found


class StoredImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image of the object store: the message that says so, when it was last used, and its pieces' name."""

    sha256: str
    sequence: int
    time: float
    nuid: str


async def stored_images(
    js: JetStreamContext, before: float = math.inf, start_sequence: int = 1
) -> AsyncGenerator[StoredImage]:
    """Images of the object store, those first that were used longest ago; up to those used after `before`."""
    reading = read_stream(
        js, IMAGES_STREAM, subjects=(f"$O.{IMAGES_BUCKET}.M.>",), start_sequence=start_sequence
    )
    async with contextlib.aclosing(reading):
        async for read in reading:
            if read.time > before:
                return
            one = _stored(read.data, read.sequence, read.time)
            if one is not None:
                yield one


async def without_image(js: JetStreamContext, nuids: Iterable[str]) -> set[str]:
    """Those of these names of pieces that no image has any more.

    One that is used while this looks is marked anew, behind where the looking ends: the second time it is
    seen, since it is not marked again so soon.
    """
    left = set(nuids)
    for _ in range(2):
        if left:
            left -= {one.nuid async for one in stored_images(js)}
    return left


async def pieces_of(js: JetStreamContext, nuid: str) -> list[int]:
    """Where the pieces of an image are in the object store's stream."""
    return await sequences_on(js, IMAGES_STREAM, f"$O.{IMAGES_BUCKET}.C.{nuid}")


async def drop_pieces(js: JetStreamContext, nuid: str) -> None:
    await overwrite(js, IMAGES_STREAM, await pieces_of(js, nuid))


async def drop_orphans(js: JetStreamContext, before: float) -> None:
    """Remove pieces of no image that were stored before then: those of who was killed between an image and
    its pieces, or was not the first to store it."""
    latest: dict[str, float] = {}
    reading = read_stream(js, IMAGES_STREAM, subjects=(f"$O.{IMAGES_BUCKET}.C.>",), headers_only=True)
    async with contextlib.aclosing(reading):
        async for read in reading:
            latest[read.subject.rpartition(".")[2]] = read.time
    for nuid in await without_image(js, [nuid for nuid, at in latest.items() if at <= before]):
        await drop_pieces(js, nuid)


def _stored(said: bytes, sequence: int, at: float) -> StoredImage | None:
    info = msgspec.json.decode(said)
    if info.get("deleted"):
        return None
    return StoredImage(sha256=info["name"], sequence=sequence, time=at, nuid=info["nuid"])


class ColdImages(Protocol):
    """Where images lie that have left the object store."""

    async def load(self, sha256: str) -> bytes | None:
        """The bytes; None where it is not there. Raises `TransientError` when nobody can tell."""
        ...


class ImageStore:
    """Images in NATS's object store, named by SHA-256; those that have left it are in `cold`.

    Retention removes images that nobody names, in another process. So that an image is there when somebody is
    told so, one that is used is marked as used now, at least every `FRESH_SECONDS`, and retention removes
    none that was used within a longer time. What was looked up is believed for `RECENT_SECONDS` only.
    """

    def __init__(self, js: JetStreamContext, cold: ColdImages | None = None) -> None:
        self._js = js
        self._cold = cold
        self._store: ObjectStore | None = None
        self._recent: OrderedDict[str, float] = OrderedDict()

    def seen(self, sha256: str) -> bool:
        """Whether the image was there a moment ago: asks nobody, so False means nothing."""
        return time.monotonic() - self._recent.get(sha256, -RECENT_SECONDS) < RECENT_SECONDS

    def forget(self, sha256: str) -> None:
        """Believe no more that the image is stored: it was erased."""
        self._recent.pop(sha256, None)

    async def put(self, image: Image) -> bool:
        """Store it unless it is in the object store; tells whether it was new there."""
        if await self._in_use(image.sha256):
            return False
        return await self._put(image.sha256, image.data)

    async def _put(self, sha256: str, data: bytes) -> bool:
        piece = f"$O.{IMAGES_BUCKET}.C.{secrets.token_hex(16)}"
        try:
            for start in range(0, len(data), PIECE_BYTES):
                await self._js.publish(piece, data[start : start + PIECE_BYTES])
            # The object store's other clients leave a mark where they remove an object.
            before = await self._find(sha256)
            expected = before.seq or 0 if before is not None and _is_removed(before) else 0
            new = await self._write(
                sha256, object_info(IMAGES_BUCKET, sha256, piece.rpartition(".")[2], data), expected
            )
        except FAULTS as error:
            await self._drop(piece)
            raise TransientError(f"cannot store image {sha256}: {words(error)}") from error
        if not new:
            # Somebody else was faster.
            await self._drop(piece)
        self._note(sha256)
        return new

    async def has(self, sha256: str) -> bool:
        """Whether the image is stored; it then stays, even if nobody names it yet.

        One that has left the object store is put back: whoever names it now will soon look at it.
        """
        if await self._in_use(sha256):
            return True
        data = await self._cold.load(sha256) if self._cold is not None else None
        if data is None:
            return False
        await self._put(sha256, data)
        return True

    async def _in_use(self, sha256: str) -> bool:
        """Whether the object store has it, which then is marked as used."""
        if self.seen(sha256):
            return True
        try:
            while True:
                found = await self._find(sha256)
                if found is None or _is_removed(found):
                    return False
                stored = found.time.timestamp() if found.time is not None else 0.0
                if time.time() - stored < FRESH_SECONDS:
                    break
                # Written again as it is, it is new. Where that fails, it was removed or used meanwhile.
                if await self._write(sha256, found.data or b"", found.seq or 0):
                    break
        except FAULTS as error:
            raise TransientError(f"cannot look up image {sha256}: {words(error)}") from error
        self._note(sha256)
        return True

    async def _find(self, sha256: str) -> RawStreamMsg | None:
        try:
            return await self._js.get_last_msg(IMAGES_STREAM, image_subject(sha256))
        except nats.js.errors.NotFoundError:
            await self._bucket()
            return None

    def _note(self, sha256: str) -> None:
        self._recent.pop(sha256, None)
        self._recent[sha256] = time.monotonic()
        for oldest in list(islice(self._recent, 2)):
            # At most one comes at a time, so two that go are enough.
            if len(self._recent) > RECENT_MOST or not self.seen(oldest):
                del self._recent[oldest]

    async def _write(self, sha256: str, info: bytes, expected: int) -> bool:
        """Say where the image's pieces are, unless somebody has said so after sequence `expected`."""
        headers = {HEADER_EXPECT_SEQUENCE: str(expected), "Nats-Rollup": "sub"}
        try:
            await self._js.publish(image_subject(sha256), info, headers=headers)
        except nats.js.errors.APIError as error:
            if error.err_code == WRONG_LAST_SEQUENCE:
                return False
            raise
        return True

    async def _drop(self, piece: str) -> None:
        """Remove pieces that no image needs; what stays, retention finds."""
        with contextlib.suppress(*FAULTS):
            await self._js.purge_stream(IMAGES_STREAM, subject=piece)

    async def load(self, sha256: str) -> tuple[bytes, str]:
        """The bytes and media type. Raises `LookupError` when no such image is stored."""
        data = await self.load_hot(sha256)
        if data is None and self._cold is not None:
            data = await self._cold.load(sha256)
        if data is None:
            raise LookupError(sha256)
        return data, await asyncio.to_thread(media_type, data)

    async def load_hot(self, sha256: str) -> bytes | None:
        """The bytes that the object store has; None where it has not."""
        store = await self._bucket()
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                return (await store.get(sha256)).data or b""
        except nats.js.errors.NotFoundError:
            return None
        except FAULTS as error:
            # Its pieces may have gone while they were read.
            with contextlib.suppress(TransientError):
                if await self.stored(sha256) is None:
                    return None
            raise TransientError(f"cannot load image {sha256}: {words(error)}") from error

    async def stored(self, sha256: str) -> StoredImage | None:
        """What the object store knows of it, None where it has it not; that is no use of it."""
        try:
            found = await self._find(sha256)
        except FAULTS as error:
            raise TransientError(f"cannot look up image {sha256}: {words(error)}") from error
        if found is None:
            return None
        at = found.time.timestamp() if found.time is not None else 0.0
        return _stored(found.data or b"", found.seq or 0, at)

    async def _bucket(self) -> ObjectStore:
        if self._store is None:
            try:
                self._store = await self._js.object_store(IMAGES_BUCKET)
            except FAULTS as error:
                raise TransientError(f"no image store: {words(error)}") from error
        return self._store


def image_subject(sha256: str) -> str:
    """Where the object store keeps what it knows of an image."""
    return f"$O.{IMAGES_BUCKET}.M.{base64.urlsafe_b64encode(sha256.encode()).decode()}"


def _is_removed(found: RawStreamMsg) -> bool:
    return bool(msgspec.json.decode(found.data or b"{}").get("deleted"))


def object_info(bucket: str, name: str, nuid: str, data: bytes) -> bytes:
    """What NATS's object store keeps of an object whose pieces are called `nuid`: its clients read it."""
    return msgspec.json.encode(
        {
            "name": name,
            "bucket": bucket,
            "nuid": nuid,
            "size": len(data),
            "chunks": -(-len(data) // PIECE_BYTES),
            "digest": object_digest(hashlib.sha256(data).digest()),
            "mtime": datetime.now(UTC).isoformat(),
            "options": {"max_chunk_size": PIECE_BYTES},
        }
    )


def object_digest(sha256: bytes) -> str:
    return f"SHA-256={base64.urlsafe_b64encode(sha256).decode()}"
