"""The color of what is in a box: of its inner part, without the color of what is around it."""

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

import msgspec
from PIL import Image

from groundwatch.errors import Unscorable
from groundwatch.events import Box
from groundwatch.image_files import READERS
from groundwatch.keys import digest
from groundwatch.orientation import upright

LARGEST = 1024
"""Pixels of the longer side at which colors are looked at."""

SIDE = 24
"""A crop is sampled on a grid of so many places to a side."""

INNER = 0.6
"""The share of a box's width and height in its middle whose pixels count: its corners are mostly no part."""

AROUND = 0.15
"""So far beyond the box, in shares of its width and height, lies what is around it."""

FILLED = 0.25
"""The least share of the inner part that must not have the color around the box."""

DOMINANT = 0.6
"""The least share of that which has one color."""

COLORLESS, PALE, DARK = 0.002, 39, 50
"""An image is gray with so small a share of pixels of so much saturation and value (HSV, up to 255)."""


class _Color(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    hue: tuple[float, float] = (0.0, 360.0)
    saturation: tuple[float, float] = (0.0, 1.0)
    value: tuple[float, float] = (0.0, 1.0)

    def holds(self, hue: float, saturation: float, value: float) -> bool:
        first, last = self.hue
        within = first <= hue <= last if first <= last else hue >= first or hue <= last
        low, high = self.saturation
        return within and low <= saturation <= high and self.value[0] <= value <= self.value[1]


class Palette:
    """Names of pixels. `digest` is of all that decides them."""

    def __init__(self, data: bytes) -> None:
        self.digest = digest(
            data.decode(), repr((SIDE, INNER, AROUND, FILLED, DOMINANT, COLORLESS, PALE, DARK))
        )[:12]
        self._colors = msgspec.toml.decode(data, type=dict[str, list[_Color]])["colors"]
        self.name = cache(self._name)

    def _name(self, pixel: tuple[int, int, int]) -> str:
        """The name of a pixel in HSV, each part from 0 to 255; empty for one that has none."""
        hue, saturation, value = pixel[0] * 360 / 255, pixel[1] / 255, pixel[2] / 255
        return next((one.name for one in self._colors if one.holds(hue, saturation, value)), "")


@cache
def palette() -> Palette:
    return Palette(resources.files(__package__ or "").joinpath("colors.toml").read_bytes())


class Photograph:
    """An image as colors are read off it: upright, and no larger than they need."""

    def __init__(self, data: bytes) -> None:
        """Raises `Unscorable` for what cannot be decoded."""
        try:
            with Image.open(io.BytesIO(data), formats=READERS) as opened:
                # This first: a photograph of 40 megapixels is decoded at a part of its size where it can be.
                opened.thumbnail((LARGEST, LARGEST), Image.Resampling.NEAREST)
                image = upright(opened).convert("RGB").convert("HSV")
        except Exception as error:
            # Pillow's decoders raise whatever their format's parser raised.
            raise Unscorable("unreadable_image", f"the image cannot be decoded: {error}") from error
        self._image = image
        _, saturation, value = image.split()
        # Of what is not dark: there the least noise is a color.
        counts = saturation.histogram(value.point(lambda one: 255 * (one > DARK)))
        self.gray = sum(counts[PALE:]) <= COLORLESS * image.width * image.height

    def color(self, box: Box) -> tuple[str, str]:
        """The color of what is in the box, empty where none dominates, and the color around it."""
        wide, high = box.x1 - box.x0, box.y1 - box.y0
        outer = (
            box.x0 - AROUND * wide,
            box.y0 - AROUND * high,
            box.x1 + AROUND * wide,
            box.y1 + AROUND * high,
        )
        edge = [
            pixel
            for at, pixel in enumerate(self._pixels(*(min(1.0, max(0.0, one)) for one in outer)))
            if not {at % SIDE, at // SIDE}.isdisjoint({0, SIDE - 1})
        ]
        around = _dominant(map(palette().name, edge))
        inset = (1 - INNER) / 2
        inside = self._pixels(
            box.x0 + inset * wide, box.y0 + inset * high, box.x1 - inset * wide, box.y1 - inset * high
        )
        left = [name for name in map(palette().name, inside) if name != around]
        return (_dominant(left) if len(left) >= FILLED * SIDE * SIDE else ""), around

    def _pixels(self, x0: float, y0: float, x1: float, y1: float) -> Sequence[tuple[int, int, int]]:
        width, height = self._image.size
        place = (x0 * width, y0 * height, x1 * width, y1 * height)
        sample = self._image.resize((SIDE, SIDE), Image.Resampling.NEAREST, box=place)
        data = sample.tobytes()
        return list(zip(data[::3], data[1::3], data[2::3], strict=True))


def _dominant(names: Iterator[str] | Sequence[str]) -> str:
    counts = Counter(names)
    ((name, number),) = counts.most_common(1) or [("", 0)]
    return name if number >= DOMINANT * counts.total() else ""
