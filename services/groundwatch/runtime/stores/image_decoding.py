"""Decoding an image to see whether it can be: apart from the store, so that a worker needs nothing else."""

import io

import msgspec
from PIL import Image, ImageFile

from groundwatch.errors import InputError
from groundwatch.image_files import READERS, inspect

MEDIA_TYPES: dict[str, str] = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """An image that a decoder has been through. Width and height in pixels."""

    media_type: str
    width: int
    height: int


def decode(data: bytes, *, max_bytes: int, max_pixels: int) -> Decoded:
    """Bytes, frames, scans and pixels are looked at before anything is decoded. Raises `InputError`."""
    file = inspect(data, max_bytes=max_bytes, max_pixels=max_pixels)
    # Pillow's bound is the process's; ours is what the file was just held to.
    Image.MAX_IMAGE_PIXELS = None
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        with Image.open(io.BytesIO(data), formats=READERS) as opened:
            if opened.size != (file.width, file.height):
                raise InputError("image cannot be decoded: it says two sizes")
            # A JPEG is decoded at an eighth of its size: enough to find it truncated, a 64th of the memory.
            opened.draft(None, (max(1, file.width // 8), max(1, file.height // 8)))
            opened.load()
    except InputError:
        raise
    except Exception as error:
        # Pillow's decoders raise whatever their format's parser raised.
        raise InputError(f"image cannot be decoded: {error}") from error
    return Decoded(media_type=MEDIA_TYPES[file.format], width=file.width, height=file.height)
