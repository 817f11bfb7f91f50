"""What an image file says of itself: complete, a single frame, within bounds; no decoder is asked."""

from __future__ import annotations

import base64
import contextlib
import io
import re
import struct
import textwrap
import time
import urllib.parse
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from groundwatch.errors import ImageError, InputError
from groundwatch.image_files import ImageFile, from_base64, inspect

BOUNDS = {"max_bytes": 10_000_000, "max_pixels": 40_000_000}


def encoded(kind: str, size: tuple[int, int] = (64, 48), mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.effect_noise(size, 80).convert(mode).save(out, kind, **options)
    return out.getvalue()


def scans(side: int, number: int) -> bytes:
    """A progressive JPEG whose last scan, of a few bytes, comes again and again."""
    out = io.BytesIO()
    Image.new("RGB", (side, side), 128).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    marks = [one.start() for one in re.finditer(rb"\xff\xda", data)]
    return data[:-2] + data[marks[-1] : -2] * (number - len(marks)) + data[-2:]


FILES = {
    "baseline": encoded("JPEG"),
    "progressive": encoded("JPEG", progressive=True),
    "restarts": encoded("JPEG", restart_marker_blocks=2),
    "grey": encoded("JPEG", mode="L"),
    "cmyk": encoded("JPEG", mode="CMYK"),
    "png": encoded("PNG"),
    "palette": encoded("PNG", mode="P"),
    "alpha": encoded("PNG", mode="RGBA"),
    "gif": encoded("GIF", mode="P"),
    "webp": encoded("WEBP"),
    "lossless": encoded("WEBP", lossless=True),
    "extended": encoded("WEBP", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0"),
}


@pytest.mark.parametrize("name", FILES)
def test_what_encoders_write_is_read(name: str) -> None:
    found = inspect(FILES[name], **BOUNDS)
    assert (found.width, found.height) == (64, 48)
    assert found.scans == {"progressive": 10}.get(name, 1)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_anywhere_is_refused(name: str) -> None:
    data = FILES[name]
    for length in (*range(len(data) - 40, len(data)), *range(1, len(data) - 40, 97)):
        with pytest.raises(InputError):
            inspect(data[:length], **BOUNDS)


@pytest.mark.parametrize("name", FILES)
def test_what_stands_behind_the_end_is_not_looked_at(name: str) -> None:
    assert inspect(FILES[name] + b"\xff\xda and a film" * 100, **BOUNDS) == inspect(FILES[name], **BOUNDS)


def test_a_png_with_a_changed_byte_is_refused() -> None:
    data = bytearray(FILES["png"])
    data[len(data) // 2] ^= 1
    with pytest.raises(InputError, match="another checksum"):
        inspect(bytes(data), **BOUNDS)


def test_scans_are_counted_and_bounded_by_pixels() -> None:
    assert inspect(scans(64, 500), **BOUNDS).scans == 500
    with pytest.raises(InputError, match="4000×4000 pixels has 41 scans"):
        inspect(scans(4_000, 41), **BOUNDS)
    assert inspect(scans(4_000, 40), **BOUNDS) == ImageFile(
        format="JPEG", width=4_000, height=4_000, scans=40
    )


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xd8" + b"\xff\xe0\x00\x02" * 2_000_000,
        b"\xff\xd8" + b"\xff" * 9_000_000,
        b"\xff\xd8\xff\xda\x00\x02" + b"\xff\x00" * 4_000_000,
        b"\xff\xd8" + b"\xff\xc0\x00\x00" * 2_000_000,
        b"\x89PNG\r\n\x1a\n" + chunk(b"tEXt", b"") * 800_000,
        b"GIF89a" + b"\1\0\1\0\0\0\0" + b"!\xfe\1x" * 2_000_000,
        b"RIFF" + struct.pack("<I", 9_000_004) + b"WEBP" + b"EXIF\0\0\0\0" * 1_125_000,
    ],
    ids=["segments", "fill", "stuffing", "no lengths", "chunks", "blocks", "riff"],
)
def test_a_file_made_to_keep_its_reader_busy_does_not(data: bytes) -> None:
    began = time.process_time()
    with pytest.raises(InputError):
        inspect(data, **BOUNDS)
    assert time.process_time() - began < 5.0


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(sorted(FILES)), st.binary(max_size=40), st.integers(0, 10_000))
def test_any_bytes_are_read_or_refused(name: str, noise: bytes, at: int) -> None:
    data = FILES[name]
    at %= len(data)
    try:
        inspect(data[:at] + noise + data[at + len(noise) :], **BOUNDS)
    except InputError as error:
        assert "\n" not in str(error)


HEAD = "data:image/png;base64,"
WRITTEN = {
    "plain": lambda text: text,
    "no padding": lambda text: text.rstrip("="),
    "lines": lambda text: "\r\n".join(textwrap.wrap(text, 76)),
    "indented": lambda text: "\n  ".join(textwrap.wrap(text, 64)) + "\n",
    "folded": lambda text: " ".join(textwrap.wrap(text, 76)),
    "for URLs": lambda text: text.replace("+", "-").replace("/", "_"),
    "percent-coded": urllib.parse.quote,
    "form": lambda text: text.replace("+", " "),
    "data URL": lambda text: HEAD + text,
    "without a type": lambda text: f"data:;base64,{text}",
    "two prefixes": lambda text: HEAD + HEAD + text,
    "Python's bytes": lambda text: f"{HEAD}{text.encode()!r}",
    "Python's bytes of lines": lambda text: repr(base64.encodebytes(base64.b64decode(text))),
    "quoted": lambda text: f'"{text}"',
    "escaped twice": lambda text: text.replace("/", "\\/"),
}


@pytest.mark.parametrize("how", WRITTEN)
@settings(deadline=None, max_examples=60)
@given(data=st.binary(min_size=300, max_size=2_000))
def test_base64_is_read_however_it_was_written(how: str, data: bytes) -> None:
    text = base64.b64encode(data).decode()
    if how == "form" and (text.count("+") < 3 or text.strip("+") != text):
        return  # A single one might as well be the end of a line, and one at an end nobody sees.
    assert from_base64(WRITTEN[how](text)) == data


@pytest.mark.parametrize("text", ["***", "é", "a", "[base64_data truncated: 98 KB]", "AAAA=AAAA", "\ud800"])
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(ImageError, match="not base64"):
        from_base64(text)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_base64_or_refused(text: str) -> None:
    with contextlib.suppress(ImageError):
        from_base64(text)
