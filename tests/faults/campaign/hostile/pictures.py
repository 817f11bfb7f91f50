"""Images that are cut, flipped, larger than they look, slower than they look, or something else as well."""

from __future__ import annotations

import io
import random
import struct
import zlib
from typing import Literal

from PIL import Image

Must = Literal["refuse", "either"]


def picture(chance: random.Random) -> tuple[str, bytes, Must]:
    """What is wrong with it, its bytes, and whether it must be refused."""
    kind = chance.choice(tuple(_KINDS))
    made = _KINDS[kind](chance)
    return (kind, *made)


def good(chance: random.Random, format: str = "") -> bytes:
    """An image that is taken."""
    return _save(_noise(chance), format or chance.choice(("PNG", "JPEG", "WEBP", "GIF")))


def _noise(chance: random.Random) -> Image.Image:
    size = chance.randint(2, 80), chance.randint(2, 80)
    return Image.frombytes("RGB", size, chance.randbytes(size[0] * size[1] * 3))


def _save(image: Image.Image, format: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width: int, height: int, packed: bytes, *more: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + b"".join(more)
        + _chunk(b"IDAT", packed)
        + _chunk(b"IEND", b"")
    )


def _cut(chance: random.Random) -> tuple[bytes, Must]:
    data = good(chance, "PNG")
    return data[: chance.randrange(1, len(data))], "refuse"


def _cut_other(chance: random.Random) -> tuple[bytes, Must]:
    data = good(chance, chance.choice(("JPEG", "WEBP")))
    return data[: chance.randrange(1, len(data))], "either"


def _flipped(chance: random.Random) -> tuple[bytes, Must]:
    data = bytearray(good(chance))
    for _ in range(chance.randint(1, 20)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data), "either"


def _bomb(chance: random.Random) -> tuple[bytes, Must]:
    side = chance.choice((7_000, 30_000, 2**31 - 1))
    return _png(side, side, zlib.compress(bytes(10_000_000), 9)), "refuse"


def _text_bomb(_: random.Random) -> tuple[bytes, Must]:
    text = _chunk(b"zTXt", b"Comment\x00\x00" + zlib.compress(bytes(80_000_000), 9))
    return _png(1, 1, zlib.compress(b"\x00\x80\x80\x80"), text), "either"


def _profile_bomb(_: random.Random) -> tuple[bytes, Must]:
    profile = _chunk(b"iCCP", b"x\x00\x00" + zlib.compress(bytes(80_000_000), 9))
    return _png(1, 1, zlib.compress(b"\x00\x80\x80\x80"), profile), "either"


def _many_scans(chance: random.Random) -> tuple[bytes, Must]:
    """A progressive JPEG whose last scan comes again and again."""
    image = Image.effect_noise((chance.choice((500, 2_000)),) * 2, 50).convert("RGB")
    data = _save(image.resize((1_500, 1_500)), "JPEG", progressive=True, quality=20)
    last = data.rindex(b"\xff\xda")
    scan = data[last:-2]
    times = min(4_000, 1_000_000 // max(1, len(scan)))
    return data[:-2] + scan * times + b"\xff\xd9", "either"


def _empty_scans(_: random.Random) -> tuple[bytes, Must]:
    """The same with scans that hold nothing: small, and as slow as their number."""
    image = Image.new("RGB", (3_000, 3_000), (9, 9, 9))
    data = _save(image, "JPEG", progressive=True, quality=5)
    at = data.rindex(b"\xff\xda")
    length = struct.unpack(">H", data[at + 2 : at + 4])[0]
    scan = data[at : at + 2 + length]
    return data[:-2] + scan * 3_000 + b"\xff\xd9", "either"


def _moving(chance: random.Random) -> tuple[bytes, Must]:
    frames = [Image.frombytes("RGB", (8, 8), chance.randbytes(192)) for _ in range(3)]
    format = chance.choice(("GIF", "PNG", "WEBP"))
    # Of a GIF the first frame is what is looked at.
    must: Must = "either" if format == "GIF" else "refuse"
    return _save(frames[0], format, save_all=True, append_images=frames[1:]), must


def _other_format(chance: random.Random) -> tuple[bytes, Must]:
    return _save(_noise(chance), chance.choice(("BMP", "TIFF", "PPM", "ICO", "TGA"))), "refuse"


def _no_image(chance: random.Random) -> tuple[bytes, Must]:
    whole = (
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"%!PS-Adobe\n(/etc/passwd) run",
        b"%PDF-1.4",
        b"\x7fELF",
        b"",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff\xe0",
        b"RIFF\xff\xff\xff\xffWEBPVP8 ",
        chance.randbytes(500),
    )
    return chance.choice(whole), "refuse"


def _polyglot(chance: random.Random) -> tuple[bytes, Must]:
    tail = (b"PK\x05\x06" + bytes(18), b"<html><script>alert(1)</script>", chance.randbytes(300))
    return good(chance) + chance.choice(tail), "either"


def _huge_claim(chance: random.Random) -> tuple[bytes, Must]:
    width, height = chance.choice(((1, 2**31 - 1), (2**31 - 1, 1), (0, 0), (40_000_001, 1)))
    return _png(width, height, zlib.compress(b"\x00\x80\x80\x80")), "refuse"


_KINDS = {
    "cut PNG": _cut,
    "cut": _cut_other,
    "flipped": _flipped,
    "bomb": _bomb,
    "text bomb": _text_bomb,
    "profile bomb": _profile_bomb,
    "many scans": _many_scans,
    "empty scans": _empty_scans,
    "moving": _moving,
    "other format": _other_format,
    "no image": _no_image,
    "polyglot": _polyglot,
    "huge claim": _huge_claim,
}
