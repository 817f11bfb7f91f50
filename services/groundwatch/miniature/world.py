"""Scenes of a few things on a plain ground: what is in an image is known exactly, because it was put there.

A scene has one to four things, each in a corner of its own, with a kind, a color and a size. Everything
comes from a seeded `random.Random`, so a scene is a number.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeAlias

import msgspec
from PIL import Image, ImageDraw

SIDE = 64
"""Pixels on either side of an image."""

KINDS = ("ball", "box", "star", "heart", "moon", "tree", "house", "boat")
COLORS: dict[str, tuple[int, int, int]] = {
    "red": (214, 40, 40),
    "green": (40, 165, 65),
    "blue": (45, 85, 220),
    "yellow": (238, 212, 40),
    "purple": (150, 60, 190),
    "orange": (245, 140, 30),
    "black": (32, 32, 36),
}
SIZES = {"small": 6, "large": 11}
"""Half the width in pixels, give or take one."""

PLACES = ("top left", "top right", "bottom left", "bottom right")
"""The corners in reading order; `PLACES[2 * row + column]`."""

GROUNDS = ((246, 246, 246), (226, 226, 232), (236, 230, 216), (222, 234, 226))
PARTNERS = {"tree": "house", "moon": "star", "boat": "box"}
"""Kinds that the biased split shows together: where the first is, the second nearly always is too."""

Box: TypeAlias = tuple[float, float, float, float]

JITTER = 3
SHADE = 14


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    color: str
    size: str
    place: str

    @property
    def column(self) -> int:
        """0 on the left, 1 on the right."""
        return PLACES.index(self.place) % 2

    @property
    def row(self) -> int:
        """0 at the top, 1 at the bottom."""
        return PLACES.index(self.place) // 2

    def changed(self, random: Random, attribute: str) -> Thing:
        """The same thing with another value of kind, color or size."""
        values = {"kind": KINDS, "color": tuple(COLORS), "size": tuple(SIZES)}[attribute]
        others = [value for value in values if value != getattr(self, attribute)]
        return msgspec.structs.replace(self, **{attribute: random.choice(others)})


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The things in reading order, and the seed that their image is drawn with."""

    things: tuple[Thing, ...]
    seed: int

    def of_kind(self, kind: str) -> tuple[Thing, ...]:
        """The things of a kind; all of them for "object"."""
        return tuple(thing for thing in self.things if kind in (thing.kind, "object"))


def scene(random: Random) -> Scene:
    """Draw a scene. Kinds and colors repeat in about every third, so that counting is needed."""
    number = random.randint(1, 4)
    places = sorted(random.sample(range(4), number))
    kinds: Sequence[str] = random.sample(KINDS, random.choice((1, 2))) if random.random() < 0.35 else KINDS
    names = tuple(COLORS)
    colors: Sequence[str] = random.sample(names, random.choice((1, 2))) if random.random() < 0.35 else names
    things = tuple(
        Thing(
            kind=random.choice(kinds),
            color=random.choice(colors),
            size=random.choice(tuple(SIZES)),
            place=PLACES[place],
        )
        for place in places
    )
    return Scene(things=things, seed=random.getrandbits(32))


def scenes(seed: int, *, apart: bool = False) -> Iterator[Scene]:
    """An endless stream of scenes; with `apart` only those that hold a kind without its partner."""
    random = Random(seed)
    while True:
        drawn = scene(random)
        if not apart or missing_partners(drawn):
            yield drawn


def missing_partners(shown: Scene) -> tuple[str, ...]:
    """The partners that the biased split would lead one to expect in a scene and that are not there."""
    kinds = {thing.kind for thing in shown.things}
    if len(shown.things) == len(PLACES):
        return ()
    return tuple(partner for kind, partner in PARTNERS.items() if kind in kinds and partner not in kinds)


def changed(shown: Scene, number: int, random: Random) -> Scene:
    """The scene with `number` attributes (kind, color or size of some thing) changed; same drawing seed."""
    slots = [(at, name) for at in range(len(shown.things)) for name in ("kind", "color", "size")]
    if number > len(slots):
        raise ValueError(f"a scene of {len(shown.things)} things has {len(slots)} attributes, not {number}")
    things = list(shown.things)
    for at, name in random.sample(slots, number):
        things[at] = things[at].changed(random, name)
    return Scene(things=tuple(things), seed=shown.seed)


def draw(shown: Scene, *, plain: bool = False) -> Image.Image:
    """The scene's image, RGB, `SIDE` by `SIDE`. Equal scenes give equal pixels.

    With `plain` every thing stands in the middle of its corner, in its color's own shade: what a generator
    learns from, whose prompts do not say where exactly a thing stands.
    """
    random = Random(shown.seed)
    ground = random.choice(GROUNDS)
    image = Image.new("RGB", (SIDE, SIDE), ground)
    pen = ImageDraw.Draw(image)
    placed = _placed(shown, random, plain=plain)
    shades = {place: [random.randint(-SHADE, SHADE) for _ in range(3)] for place in PLACES}
    for thing, (center, half_width) in zip(shown.things, placed, strict=True):
        red, green, blue = (
            max(0, min(255, value + (0 if plain else shade)))
            for value, shade in zip(COLORS[thing.color], shades[thing.place], strict=True)
        )
        _draw(pen, thing.kind, (red, green, blue), ground, center, half_width)
    return image


def boxes(shown: Scene) -> tuple[Box, ...]:
    """Where the pixels of each thing lie in the drawn scene: x0, y0, x1, y1 from 0 to 1 of its sides."""
    random = Random(shown.seed)
    random.choice(GROUNDS)  # As `draw` does first: the places come after it.
    found = []
    for thing, (center, half_width) in zip(shown.things, _placed(shown, random), strict=True):
        alone = Image.new("RGB", (SIDE, SIDE))
        _draw(ImageDraw.Draw(alone), thing.kind, (255, 255, 255), (0, 0, 0), center, half_width)
        x0, y0, x1, y1 = alone.getbbox() or (0, 0, 0, 0)
        found.append((x0 / SIDE, y0 / SIDE, x1 / SIDE, y1 / SIDE))
    return tuple(found)


def _placed(shown: Scene, random: Random, *, plain: bool = False) -> list[tuple[tuple[int, int], int]]:
    """The center and half the width of each thing, in pixels."""
    jitter = {
        place: (random.randint(-JITTER, JITTER), random.randint(-JITTER, JITTER), random.randint(-1, 1))
        for place in PLACES
    }
    half, found = SIDE // 4, []
    for thing in shown.things:
        x, y, grown = (0, 0, 0) if plain else jitter[thing.place]
        center = (half + 2 * half * thing.column + x, half + 2 * half * thing.row + y)
        found.append((center, SIZES[thing.size] + grown))
    return found


def png(shown: Scene) -> bytes:
    buffer = io.BytesIO()
    draw(shown).save(buffer, format="PNG")
    return buffer.getvalue()


def _draw(
    pen: ImageDraw.ImageDraw,
    kind: str,
    color: tuple[int, int, int],
    ground: tuple[int, int, int],
    center: tuple[int, int],
    r: int,
) -> None:
    x, y = center
    match kind:
        case "ball":
            pen.ellipse((x - r, y - r, x + r, y + r), fill=color)
        case "box":
            pen.rectangle((x - r, y - r, x + r, y + r), fill=color)
        case "star":
            points = []
            for corner in range(10):
                angle = -math.pi / 2 + corner * math.pi / 5
                reach = r * 1.15 if corner % 2 == 0 else r * 0.5
                points.append((x + reach * math.cos(angle), y + reach * math.sin(angle)))
            pen.polygon(points, fill=color)
        case "heart":
            lobe = r * 0.55
            for side in (-1, 1):
                middle = x + side * r * 0.5
                pen.ellipse((middle - lobe, y - r, middle + lobe, y - r + 2 * lobe), fill=color)
            pen.polygon([(x - r, y - r * 0.2), (x + r, y - r * 0.2), (x, y + r)], fill=color)
        case "moon":
            pen.ellipse((x - r, y - r, x + r, y + r), fill=color)
            pen.ellipse((x - r * 0.35, y - r * 1.1, x + r * 1.5, y + r * 0.75), fill=ground)
        case "tree":
            pen.polygon([(x, y - r), (x - r, y + r * 0.4), (x + r, y + r * 0.4)], fill=color)
            pen.rectangle((x - r * 0.2, y + r * 0.4, x + r * 0.2, y + r), fill=color)
        case "house":
            pen.polygon([(x, y - r), (x - r, y - r * 0.1), (x + r, y - r * 0.1)], fill=color)
            pen.rectangle((x - r * 0.75, y - r * 0.1, x + r * 0.75, y + r), fill=color)
        case "boat":
            pen.polygon(
                [(x - r, y + r * 0.35), (x + r, y + r * 0.35), (x + r * 0.55, y + r), (x - r * 0.55, y + r)],
                fill=color,
            )
            pen.polygon([(x, y - r), (x, y + r * 0.15), (x + r * 0.8, y + r * 0.15)], fill=color)
        case _:
            raise ValueError(f"no kind '{kind}'; known are {', '.join(KINDS)}")
