"""Images: checked before they are decoded, stored once by their content."""

from __future__ import annotations

import asyncio
import hashlib
import io
import struct
import zlib
from typing import Any

import pytest
from PIL import Image as Pillow

from groundwatch.erasure.erasing import remove_image
from groundwatch.errors import InputError, TransientError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores import images
from groundwatch.runtime.stores.images import Image, ImageStore, check_image
from groundwatch.topology import IMAGES_BUCKET

LIMITS = IntakeSettings()


def encoded(kind: str = "PNG", size: tuple[int, int] = (64, 48), mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Pillow.effect_noise(size, 80).convert(mode).save(out, kind, **options)
    return out.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def bomb(side: int) -> bytes:
    """A few hundred bytes that declare side × side pixels."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def shortened(png: bytes) -> bytes:
    """The same with half of its pixels, and every chunk as it should be."""
    at = png.index(b"IDAT") - 4
    (length,) = struct.unpack_from(">I", png, at)
    pixels = png[at + 8 : at + 8 + length // 2]
    return png[:at] + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("kind", "media_type"),
    (("JPEG", "image/jpeg"), ("PNG", "image/png"), ("WEBP", "image/webp"), ("GIF", "image/gif")),
)
def test_takes_what_people_send(kind: str, media_type: str) -> None:
    data = encoded(kind)
    found = check_image(data, LIMITS)
    assert (found.media_type, found.width, found.height) == (media_type, 64, 48)
    assert found.sha256 == hashlib.sha256(data).hexdigest()
    assert found.data == data


@pytest.mark.parametrize("side", (8_000, 50_000, 2**31 - 1))
def test_a_bomb_is_refused_without_being_decoded(side: int) -> None:
    with pytest.raises(InputError, match="pixels"):
        check_image(bomb(side), LIMITS)


@pytest.mark.parametrize(
    ("data", "says"),
    (
        (b"", "empty"),
        (b"hello", "not a JPEG, PNG, WebP or GIF image$"),
        (encoded("BMP"), "GIF image but BMP: convert it"),
        (encoded("GIF")[:-200], "cut off"),
        (encoded("TIFF"), "GIF image but TIFF: convert it"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "but HEIC"),
        (b"\0\0\0\x18ftypavif\0\0\0\0avifmif1", "but AVIF"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0", "but a video"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "but SVG"),
        (b"%PDF-1.7", "but PDF"),
        (encoded("JPEG")[:200], "image"),
        (encoded("JPEG", (256, 256))[:-2_000], "cut off"),
        (encoded("PNG")[:-12], "cut off"),
        (encoded("PNG")[:-1], "cut off"),
        (encoded("WEBP")[:-1], "cut off"),
        (shortened(encoded("PNG")), "cannot be decoded"),
        (encoded("PNG")[:100], "image"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 100, "image"),
    ),
)
def test_refuses_with_a_reason(data: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        check_image(data, LIMITS)


def test_too_many_bytes() -> None:
    data = encoded("PNG")
    with pytest.raises(InputError, match=f"image of {len(data)} bytes is larger than 1000"):
        check_image(data, IntakeSettings(max_image_bytes=1_000))


def test_too_many_pixels() -> None:
    with pytest.raises(InputError, match=r"64×48 pixels is larger than 1000"):
        check_image(encoded("PNG"), IntakeSettings(max_image_pixels=1_000))


@pytest.mark.parametrize("kind", ("PNG", "WEBP"))
def test_an_animation_is_refused(kind: str) -> None:
    frames = [Pillow.new("RGB", (16, 16), color) for color in ("red", "green", "blue")]
    out = io.BytesIO()
    frames[0].save(out, kind, save_all=True, append_images=frames[1:], duration=50)
    with pytest.raises(InputError, match="animated"):
        check_image(out.getvalue(), LIMITS)


def test_of_a_gif_the_first_frame_is_read() -> None:
    frames = [Pillow.new("RGB", (16, 16), color) for color in ("red", "green", "blue")]
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=50)
    found = check_image(out.getvalue(), LIMITS)
    assert (found.media_type, found.width, found.height) == ("image/gif", 16, 16)


async def test_stores_once_and_gives_back_the_same(bus: Bus, clean_streams: None) -> None:
    store = ImageStore(bus.js)
    image = check_image(encoded("WEBP"), LIMITS)
    assert not await store.has(image.sha256)
    assert not store.seen(image.sha256)
    assert await store.put(image)
    assert not await store.put(image)
    assert store.seen(image.sha256)
    other = ImageStore(bus.js)
    assert await other.has(image.sha256)
    assert not await other.put(image)
    assert await other.load(image.sha256) == (image.data, "image/webp")


async def test_an_image_larger_than_a_message(bus: Bus, clean_streams: None) -> None:
    data = encoded("PNG", (2_000, 1_500))
    assert len(data) > 1024 * 1024
    image = check_image(data, LIMITS)
    store = ImageStore(bus.js)
    assert await store.put(image)
    assert await store.load(image.sha256) == (data, "image/png")


async def test_many_put_the_same_at_once(bus: Bus, clean_streams: None) -> None:
    image = check_image(encoded("JPEG"), LIMITS)
    await asyncio.gather(*(ImageStore(bus.js).put(image) for _ in range(10)))
    assert await ImageStore(bus.js).load(image.sha256) == (image.data, "image/jpeg")


async def meta(bus: Bus, sha256: str) -> tuple[int, bytes]:
    found = await bus.js.get_last_msg(images.IMAGES_STREAM, images.image_subject(sha256))
    return found.seq or 0, found.data or b""


async def test_what_somebody_else_removed_is_stored_again(
    bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "RECENT_SECONDS", 0.05)
    image = check_image(encoded("PNG"), LIMITS)
    store = ImageStore(bus.js)
    assert await store.put(image)
    await remove_image(bus.js, image.sha256)
    await asyncio.sleep(0.06)
    assert not store.seen(image.sha256)
    assert not await store.has(image.sha256)
    assert await store.put(image)
    assert await store.load(image.sha256) == (image.data, "image/png")
    # As other clients of the object store remove it: with a mark.
    await (await bus.js.object_store(IMAGES_BUCKET)).delete(image.sha256)
    await asyncio.sleep(0.06)
    assert await store.put(image)
    assert await ImageStore(bus.js).load(image.sha256) == (image.data, "image/png")


async def test_what_is_remembered_is_bounded(
    bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "RECENT_MOST", 3)
    store = ImageStore(bus.js)
    for number in range(10):
        data = b"%d" % number
        digest = hashlib.sha256(data).hexdigest()
        await store.put(Image(sha256=digest, media_type="image/png", width=1, height=1, data=data))
        assert store.seen(digest)
    assert len(store._recent) == 3


async def test_an_image_in_use_is_marked_and_stays_as_it_is(
    bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = check_image(encoded("PNG"), LIMITS)
    await ImageStore(bus.js).put(image)
    before = await meta(bus, image.sha256)
    assert await ImageStore(bus.js).has(image.sha256)
    assert await meta(bus, image.sha256) == before, "used a moment ago"
    await asyncio.sleep(0.3)
    monkeypatch.setattr(images, "FRESH_SECONDS", 0.3)
    assert all(await asyncio.gather(*(ImageStore(bus.js).has(image.sha256) for _ in range(5))))
    sequence, info = await meta(bus, image.sha256)
    assert (sequence > before[0], info) == (True, before[1])
    assert await ImageStore(bus.js).load(image.sha256) == (image.data, "image/png")


async def test_only_the_first_of_many_leaves_pieces(bus: Bus, clean_streams: None) -> None:
    image = check_image(encoded("JPEG"), LIMITS)
    new = await asyncio.gather(*(ImageStore(bus.js).put(image) for _ in range(10)))
    assert sum(new) == 1
    assert (await bus.js.stream_info(images.IMAGES_STREAM)).state.messages == 2


async def test_an_image_that_is_not_there(bus: Bus, clean_streams: None) -> None:
    with pytest.raises(LookupError):
        await ImageStore(bus.js).load("0" * 64)


async def test_no_bucket_is_a_fault_that_passes(bus: Bus, clean_streams: None) -> None:
    await bus.js.delete_object_store(IMAGES_BUCKET)
    with pytest.raises(TransientError):
        await ImageStore(bus.js).has("0" * 64)
