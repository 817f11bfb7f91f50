"""Images by content hash: checked at the door, stored once, fetched by whoever must look."""

from __future__ import annotations

import asyncio
import hashlib
import io
import threading
import warnings
from typing import TYPE_CHECKING

import msgspec
import nats.errors
import nats.js.errors

from groundwatch.errors import InputError, TransientError
from groundwatch.topology import IMAGES_BUCKET

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.object_store import ObjectStore

    from groundwatch.runtime.settings import IntakeSettings

READERS = ("JPEG", "PNG", "WEBP")
"""The only readers ever opened: the rarer ones of an imaging library are where its holes have been."""

MEDIA_TYPES = {"JPEG": "image/jpeg", "MPO": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}
"""MPO is what phones write: a JPEG with previews behind it, which readers of JPEG never look at."""

_opening = threading.Lock()
"""Python's warning filters belong to the process, so only one thread may change them at a time."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A checked image. Width and height in pixels."""

    sha256: str
    media_type: str
    width: int
    height: int
    data: bytes


def check_image(data: bytes, limits: IntakeSettings) -> Image:
    """Check bytes, type, frames and pixels, in this order and before anything is decoded in full.

    Raises `InputError` that says what is wrong with it.
    """
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    if not data:
        raise InputError("image is empty")
    if len(data) > limits.max_image_bytes:
        raise InputError(f"image of {len(data)} bytes is larger than {limits.max_image_bytes}")
    try:
        with _opening, warnings.catch_warnings():
            warnings.simplefilter("error", Pillow.DecompressionBombWarning)
            opened = Pillow.open(io.BytesIO(data), formats=READERS)
        with opened:
            width, height = opened.size
            media_type = MEDIA_TYPES[opened.format or ""]
            if width * height > limits.max_image_pixels:
                raise InputError(
                    f"image of {width}×{height} pixels is larger than {limits.max_image_pixels} pixels"
                )
            if opened.format != "MPO" and getattr(opened, "n_frames", 1) > 1:
                raise InputError("image is animated; send a single frame")
            # A JPEG is decoded at an eighth of its size: enough to find it truncated, a 64th of the memory.
            opened.draft(None, (max(1, width // 8), max(1, height // 8)))
            opened.load()
    except InputError:
        raise
    except (UnidentifiedImageError, KeyError) as error:
        raise InputError("not a JPEG, PNG or WebP image") from error
    except (Pillow.DecompressionBombWarning, Pillow.DecompressionBombError) as error:
        raise InputError(f"image is larger than {limits.max_image_pixels} pixels") from error
    except Exception as error:
        # Pillow's decoders raise whatever their format's parser raised.
        raise InputError(f"image cannot be decoded: {error}") from error
    return Image(
        sha256=hashlib.sha256(data).hexdigest(), media_type=media_type, width=width, height=height, data=data
    )


class ImageStore:
    """Images in NATS's object store, named by SHA-256."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._store: ObjectStore | None = None
        self._known: set[str] = set()

    def seen(self, sha256: str) -> bool:
        """Whether this store has met the image before: asks nobody, so False means nothing."""
        return sha256 in self._known

    def forget(self, sha256: str) -> None:
        """Believe no more that the image is stored: it was erased."""
        self._known.discard(sha256)

    async def put(self, image: Image) -> bool:
        """Store it unless it is there; tells whether it was new."""
        if await self.has(image.sha256):
            return False
        store = await self._bucket()
        try:
            await store.put(image.sha256, image.data)
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            raise TransientError(f"cannot store image {image.sha256}: {error!r}") from error
        self._known.add(image.sha256)
        return True

    async def has(self, sha256: str) -> bool:
        """Whether the image is stored."""
        if sha256 in self._known:
            return True
        store = await self._bucket()
        try:
            await store.get_info(sha256)
        except nats.js.errors.NotFoundError:
            return False
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            raise TransientError(f"cannot look up image {sha256}: {error!r}") from error
        if len(self._known) > 100_000:
            self._known.clear()
        self._known.add(sha256)
        return True

    async def load(self, sha256: str) -> tuple[bytes, str]:
        """The bytes and media type. Raises `LookupError` when no such image is stored."""
        store = await self._bucket()
        try:
            data = (await store.get(sha256)).data or b""
        except nats.js.errors.NotFoundError as error:
            raise LookupError(sha256) from error
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            raise TransientError(f"cannot load image {sha256}: {error!r}") from error
        return data, await asyncio.to_thread(_media_type, data)

    async def _bucket(self) -> ObjectStore:
        if self._store is None:
            try:
                self._store = await self._js.object_store(IMAGES_BUCKET)
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
                raise TransientError(f"no image store: {error!r}") from error
        return self._store


def _media_type(data: bytes) -> str:
    if data[:3] == b"\xff\xd8\xff":
        return "image/jpeg"
    return "image/png" if data[:4] == b"\x89PNG" else "image/webp"
