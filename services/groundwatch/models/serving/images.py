"""Images as models want them: decoded within limits, upright, RGB."""

import io

from PIL import Image, ImageOps

from groundwatch.errors import InputError
from groundwatch.image_files import READERS, inspect
from groundwatch.models.serving.failures import Refused
from groundwatch.models.serving.parameters import Parameters


def decode(data: bytes, limits: Parameters) -> Image.Image:
    """The image, checked by what its file says of itself before it is decoded. Raises `Refused`."""
    try:
        inspect(data, max_bytes=limits.max_image_bytes, max_pixels=limits.max_image_pixels)
        with Image.open(io.BytesIO(data), formats=READERS) as opened:
            return ImageOps.exif_transpose(opened).convert("RGB")
    except InputError as error:
        raise Refused("unreadable_image", str(error)) from error
    except Exception as error:
        # Pillow's decoders raise whatever their format's parser raised.
        raise Refused("unreadable_image", f"the image cannot be decoded: {error}") from error


def decode_all(images: tuple[bytes, ...], limits: Parameters) -> list[Image.Image]:
    """All images of one question. Raises `Refused`, also when there are too many."""
    if len(images) > limits.max_images:
        raise Refused("judge_rejected_request", f"{len(images)} images; this model takes {limits.max_images}")
    return [decode(data, limits) for data in images]


def png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
