"""A process that decodes images which nobody has looked at yet: it may be ended at any moment.

It reads a request, the bounds and the bytes, from standard input, writes what it found to standard output,
and ends when its input does. A decoder in C cannot be interrupted: the system ends the process when one image
has taken its share of the processor.
"""

import resource
import signal
import struct
import sys
from typing import BinaryIO

import msgspec

from groundwatch.errors import InputError
from groundwatch.runtime.stores.image_decoding import decode

REQUEST = struct.Struct(">QQQd")
"""Length of the image, `max_image_bytes`, `max_image_pixels`, seconds of the processor."""

LENGTH = struct.Struct(">I")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker says of an image: what it is, or why it is none of ours."""

    media_type: str = ""
    width: int = 0
    height: int = 0
    error: str = ""


def _look(data: bytes, max_bytes: int, max_pixels: int) -> Found:
    try:
        file = decode(data, max_bytes=max_bytes, max_pixels=max_pixels)
    except InputError as error:
        return Found(error=str(error))
    return Found(media_type=file.media_type, width=file.width, height=file.height)


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer until there are no more requests."""
    while len(head := requests.read(REQUEST.size)) == REQUEST.size:
        length, max_bytes, max_pixels, seconds = REQUEST.unpack(head)
        data = requests.read(length)
        if len(data) < length:
            return
        # Time of the processor: a busy machine is not the image's fault.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        found = msgspec.json.encode(_look(data, max_bytes, max_pixels))
        signal.setitimer(signal.ITIMER_PROF, 0)
        del data
        replies.write(LENGTH.pack(len(found)) + found)
        replies.flush()


if __name__ == "__main__":
    # Whoever started us ends us; a Ctrl-C in the terminal is theirs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)
