"""The color of what is in a box, read off real image files."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image, ImageDraw

from groundwatch.errors import Unscorable
from groundwatch.events import Box
from groundwatch.verification.engines.detector import LARGEST, Photograph

RED, BLUE, GREEN, BROWN, GRAY = (200, 30, 40), (40, 80, 210), (40, 160, 70), (120, 70, 30), (128, 128, 128)
BOX = Box(x0=0.25, y0=0.25, x1=0.75, y1=0.75, score=0.9, label="ball")


def ball(fill: Any, ground: Any = "white", *, mode: str = "RGB", side: int = 80) -> Image.Image:
    image = Image.new("RGB", (side, side), ground)
    ImageDraw.Draw(image).ellipse((side // 4, side // 4, 3 * side // 4, 3 * side // 4), fill=fill)
    return image.convert(mode)


def photograph(image: Image.Image, kind: str = "PNG", **options: Any) -> Photograph:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return Photograph(out.getvalue())


@pytest.mark.parametrize(
    ("fill", "name"),
    [
        (RED, "red"),
        (BLUE, "blue"),
        (GREEN, "green"),
        (BROWN, "brown"),
        (GRAY, "gray"),
        ((20, 20, 25), "black"),
        ((240, 215, 40), "yellow"),
        ((245, 140, 30), "orange"),
        ((150, 60, 190), "purple"),
        ((250, 160, 190), "pink"),
    ],
)
def test_colors_have_names(fill: tuple[int, int, int], name: str) -> None:
    assert photograph(ball(fill)).color(BOX) == (name, "white")
    assert photograph(ball(fill), "WEBP", lossless=True).color(BOX) == (name, "white")


def test_what_is_around_it_is_not_its_color() -> None:
    assert photograph(ball("white", BLUE)).color(BOX) == ("white", "blue")
    assert photograph(ball(BLUE, BLUE)).color(BOX) == ("", "blue")


def test_no_color_of_several_dominates() -> None:
    image = ball("white", GRAY)
    for at, fill in enumerate((RED, BLUE, GREEN, BROWN)):
        ImageDraw.Draw(image).rectangle((20 + 10 * at, 20, 30 + 10 * at, 60), fill=fill)
    assert photograph(image).color(BOX) == ("", "gray")


def test_a_palette_is_no_hindrance_and_gray_images_are_told() -> None:
    assert photograph(ball(RED, mode="P")).color(BOX)[0] == "red"
    assert photograph(ball(RED, mode="RGBA")).color(BOX)[0] == "red"
    assert not photograph(ball(RED, side=800)).gray
    for mode in ("L", "LA", "1"):
        assert photograph(ball(RED, mode=mode)).gray, mode
    assert photograph(ball(RED, mode="L").convert("RGB"), "JPEG").gray


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_are_of_the_upright_image(orientation: int) -> None:
    image = Image.new("RGB", (120, 60), "white")
    pen = ImageDraw.Draw(image)
    pen.rectangle((10, 10, 40, 40), fill=RED)
    pen.rectangle((80, 10, 110, 40), fill=BLUE)
    turn = Image.Transpose
    stored = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_90,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_270,
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = image.transpose(stored[orientation]) if orientation in stored else image
    shown = photograph(turned, "JPEG", exif=exif, quality=95)
    found = [
        shown.color(Box(x0=x0 / 120, y0=10 / 60, x1=x1 / 120, y1=40 / 60, score=0.9, label="box"))[0]
        for x0, x1 in ((10, 40), (80, 110))
    ]
    assert found == ["red", "blue"]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_photograph_of_40_megapixels(kind: str) -> None:
    image = Image.new("RGB", (8000, 5000), "white")
    ImageDraw.Draw(image).ellipse((2000, 1250, 6000, 3750), fill=RED)
    shown = photograph(image, kind, **({"compress_level": 1} if kind == "PNG" else {"quality": 50}))
    assert max(shown._image.size) <= LARGEST
    assert shown.color(BOX) == ("red", "white")


def test_boxes_may_be_a_pixel_or_all_of_it() -> None:
    shown = photograph(ball(RED))
    tiny = Box(x0=0.5, y0=0.5, x1=0.5 + 1e-6, y1=0.5 + 1e-6, score=0.9, label="ball")
    assert shown.color(tiny) == ("", "red")
    assert shown.color(Box(x0=0, y0=0, x1=1, y1=1, score=0.9, label="ball")) == ("red", "white")


def test_what_is_no_image_makes_a_response_unscored() -> None:
    with pytest.raises(Unscorable) as caught:
        Photograph(b"\x89PNG\r\n\x1a\nno more")
    assert caught.value.reason == "unreadable_image"
