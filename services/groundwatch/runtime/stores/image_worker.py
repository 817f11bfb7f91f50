"""Decoding an image to see whether it can be, and a process that does so: it may be ended at any moment.

The process reads a request, the bounds and the bytes, from standard input, writes what it found to standard
output, and ends when its input does. A decoder in C cannot be interrupted: the system ends the process when
one image has taken its share of the processor.
"""

import io
import resource
import signal
import struct
import sys
from typing import BinaryIO, Literal

import msgspec
from PIL import Image, ImageFile

from groundwatch.errors import ImageError
from groundwatch.image_files import READERS, inspect, media_type

REQUEST = struct.Struct(">QQQd")
"""Length of the image, `max_image_bytes`, `max_image_pixels`, seconds of the processor."""

LENGTH = struct.Struct(">I")
"""Of the reply: a `Decoded`, or a `Rejected`."""


class Decoded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An image that a decoder has been through. Width and height in pixels."""

    media_type: str
    width: int
    height: int


class Rejected(msgspec.Struct, frozen=True, tag=True):
    """Why it is none of ours, as `ImageError` has it."""

    message: str
    reason: Literal["image_format", "image_too_large", "image_unreadable"]


def decode(data: bytes, *, max_bytes: int, max_pixels: int) -> Decoded:
    """Bytes, frames, scans and pixels are looked at before anything is decoded. Raises `ImageError`."""
    file = inspect(data, max_bytes=max_bytes, max_pixels=max_pixels)
    # Pillow's bound is the process's; ours is what the file was just held to.
    Image.MAX_IMAGE_PIXELS = None
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        with Image.open(io.BytesIO(data), formats=READERS) as opened:
            if opened.size != (file.width, file.height):
                raise ImageError("image cannot be decoded: it says two sizes")
            # A JPEG is decoded at an eighth of its size: enough to find it truncated, a 64th of the memory.
            opened.draft(None, (max(1, file.width // 8), max(1, file.height // 8)))
            opened.load()
    except ImageError:
        raise
    except Exception as error:
        # Pillow's decoders raise whatever their format's parser raised.
        raise ImageError(f"image cannot be decoded: {error}") from error
    return Decoded(media_type=media_type(data), width=file.width, height=file.height)


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer until there are no more requests."""
    while len(head := requests.read(REQUEST.size)) == REQUEST.size:
        length, max_bytes, max_pixels, seconds = REQUEST.unpack(head)
        data = requests.read(length)
        if len(data) < length:
            return
        # Time of the processor: a busy machine is not the image's fault.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        found: Decoded | Rejected
        try:
            found = decode(data, max_bytes=max_bytes, max_pixels=max_pixels)
        except ImageError as error:
            found = Rejected(str(error), error.reason)
        reply = msgspec.json.encode(found)
        signal.setitimer(signal.ITIMER_PROF, 0)
        del data
        replies.write(LENGTH.pack(len(reply)) + reply)
        replies.flush()


if __name__ == "__main__":
    # Whoever started us ends us; a Ctrl-C in the terminal is theirs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)
