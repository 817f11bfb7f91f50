"""Images as models want them: decoded within limits, upright, RGB."""

from __future__ import annotations

import io

from PIL import Image, ImageOps, UnidentifiedImageError

from groundwatch.models.serving.failures import Refused
from groundwatch.models.serving.parameters import Parameters

READERS = ("JPEG", "PNG", "WEBP")


def decode(data: bytes, limits: Parameters) -> Image.Image:
    """The image, checked for bytes and pixels before it is decoded. Raises `Refused`."""
    if not data:
        raise Refused("unreadable_image", "the image is empty")
    if len(data) > limits.max_image_bytes:
        raise Refused(
            "unreadable_image", f"the image of {len(data)} bytes is larger than {limits.max_image_bytes}"
        )
    try:
        with Image.open(io.BytesIO(data), formats=READERS) as opened:
            width, height = opened.size
            if width * height > limits.max_image_pixels:
                raise Refused(
                    "unreadable_image",
                    f"the image of {width}×{height} pixels is larger than {limits.max_image_pixels} pixels",
                )
            return ImageOps.exif_transpose(opened).convert("RGB")
    except Refused:
        raise
    except UnidentifiedImageError as error:
        raise Refused("unreadable_image", "not a JPEG, PNG or WebP image") from error
    except Exception as error:
        # Pillow's decoders raise whatever their format's parser raised.
        raise Refused("unreadable_image", f"the image cannot be decoded: {error}") from error


def decode_all(images: tuple[bytes, ...], limits: Parameters) -> list[Image.Image]:
    """All images of one question. Raises `Refused`, also when there are too many."""
    if len(images) > limits.max_images:
        raise Refused("judge_rejected_request", f"{len(images)} images; this model takes {limits.max_images}")
    return [decode(data, limits) for data in images]


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG."""
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
