"""Image files: how they are read, and what they say of themselves. JPEG, PNG, WebP and GIF, and no other.

What is judged does not choose what a command reads: a name leads into a folder that the user named and
nowhere else, to a regular file, and no more of it is read than an image may have.

A decoder's time and memory are decided by what stands here: pixels, scans, chunks. So these are bounded
before any decoder sees the bytes, at the gateway and wherever else bytes become pixels.
"""

import base64
import os
import re
import stat
import struct
import urllib.parse
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from groundwatch.errors import ImageError, InputError

Format = Literal["JPEG", "PNG", "WEBP", "GIF"]

READERS: tuple[Format, ...] = ("JPEG", "PNG", "WEBP", "GIF")
"""The only readers ever opened: the rarer ones of an imaging library are where its holes have been."""

SCANS = 16
"""A JPEG's scans times its pixels are at most as many as those of so many scans of the largest image."""

MOST_PARTS = 65_536
"""Segments or chunks of a file: encoders write one for some thousand bytes."""

_MAGIC = (
    (rb"\xff\xd8", "JPEG"),
    (rb"\x89PNG\r\n\x1a\n", "PNG"),
    (rb"RIFF.{4}WEBP", "WEBP"),
    (rb"GIF8[79]a", "GIF"),
)
_OTHERS = (
    (rb".{4}ftyp(hei[cmsx]|hev[cx]|mif1|msf1)", "HEIC"),
    (rb".{4}ftypavi[fs]", "AVIF"),
    (rb".{4}ftyp|\x1aE\xdf\xa3", "a video"),
    (rb"\xff\x0a|\0{3}\x0cJXL ", "JPEG XL"),
    (rb"II\*\0|MM\0\*", "TIFF"),
    (rb"BM", "BMP"),
    (rb"\0\0\x01\0", "ICO"),
    (rb"%PDF", "PDF"),
    (rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?(<!DOCTYPE svg[^>]*>\s*)?<svg", "SVG"),
    (rb"\s*<", "a page or XML"),
)
"""How files of other formats begin."""

_BEFORE = re.compile(r"\s*(?:data:[^,]{0,200},|b?['\"])", re.IGNORECASE)
_URL_SAFE = str.maketrans("-_", "+/")
_MARKER = re.compile(rb"\xff[^\x00\xff]", re.DOTALL)
_AFTER_DATA = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)
_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_SOI, _EOI, _SOS, _TEM = 0xD8, 0xD9, 0xDA, 0x01
_ANIMATION = 0x02
_FRAME, _EXTENSION = 0x2C, 0x21
_HEAD = 1_000
_CAREFULLY = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


class ImageFile(msgspec.Struct, frozen=True, kw_only=True):
    """What it says of itself. Width and height in pixels; only a JPEG can have more than one scan."""

    format: Format
    width: int
    height: int
    scans: int = 1


def media_type(data: bytes) -> str:
    """Of one of our formats, by how the file begins; empty for any other."""
    found = _begins(data, _MAGIC)
    return f"image/{found.lower()}" if found else ""


def inspect(data: bytes, *, max_bytes: int, max_pixels: int) -> ImageFile:
    """Read what the file says of itself: it is complete, a single frame, and within bounds. Of a GIF this is
    about the first frame, and no other is ever read.

    Bytes behind its end are not looked at: phones write previews and films there. Raises `ImageError`.
    """
    if not data:
        raise ImageError("image is empty")
    if len(data) > max_bytes:
        raise ImageError(f"image of {len(data)} bytes is larger than {max_bytes}", "image_too_large")
    try:
        match _begins(data, _MAGIC):
            case "JPEG":
                found = _jpeg(data)
            case "PNG":
                found = _png(data)
            case "WEBP":
                found = _webp(data)
            case "GIF":
                found = _gif(data)
            case _:
                other = _begins(data, _OTHERS)
                but = f" but {other}: convert it" if other else ""
                raise ImageError(f"not a JPEG, PNG, WebP or GIF image{but}", "image_format")
    except (struct.error, IndexError) as error:
        raise ImageError("image is cut off: its end is missing") from error
    if not (found.width and found.height):
        raise ImageError("image has no pixels")
    if found.width * found.height > max_pixels:
        raise ImageError(
            f"image of {found.width}×{found.height} pixels is larger than {max_pixels} pixels",
            "image_too_large",
        )
    if found.width * found.height * found.scans > SCANS * max_pixels:
        raise ImageError(
            f"image of {found.width}×{found.height} pixels has {found.scans} scans: send it with fewer, "
            "or as a baseline JPEG",
            "image_too_large",
        )
    return found


def _begins(data: bytes, with_what: tuple[tuple[bytes, str], ...]) -> str:
    head = data[:_HEAD]
    return next((name for begins, name in with_what if re.match(begins, head, re.DOTALL)), "")


def _jpeg(data: bytes) -> ImageFile:
    at, size, scans = 2, None, 0
    for _ in range(MOST_PARTS):
        marker = _MARKER.search(data, at)
        if marker is None:
            raise ImageError("image is cut off: its end is missing")
        kind, at = data[marker.end() - 1], marker.end()
        if kind == _EOI:
            break
        if kind in (_SOI, _TEM) or 0xD0 <= kind <= 0xD7:
            continue
        (length,) = struct.unpack_from(">H", data, at)
        if kind in _SIZES and size is None:
            height, width = struct.unpack_from(">HH", data, at + 3)
            size = width, height
        at += length
        if kind == _SOS:
            scans += 1
            behind = _AFTER_DATA.search(data, at)
            at = len(data) if behind is None else behind.start()
    else:
        raise ImageError(f"image has more than {MOST_PARTS} segments")
    if size is None or not scans:
        raise ImageError("image has no pixels")
    return ImageFile(format="JPEG", width=size[0], height=size[1], scans=scans)


def _png(data: bytes) -> ImageFile:
    at, size, frames = 8, None, 1
    for _ in range(MOST_PARTS):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = at + 8
        (checksum,) = struct.unpack_from(">I", data, body + length)
        if zlib.crc32(memoryview(data)[at + 4 : body + length]) != checksum:
            raise ImageError(f"image is damaged: its chunk {kind!r} at byte {at} has another checksum")
        if kind == b"IHDR" and size is None:
            size = struct.unpack_from(">II", data, body)
        elif kind == b"acTL" and length >= 4:
            (frames,) = struct.unpack_from(">I", data, body)
        at = body + length + 4
        if kind == b"IEND":
            break
    else:
        raise ImageError(f"image has more than {MOST_PARTS} chunks")
    if frames > 1:
        raise ImageError("image is animated; send a single frame", "image_format")
    if size is None:
        raise ImageError("image has no pixels")
    return ImageFile(format="PNG", width=size[0], height=size[1])


def _webp(data: bytes) -> ImageFile:
    (riff,) = struct.unpack_from("<I", data, 4)
    if riff + 8 > len(data):
        raise ImageError("image is cut off: its end is missing")
    at, end, sizes = 12, riff + 8, [(0, 0)]
    for _ in range(MOST_PARTS):
        if at >= end:
            break
        kind, length = struct.unpack_from("<4sI", data, at)
        body = at + 8
        if body + length > end:
            raise ImageError("image is cut off: its end is missing")
        match kind:
            case b"VP8X":
                if data[body] & _ANIMATION:
                    raise ImageError("image is animated; send a single frame", "image_format")
                wide, high = (int.from_bytes(data[body + i : body + i + 3], "little") + 1 for i in (4, 7))
                sizes.append((wide, high))
            case b"ANIM" | b"ANMF":
                raise ImageError("image is animated; send a single frame", "image_format")
            case b"VP8 ":
                wide, high = struct.unpack_from("<HH", data, body + 6)
                sizes.append((wide & 0x3FFF, high & 0x3FFF))
            case b"VP8L":
                (bits,) = struct.unpack_from("<I", data, body + 1)
                sizes.append(((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1))
        at = body + length + (length & 1)
    else:
        raise ImageError(f"image has more than {MOST_PARTS} chunks")
    width, height = max(sizes, key=lambda size: size[0] * size[1])
    return ImageFile(format="WEBP", width=width, height=height)


def _gif(data: bytes) -> ImageFile:
    """Up to the end of its first frame: a decoder reads no further."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at, framed, parts = 13 + _colors(flags), False, iter(range(MOST_PARTS))
    for _ in parts:
        kind, at = data[at], at + 1
        if framed:
            return ImageFile(format="GIF", width=width, height=height)
        if kind == _FRAME:
            left, top, wide, high, flags = struct.unpack_from("<4HB", data, at)
            width, height, framed = max(width, left + wide), max(height, top + high), True
            at += 9 + _colors(flags)
        elif kind != _EXTENSION:
            raise ImageError("image has no pixels")
        at += 1
        while (length := data[at]) and next(parts, None) is not None:
            at += 1 + length
        at += 1
    raise ImageError(f"image has more than {MOST_PARTS} blocks")


def _colors(flags: int) -> int:
    """Bytes of the table of colors that such flags announce."""
    return 3 * 2 ** (flags % 8 + 1) if flags & 0x80 else 0


def from_base64(text: str) -> bytes:
    """The bytes of an image, however its base64 came: unpadded, for URLs, percent-coded, on lines, with
    spaces for plus signs, in quotation marks or as Python writes bytes, as a data URL, also of a data URL.

    Raises `ImageError`.
    """
    at = 0
    while before := _BEFORE.match(text, at):
        at = before.end()
    text = text[at:].rstrip("'\" \t\r\n")
    if "%" in text:
        text = urllib.parse.unquote(text)
    if "\\" in text:
        text = text.replace("\\n", "").replace("\\r", "").replace("\\/", "/")
    pieces = "".join(line.strip() for line in text.splitlines()).split(" ")
    # Lines that were joined by spaces are of one length.
    folded = len({len(piece) for piece in pieces[:-1]}) == 1 and len(pieces[0]) % 4 == 0
    text = ("" if folded else "+").join(pieces).translate(_URL_SAFE).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise ImageError(f"not base64: {error}") from error


class ImageFolders:
    """Folders that images are read from, by links within them too.

    A name is relative to the first of them that has such a file.
    """

    def __init__(self, folders: Sequence[Path], *, max_bytes: int) -> None:
        self._folders = folders
        self._real = [os.path.realpath(folder) for folder in folders]
        self._max_bytes = max_bytes

    def find(self, name: str) -> Path:
        """Where the name leads, also one of Windows. Raises `InputError` where that is out of the folders."""
        inside: list[str] = []
        if "\\" in name and not any(os.path.lexists(base / name) for base in self._folders):
            name = name.replace("\\", "/")
        for base in self._folders:
            try:
                real = os.path.realpath(base / name)
            except (OSError, ValueError) as error:
                raise InputError(f"{name[:300]} is no name of a file ({error})") from error
            if any(os.path.commonpath([folder, real]) == folder for folder in self._real):
                inside.append(real)
        if not inside:
            raise InputError(
                f"{name[:300]} leads out of {self._folders[0]}: only images there are read, and in "
                "folders that are named for images"
            )
        return Path(next(filter(os.path.lexists, inside), inside[0]))

    def read(self, name: str) -> bytes:
        """The bytes of the image. Raises `InputError`; `FileNotFoundError` where there is no such file."""
        return read_image_file(self.find(name), max_bytes=self._max_bytes)


def read_image_file(path: Path, *, max_bytes: int) -> bytes:
    """The bytes of a regular file of at most so many. Raises `InputError`, and `FileNotFoundError`."""
    try:
        # Whatever is at this path by now, opening it waits for nobody, and what was opened is looked at.
        opened = os.open(path, _CAREFULLY)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({getattr(error, 'strerror', error)})") from error
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode):
        os.close(opened)
        raise InputError(f"{path} is no regular file")
    with os.fdopen(opened, "rb") as file:
        if found.st_size > max_bytes:
            raise InputError(f"{path} of {found.st_size} bytes is larger than {max_bytes}")
        try:
            data = file.read(max_bytes + 1)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from error
    if len(data) > max_bytes:
        raise InputError(f"{path} is larger than {max_bytes} bytes")
    return data
