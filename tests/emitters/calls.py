"""The calls that every emitter's application makes; only the standard library, as in each environment."""

from __future__ import annotations

import base64
import dataclasses
import random
import struct
import zlib

MODEL = "gpt-4o-mini"
CLAUDE = "claude-sonnet-4-5"
GEMINI = "gemini-2.5-flash"
BEDROCK = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def png(red: int, green: int, blue: int, side: int = 32, *, noise: bool = False) -> bytes:
    """A square of one colour, or one of noise, whose file is large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes((red, green, blue)) * side) * side
    if noise:
        drawn = random.Random(red)
        rows = b"".join(b"\0" + drawn.randbytes(3 * side) for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows, 9)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def data_url(image: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(image).decode()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a model: `image` is a data URL, a URL, or empty."""

    prompt: str
    answer: str
    image: str = ""
    api: str = "chat"
    stream: bool = False


CALLS = {
    "data": Call(
        prompt="What stands beside the door?",
        answer="A green plant stands beside the red door.",
        image=data_url(png(200, 30, 30)),
    ),
    "url": Call(
        prompt="Which colour has the boat?",
        answer="The boat is blue.",
        image="https://images.example/boat.png",
    ),
    "stream": Call(
        prompt="What lies on the table?",
        answer="Two yellow lemons lie on the table.",
        image=data_url(png(220, 220, 40)),
        stream=True,
    ),
    "text": Call(prompt="How many legs has a spider?", answer="A spider has eight legs."),
    "responses": Call(
        prompt="Who sits on the bench?",
        answer="A grey cat sits on the bench.",
        image=data_url(png(128, 128, 128)),
        api="responses",
    ),
    "responses-stream": Call(
        prompt="What hangs on the wall?",
        answer="A round clock hangs on the wall.",
        image=data_url(png(250, 250, 250)),
        api="responses",
        stream=True,
    ),
    "large": Call(
        prompt="What is behind the fence?",
        answer="A brown horse stands behind the fence.",
        image=data_url(png(7, 7, 7, 160, noise=True)),
    ),
}
