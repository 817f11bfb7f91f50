"""Images are looked at as people see them: turned as EXIF says where browsers do so, and nowhere else."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from groundwatch.orientation import ORIENTATION, upright, upright_file
from tests.support.browser import open_browser

STORED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""How a camera stores an image that is shown upright by each orientation."""

XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about="" xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/>'
    "</rdf:RDF></x:xmpmeta>"
)


def drawn(mode: str = "RGB") -> Image.Image:
    """Four quarters, each of another brightness."""
    image = Image.new("L", (64, 32))
    for at, shade in enumerate((10, 90, 170, 250)):
        image.paste(shade, (at % 2 * 32, at // 2 * 16, at % 2 * 32 + 32, at // 2 * 16 + 16))
    return image.convert(mode)


def photograph(kind: str, orientation: int = 6, mode: str = "RGB", **options: Any) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    turn, out = STORED[orientation], io.BytesIO()
    image = drawn(mode) if turn is None else drawn(mode).transpose(turn)
    image.save(out, kind, **{"exif": exif} | options)
    return out.getvalue()


def shades(image: Image.Image) -> list[int]:
    plain = image.convert("L")
    return [int(plain.getpixel((x, y)) / 40) for y in (8, 24) for x in (16, 48)]  # type: ignore[arg-type,operator]


@pytest.mark.parametrize("mode", ["RGB", "L", "P"])
@pytest.mark.parametrize("orientation", STORED)
def test_cameras_turn_images_and_they_are_turned_back(orientation: int, mode: str) -> None:
    for kind in ("JPEG", "PNG") if mode != "P" else ("PNG",):
        data = photograph(kind, orientation, mode)
        shown = upright(Image.open(io.BytesIO(data)))
        assert (shown.size, shades(shown)) == ((64, 32), [0, 2, 4, 6])
        written = upright_file(data)
        plain = Image.open(io.BytesIO(written))
        assert (plain.format, plain.size, shades(plain)) == (kind, (64, 32), [0, 2, 4, 6])
        assert plain.getexif().get(ORIENTATION, 1) == 1
        assert (written is data) == (orientation == 1), "what is upright is not written anew"


OTHERS = {
    "webp": photograph("WEBP", lossless=True),
    "xmp": photograph("JPEG", exif=b"", xmp=XMP.encode()),
}


def test_what_browsers_leave_alone_is_left() -> None:
    texts = PngInfo()
    texts.add_itxt("XML:com.adobe.xmp", XMP)
    for data in (*OTHERS.values(), photograph("PNG", exif=b"", pnginfo=texts)):
        assert upright(Image.open(io.BytesIO(data))).size == (32, 64)
        assert upright_file(data) is data


def test_what_cannot_be_read_stays_as_it_is() -> None:
    for data in (b"", b"no image with Exif\0\0", photograph("JPEG")[:200]):
        assert upright_file(data) is data


async def test_people_see_on_the_page_what_judges_look_at() -> None:
    files = OTHERS | {
        f"{kind} {orientation}": photograph(kind, orientation)
        for kind in ("JPEG", "PNG")
        for orientation in STORED
    }
    show = """async url => {
        const image = new Image(); image.src = url; await image.decode();
        const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
        [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
        pen.drawImage(image, 0, 0);
        const shade = (x, y) => pen.getImageData(x * canvas.width, y * canvas.height, 1, 1).data[0];
        const places = [[.25, .25], [.75, .25], [.25, .75], [.75, .75]];
        return [canvas.width, canvas.height, ...places.map(place => shade(...place))];
    }"""
    async with open_browser() as browser:
        page = await browser.new_page()
        for name, data in files.items():
            kind = {"webp": "webp", "xmp": "jpeg"}.get(name, name.split()[0].lower())
            seen = await page.evaluate(show, f"data:image/{kind};base64,{base64.b64encode(data).decode()}")
            looked = upright(Image.open(io.BytesIO(data))).convert("L")
            width, height = looked.size
            places = [(x, y) for y in (0.25, 0.75) for x in (0.25, 0.75)]
            wanted: list[Any] = [looked.getpixel((int(x * width), int(y * height))) for x, y in places]
            assert seen == [width, height, *(pytest.approx(one, abs=6) for one in wanted)], name
