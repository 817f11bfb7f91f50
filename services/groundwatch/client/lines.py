"""What was recorded, made into lines for the gateway, in the sending thread; images in slices.

Between two slices the thread lets go of the interpreter's lock, so that no thread of the application waits
for the encoding of a large image.
"""

from __future__ import annotations

import binascii
import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

SLICE = 48 * 1024
"""Bytes of an image that are encoded at once; a multiple of three, as base64 needs."""

LONGEST_SCHEME = 16
"""Characters in which an address has its `://`; no data URL and no hash has one."""

MAX_FILE = 20 * 1024 * 1024
MAX_RAW = 48 * 1024 * 1024
"""Bytes of a picture's pixels that are copied while the application waits: 12 megapixels. One of more is left
out as `image_too_large`."""

MAX_TEXT = 2_000_000
"""Characters of a prompt or an answer that are sent: far more than any gateway takes, and no line's end."""

_ENCODER = msgspec.json.Encoder(enc_hook=str)


class CannotSend(Exception):
    """What was recorded cannot be made a line; `reason` is what it is counted as."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Line(msgspec.Struct, kw_only=True):
    """One response. `head` is its JSON object without images, `size` what it takes of the buffer.

    `left_out` are reasons for which a part of a logged call is not there; None for what is no logged call.
    `unconfirmed`: it was sent and may be recorded, since no answer has told.
    """

    id: str
    head: bytes
    tenant: str = ""
    images: tuple[str | bytes, ...] = ()
    left_out: tuple[str, ...] | None = None
    size: int = 0
    unconfirmed: bool = False

    @property
    def length(self) -> int:
        return len(self.head) + sum(map(len, self.images))

    @property
    def may_shrink(self) -> bool:
        """Whether it is a logged call that can do without its images."""
        return bool(self.images) and self.left_out is not None

    def without_images(self) -> Line:
        left_out = (*(self.left_out or ()), *("image_too_large" for _ in self.images))
        return msgspec.structs.replace(self, images=(), left_out=left_out)


def make_line(
    *,
    id: str,
    model: Any,
    answer: Any,
    prompt: Any = "",
    images: Sequence[Any] = (),
    tags: Mapping[str, Any] | None = None,
    tenant: str = "",
    left_out: Sequence[str] = (),
    **others: Any,
) -> Line:
    """The line of a logged call: what cannot be sent of it is left out by its reason.

    Raises `CannotSend` for what is no response.
    """
    if not isinstance(model, str) or not model:
        raise CannotSend("unreadable", "it names no model")
    if not isinstance(answer, str) or not isinstance(prompt, str):
        raise CannotSend("unreadable", "its answer or prompt is no text")
    missing = list(left_out)
    record: dict[str, Any] = {"id": id, "model": model}
    for field, text in (("prompt", prompt), ("answer", answer)):
        if len(text) > MAX_TEXT:
            missing.append(f"{field}_too_long")
        record[field] = text[:MAX_TEXT]
    if tags:
        record["tags"] = {str(name): str(value) for name, value in tags.items()}
    record |= {name: value for name, value in {"tenant": tenant, **others}.items() if value}
    encodable: list[str | bytes] = []
    try:
        for image in images:
            try:
                encodable.append(_encodable(image))
            except CannotSend as error:
                missing.append(error.reason)
        head = _encoded(record)
        return Line(id=id, head=head, tenant=tenant, images=tuple(encodable), left_out=tuple(missing))
    except Exception as error:
        raise CannotSend("unreadable", repr(error)) from error


def body(lines: Sequence[Line]) -> Iterator[bytes]:
    """The lines as NDJSON, in pieces."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        for piece in _pieces(line):
            held.append(piece)
            size += len(piece)
            if size >= SLICE:
                yield b"".join(held)
                held, size = [], 0
        breathe()
    if held:
        yield b"".join(held)


def breathe() -> None:
    """Let another thread go on that waits for the interpreter's lock."""
    time.sleep(0)


def _pieces(line: Line) -> Iterator[bytes]:
    if line.left_out is None and not line.images:
        yield line.head + b"\n"
        return
    yield line.head[:-1]
    if line.left_out is not None:
        yield b',"left_out":' + _ENCODER.encode(line.left_out)
    if not line.images:
        yield b"}\n"
        return
    yield b',"images":['
    for number, image in enumerate(line.images):
        comma = b"," if number else b""
        opening, closing = _around(image)
        yield comma + opening
        for start in range(0, len(image), SLICE):
            part = image[start : start + SLICE]
            if isinstance(part, str):
                yield _ENCODER.encode(part)[1:-1]
            else:
                yield binascii.b2a_base64(part, newline=False)
            breathe()
        yield closing
    yield b"]}\n"


def _around(image: str | bytes) -> tuple[bytes, bytes]:
    """What stands before and behind an image in JSON: a data URL and a hash are texts of their own."""
    if isinstance(image, bytes):
        return b'{"base64":"', b'"}'
    return (b'{"url":"', b'"}') if "://" in image[:LONGEST_SCHEME] else (b'"', b'"')


def _encoded(record: dict[str, Any]) -> bytes:
    try:
        return _ENCODER.encode(record)
    except UnicodeEncodeError:
        # Half a character, as a stream that is cut may leave it.
        texts = {name: value for name, value in record.items() if isinstance(value, str)}
        return _ENCODER.encode(record | {name: _mended(text) for name, text in texts.items()})


def _mended(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _encodable(image: Any) -> str | bytes:
    """Its bytes, or the text that names it or holds it in base64. Raises `CannotSend`."""
    if image is _TOO_LARGE:
        raise CannotSend("image_too_large", f"a picture is larger than {MAX_RAW} bytes, or its file")
    if isinstance(image, str | bytes):
        if isinstance(image, str) and not image.isascii():
            raise CannotSend("unknown_placeholder", "an image's text is neither a data URL nor an address")
        return image
    try:
        if isinstance(image, os.PathLike):
            path = Path(image)
            if path.stat().st_size > MAX_FILE:
                raise CannotSend("image_too_large", f"the file of an image is larger than {MAX_FILE} bytes")
            return path.read_bytes()
        return _png(image)
    except CannotSend:
        raise
    except Exception as error:
        raise CannotSend("image_unreadable", f"an image cannot be read: {error!r}") from error


def _png(image: Any) -> bytes:
    """A picture of Pillow's, or an array that Pillow makes one of."""
    if hasattr(image, "__array_interface__") and not hasattr(image, "save"):
        from PIL import Image

        image = Image.fromarray(image)
    if image.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        image = image.convert("RGB")
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


def held(image: Any) -> tuple[int, Any]:
    """An image as it is kept until it is encoded, with its size: copied where the caller may change it.

    Raises `TypeError` for what is no image.
    """
    kind = type(image)
    if kind is bytes or kind is str:
        return len(image), image
    if isinstance(image, bytearray | memoryview):
        data = bytes(image)
        return len(data), data
    if isinstance(image, str | bytes | os.PathLike):
        return len(str(image)), image
    if hasattr(image, "getbands"):
        if (file := _unread(image)) is not None:
            return (len(file), file) if len(file) <= MAX_FILE else (0, _TOO_LARGE)
        size = image.width * image.height * (1 if image.mode in _BYTES else 4)
    elif hasattr(image, "__array_interface__"):
        size = int(image.nbytes)
    else:
        raise TypeError(f"an image is bytes, text, a path or a picture, not {kind.__name__}")
    return (size, image.copy()) if size <= MAX_RAW else (0, _TOO_LARGE)


_TOO_LARGE = object()
"""Stands for a picture that is not copied."""

_BYTES = frozenset(("1", "L", "P"))
"""Modes of Pillow's with a byte for each pixel; all others take four."""

_SENT = frozenset(("JPEG", "MPO", "PNG", "GIF"))
"""Formats whose file a gateway takes, and which Pillow reads no sooner than the pixels are asked for."""


def _unread(picture: Any) -> bytes | None:
    """The file of a picture that was opened and not read yet; to decode it would be the caller's time."""
    file = getattr(picture, "fp", None)
    if file is None or not getattr(picture, "tile", None) or picture.format not in _SENT or picture.tell():
        return None
    at = file.tell()
    try:
        file.seek(0)
        return bytes(file.read(MAX_FILE + 1))
    finally:
        file.seek(at)
