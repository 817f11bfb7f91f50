"""A captioner, a generator and an encoder that need no model, and engines of them.

They close the circle of a chain. The captioner names the colours of a grid of cells, the generator paints
the cells that a text names, the encoder compares pixels. All are deterministic, and the captioner overlooks
the last coloured cell that it sees, so that every round loses something and no two rounds are alike.
"""

import io
import math
import re
from collections.abc import Sequence

from groundwatch.captioning.engines import CaptioningEngine, Turn
from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Judge, Usage
from groundwatch.generation.engines import GenerationEngine, Vector
from groundwatch.models.engines import attempt
from groundwatch.models.replies import Generated, Text

CAPTIONING = f"{__name__}:StandInCaptioningEngine"
GENERATION = f"{__name__}:StandInGenerationEngine"
"""As settings name them."""

GRID = 4
SIDE = 64
"""Pixels of a painted image's edge."""

BACKGROUND = "grey"
PALETTE = {
    BACKGROUND: (128, 128, 128),
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "red": (220, 30, 30),
    "green": (30, 160, 60),
    "blue": (30, 60, 220),
    "yellow": (240, 220, 40),
    "orange": (250, 140, 20),
    "purple": (130, 40, 160),
    "pink": (250, 150, 190),
    "brown": (120, 70, 30),
}
CELL = re.compile(r"row (\d), column (\d) is (\w+)")


def describe(data: bytes) -> str:
    cells = [
        (place, name)
        for place, pixel in enumerate(_pixels(data, GRID))
        if (name := min(PALETTE, key=lambda color: math.dist(PALETTE[color], pixel))) != BACKGROUND
    ]
    told = [
        f"The cell in row {place // GRID + 1}, column {place % GRID + 1} is {name}."
        for place, name in cells[:-1]
    ]
    return " ".join(told) or f"Everything is {BACKGROUND}."


def paint(text: str) -> bytes:
    from PIL import Image

    small = Image.new("RGB", (GRID, GRID), PALETTE[BACKGROUND])
    for row, column, name in CELL.findall(text):
        place = (int(column) - 1, int(row) - 1)
        if name in PALETTE and all(0 <= at < GRID for at in place):
            small.putpixel(place, PALETTE[name])
    out = io.BytesIO()
    small.resize((SIDE, SIDE), Image.Resampling.NEAREST).save(out, "PNG")
    return out.getvalue()


def embed(data: bytes) -> tuple[float, ...]:
    """What the encoder sees of an image: a vector that is never zero.

    Raises `Unscorable` for bytes that are no image.
    """
    seen = [(channel - 128) / 128 for pixel in _pixels(data, 2 * GRID) for channel in pixel]
    return (1.0, *seen)


def _pixels(data: bytes, side: int) -> list[tuple[int, int, int]]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as opened:
            small = opened.convert("RGB").resize((side, side), Image.Resampling.BOX)
    except OSError as error:
        raise Unscorable("unreadable_image", "not a JPEG, PNG or WebP image") from error
    raw = small.tobytes()
    return [(raw[at], raw[at + 1], raw[at + 2]) for at in range(0, len(raw), 3)]


class StandInCaptioningEngine(CaptioningEngine):
    """Describes each image as `describe` does; without one, it counts the words."""

    batch = 50

    def judge(self, model: str, prompt: str) -> Judge:
        return Judge(engine="stand-in", prompt=prompt)

    async def say(self, turns: Sequence[Turn]) -> Sequence[Text | GroundwatchError]:
        return [attempt(_say, turn) for turn in turns]


def _say(turn: Turn) -> Text:
    seen = " ".join(describe(data) for data, _ in turn.images)
    text = seen or f"I was given {len(turn.text.split())} words and no image."
    return Text(text=text, usage=Usage(calls=1))


class StandInGenerationEngine(GenerationEngine):
    """Paints the cells that a description names and sees pixels, as `paint` and `embed` do."""

    batch = 50

    def judge(self, prompt: str) -> Judge:
        return Judge(engine="stand-in", prompt=prompt)

    async def generate(self, prompts: Sequence[str]) -> Sequence[Generated | GroundwatchError]:
        return [Generated(image=paint(prompt), usage=Usage(calls=1)) for prompt in prompts]

    async def encode(self, images: Sequence[bytes]) -> Sequence[Vector | GroundwatchError]:
        return [attempt(embed, image) for image in images]
