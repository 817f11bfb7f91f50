"""Small pictures of stored images, for lists: made beside the event loop, few at once, kept for a while."""

import asyncio
import io
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from PIL import Image, ImageOps

from groundwatch.errors import ImageError
from groundwatch.image_files import READERS, inspect
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.images import RECENT_SECONDS, ImageStore

SIDES = (224, 448)
"""Pixels of the longer side, as addresses ask for them."""

AT_ONCE = 2
WITHOUT_PALETTE = ("RGB", "RGBA", "L", "CMYK")
"""Modes whose pixels can be averaged as they are."""

KEPT = 2_000
"""Pictures that are kept, about 10 KB each, for `RECENT_SECONDS`: retention removes images."""


class Thumbnails:
    """Whole images, smaller; what is small already, or cannot be decoded, is as it is."""

    def __init__(self, store: ImageStore, limits: IntakeSettings) -> None:
        self._store = store
        self._limits = limits
        self._turns = asyncio.Semaphore(AT_ONCE)
        # Of its own, since a request that is given up leaves its turn, and its thread works on.
        self._threads = ThreadPoolExecutor(AT_ONCE, "thumbnails")
        self._kept: OrderedDict[tuple[str, int], tuple[float, tuple[bytes, str]]] = OrderedDict()
        self._forgotten = 0

    async def load(self, sha256: str, side: int) -> tuple[bytes, str]:
        """The bytes and media type. Raises what `ImageStore.load` raises."""
        kept = self._kept.get((sha256, side))
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        async with self._turns:
            forgotten = self._forgotten
            data, media_type = await self._store.load(sha256)
            small = await asyncio.get_running_loop().run_in_executor(self._threads, self._shrink, data, side)
        made = (small, "image/webp") if small is not None else (data, media_type)
        if small is not None and forgotten == self._forgotten:
            self._kept[sha256, side] = (time.monotonic() + RECENT_SECONDS, made)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return made

    def forget(self, sha256: str) -> None:
        """Keep nothing of an image: it was erased."""
        self._forgotten += 1
        for side in SIDES:
            self._kept.pop((sha256, side), None)

    def _shrink(self, data: bytes, side: int) -> bytes | None:
        limits = self._limits
        try:
            inspect(data, max_bytes=limits.max_image_bytes, max_pixels=limits.max_image_pixels)
            with Image.open(io.BytesIO(data), formats=READERS) as opened:
                if max(opened.size) <= side:
                    return None
                # `thumbnail` decodes a JPEG at a fraction of its size, and needs no copy of others in full.
                image = opened if opened.mode in WITHOUT_PALETTE else opened.convert("RGBA")
                image.thumbnail((side, side))
                ImageOps.exif_transpose(image, in_place=True)
                out = io.BytesIO()
                image.convert("RGBA" if image.mode == "RGBA" else "RGB").save(out, "WEBP", method=2)
        except (ImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None
        return out.getvalue()
