"""Images by content hash: checked at the door, stored once, fetched by whoever must look."""

import asyncio
import base64
import contextlib
import hashlib
import secrets
import time
from collections import OrderedDict
from datetime import UTC, datetime
from itertools import islice

import msgspec
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg
from nats.js.object_store import ObjectStore

from groundwatch.errors import TransientError
from groundwatch.runtime.delivery.publisher import WRONG_LAST_SEQUENCE
from groundwatch.runtime.delivery.streams import FAULTS
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


class ImageStore:
    """Images in NATS's object store, named by SHA-256.

    Retention removes images that nobody names, in another process. So that an image is there when somebody is
    told so, one that is used is marked as used now, at least every `FRESH_SECONDS`, and retention removes
    none that was used within a longer time. What was looked up is believed for `RECENT_SECONDS` only.
    """

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._store: ObjectStore | None = None
        self._recent: OrderedDict[str, float] = OrderedDict()

    def seen(self, sha256: str) -> bool:
        """Whether the image was there a moment ago: asks nobody, so False means nothing."""
        return time.monotonic() - self._recent.get(sha256, -RECENT_SECONDS) < RECENT_SECONDS

    def forget(self, sha256: str) -> None:
        """Believe no more that the image is stored: it was erased."""
        self._recent.pop(sha256, None)

    async def put(self, image: Image) -> bool:
        """Store it unless it is there; tells whether it was new."""
        if await self.has(image.sha256):
            return False
        piece = f"$O.{IMAGES_BUCKET}.C.{secrets.token_hex(16)}"
        try:
            for start in range(0, len(image.data), PIECE_BYTES):
                await self._js.publish(piece, image.data[start : start + PIECE_BYTES])
            # The object store's other clients leave a mark where they remove an object.
            before = await self._find(image.sha256)
            expected = before.seq or 0 if before is not None and _is_removed(before) else 0
            new = await self._write(image.sha256, _info(image, piece.rpartition(".")[2]), expected)
        except FAULTS as error:
            await self._drop(piece)
            raise TransientError(f"cannot store image {image.sha256}: {error!r}") from error
        if not new:
            # Somebody else was faster.
            await self._drop(piece)
        self._note(image.sha256)
        return new

    async def has(self, sha256: str) -> bool:
        """Whether the image is stored; it then stays, even if nobody names it yet."""
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
            raise TransientError(f"cannot look up image {sha256}: {error!r}") from error
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
        store = await self._bucket()
        try:
            data = (await store.get(sha256)).data or b""
        except nats.js.errors.NotFoundError as error:
            raise LookupError(sha256) from error
        except FAULTS as error:
            raise TransientError(f"cannot load image {sha256}: {error!r}") from error
        return data, await asyncio.to_thread(_media_type, data)

    async def _bucket(self) -> ObjectStore:
        if self._store is None:
            try:
                self._store = await self._js.object_store(IMAGES_BUCKET)
            except FAULTS as error:
                raise TransientError(f"no image store: {error!r}") from error
        return self._store


def image_subject(sha256: str) -> str:
    """Where the object store keeps what it knows of an image."""
    return f"$O.{IMAGES_BUCKET}.M.{base64.urlsafe_b64encode(sha256.encode()).decode()}"


def _is_removed(found: RawStreamMsg) -> bool:
    return bool(msgspec.json.decode(found.data or b"{}").get("deleted"))


def _info(image: Image, nuid: str) -> bytes:
    """What NATS's object store keeps of an object: its clients read it."""
    return msgspec.json.encode(
        {
            "name": image.sha256,
            "bucket": IMAGES_BUCKET,
            "nuid": nuid,
            "size": len(image.data),
            "chunks": -(-len(image.data) // PIECE_BYTES),
            "digest": f"SHA-256={base64.urlsafe_b64encode(hashlib.sha256(image.data).digest()).decode()}",
            "mtime": datetime.now(UTC).isoformat(),
            "options": {"max_chunk_size": PIECE_BYTES},
        }
    )


def _media_type(data: bytes) -> str:
    if data[:3] == b"\xff\xd8\xff":
        return "image/jpeg"
    return "image/png" if data[:4] == b"\x89PNG" else "image/webp"
