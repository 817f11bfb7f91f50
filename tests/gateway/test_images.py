"""Images at the door: upload, base64, data URL, hash; everything else is refused with its reason."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import threading
import time

import httpx
import pytest
from PIL import Image
from tests.test_image_files import scans

from groundwatch.archive.images import ImageCooling, needed_in_work
from groundwatch.erasure.finding import Stores
from groundwatch.erasure.retention import enforce
from groundwatch.gateway.thumbnails import AT_ONCE, Thumbnails
from groundwatch.runtime.settings import ArchiveSettings, RetentionSettings
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores import images
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import RESPONSES

DATA = "data:image/png;base64,"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def upload(gateway, data, kind="image/png"):
    return await gateway.http.post("/v1/images", content=data, headers={"Content-Type": kind})


@pytest.mark.parametrize(
    ("kind", "media_type"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")]
)
async def test_an_upload_is_stored_once_and_served(gateway, pictures, kind, media_type):
    data = pictures.encoded(kind)
    first, second = await upload(gateway, data), await upload(gateway, data, "application/octet-stream")
    told = {"sha256": sha256(data), "media_type": media_type, "width": 32, "height": 24}
    assert (first.status_code, first.json()) == (200, told)
    assert (second.status_code, second.json()) == (200, told)
    served = await gateway.http.get(f"/v1/images/{sha256(data)}")
    assert served.content == data
    assert served.headers["content-type"] == media_type
    assert served.headers["x-content-type-options"] == "nosniff"
    assert "immutable" in served.headers["cache-control"]
    assert gateway.count("groundwatch_images_total", result="stored") == 1
    assert gateway.count("groundwatch_images_total", result="known") == 1


async def test_an_upload_by_form(gateway, pictures):
    data = pictures.encoded("JPEG")
    reply = await gateway.http.post("/v1/images", files={"image": ("a.jpg", data, "image/jpeg")})
    assert (reply.status_code, reply.json()["sha256"]) == (200, sha256(data))


async def test_forms_without_one_file_are_refused(gateway, pictures):
    data = pictures.encoded("PNG")
    two = await gateway.http.post("/v1/images", files=[("a", ("a", data)), ("b", ("b", data))])
    none = await gateway.http.post("/v1/images", files={"a": (None, "text")})
    broken = await upload(gateway, b"nothing", "multipart/form-data; boundary=x")
    bare = await upload(gateway, b"nothing", "multipart/form-data")
    assert [reply.status_code for reply in (two, none, broken, bare)] == [422] * 4
    assert all("\n" not in reply.json()["error"] for reply in (two, none, broken, bare))


async def test_what_is_too_many_bytes_is_413(gateway_factory, pictures):
    gateway = await gateway_factory(intake={"max_image_bytes": 1000})
    data = pictures.encoded("BMP", (64, 64))
    assert len(data) > 1000

    async def chunks():
        yield data

    assert (await upload(gateway, data)).status_code == 413
    assert (await upload(gateway, chunks())).status_code == 413
    assert (await gateway.http.post("/v1/images", files={"image": data})).status_code == 413
    assert (await gateway.http.post("/v1/images", files={"image": data * 100})).status_code == 413


def bad(pictures):
    png = pictures.encoded("PNG", (64, 64))
    jpeg = pictures.encoded("JPEG", (256, 256))
    return {
        "empty": (b"", "empty"),
        "text": (b"hello, I am no image at all", "not a JPEG, PNG, WebP or GIF"),
        "an SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", "not a JPEG"),
        "a bitmap": (pictures.encoded("BMP"), "not a JPEG"),
        "a decompression bomb": (pictures.bomb(), "pixels"),
        "a smaller bomb": (pictures.bomb(7_000), "pixels"),
        "fewer pixels than declared": (pictures.bomb(5_000), "decoded"),
        "a truncated GIF": (pictures.encoded("GIF", (64, 64))[:-50], "cut off"),
        "an animated WebP": (pictures.animated("WEBP"), "animated"),
        "an animated PNG": (pictures.animated("PNG"), "animated"),
        "a truncated PNG": (png[: len(png) // 2], "cut off"),
        "a truncated JPEG": (jpeg[: len(jpeg) // 2], "cut off"),
        "only a header": (png[:30], "image"),
        "a flipped bit": (png[:80] + bytes([png[80] ^ 1]) + png[81:], "checksum"),
    }


async def test_bad_images_are_refused_with_the_reason(gateway, pictures, response):
    for name, (data, word) in bad(pictures).items():
        reply = await upload(gateway, data)
        assert reply.status_code == 422, name
        assert word in reply.json()["error"], (name, reply.text)
        inside = response(images=[{"base64": base64.b64encode(data).decode()}])
        reply = await gateway.post(inside)
        assert reply.status_code == 422, name
        assert (reply.json()["field"], reply.json()["id"]) == ("images[0]", inside["id"])
        assert word in reply.json()["error"]
    assert await gateway.events() == []


async def test_a_bomb_costs_no_memory(gateway, pictures):
    psutil = pytest.importorskip("psutil")
    before = psutil.Process().memory_info().rss
    replies = await asyncio.gather(*(upload(gateway, pictures.bomb()) for _ in range(20)))
    assert {reply.status_code for reply in replies} == {422}
    assert psutil.Process().memory_info().rss - before < 30 * 1024 * 1024


async def test_phones_write_previews_behind_their_jpegs(gateway, pictures):
    from io import BytesIO

    from PIL import Image

    out = BytesIO()
    Image.new("RGB", (32, 24), "red").save(
        out, "MPO", save_all=True, append_images=[Image.new("RGB", (8, 6), "blue")]
    )
    reply = await upload(gateway, out.getvalue(), "image/jpeg")
    assert (reply.status_code, reply.json()["media_type"]) == (200, "image/jpeg")


async def test_images_come_inside_a_response_in_three_ways(gateway, pictures, response):
    data = pictures.encoded("PNG")
    text = base64.b64encode(data).decode()
    wrapped = "\n".join(text[start : start + 76] for start in range(0, len(text), 76))
    assert (await upload(gateway, data)).status_code == 200
    for given in (sha256(data), {"base64": text}, {"base64": wrapped}, DATA + text, text, DATA + DATA + text):
        assert (await gateway.post(response(images=[given]))).status_code == 202
    assert {event.images for event in await gateway.events()} == {(sha256(data),)}


async def test_the_way_an_image_comes_is_no_difference(gateway, pictures, response):
    data = pictures.encoded("PNG")
    text = base64.b64encode(data).decode()
    sent = response(images=[{"base64": text}])
    assert (await gateway.post(sent)).status_code == 202
    for given in (sha256(data), DATA + text):
        assert (await gateway.post(sent | {"images": [given]})).json()["status"] == "duplicate"
    other = base64.b64encode(pictures.encoded("PNG", (40, 40))).decode()
    assert (await gateway.post(sent | {"images": [{"base64": other}]})).status_code == 409


async def test_the_image_is_stored_before_the_event(gateway, pictures, response):
    data = pictures.encoded("WEBP")
    await gateway.post(response(images=[{"base64": base64.b64encode(data).decode()}]))
    [event] = await gateway.events()
    assert (await gateway.http.get(f"/v1/images/{event.images[0]}")).content == data


async def test_an_image_that_retention_removed_is_stored_again(gateway, pictures, response, bus, monkeypatch):
    """Retention runs in another process and leaves no tombstone."""
    monkeypatch.setattr(images, "RECENT_SECONDS", 0.1)
    monkeypatch.setattr(images, "GRACE_SECONDS", 0.0)
    data = pictures.encoded("PNG")
    name = (await upload(gateway, data)).json()["sha256"]
    assert (await enforce(bus.js, RetentionSettings(images=1e-9), Stores())).expired == {"images": 1}
    await asyncio.sleep(0.15)
    by_name = await gateway.post(response(images=[name]))
    assert (by_name.status_code, by_name.json()["reason"]) == (422, "image_missing")
    assert (await upload(gateway, data)).json()["sha256"] == name
    assert (await gateway.http.get(f"/v1/images/{name}")).content == data
    assert (await gateway.post(response(images=[name]))).status_code == 202
    assert (await enforce(bus.js, RetentionSettings(images=1e-9), Stores())).expired == {}
    assert (await gateway.http.get(f"/v1/images/{name}")).content == data


async def test_a_hash_that_is_not_stored_is_named(gateway, pictures, response):
    data = pictures.encoded("PNG")
    await upload(gateway, data)
    reply = await gateway.post(response(images=[sha256(data), "0" * 64]))
    assert reply.status_code == 422
    assert reply.json()["field"] == "images[1]"
    assert "/v1/images" in reply.json()["error"]
    assert gateway.count("groundwatch_refused_responses_total", reason="image_missing") == 1


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("https://example.com/cat.png", 'as {"url": "..."}'),
        ("http://169.254.169.254/latest/meta-data", 'as {"url": "..."}'),
        ("HTTP://EXAMPLE.COM", 'as {"url": "..."}'),
        ("file:///etc/passwd", 'as {"url": "..."}'),
        ("s3://bucket/key", 'as {"url": "..."}'),
        ("/etc/passwd", "paths are not read"),
        ("../../etc/passwd", "paths are not read"),
        ("cat.png", "SHA-256"),
        ("", "SHA-256"),
        ("A" * 64, "lower-case"),
        ("0" * 63, "SHA-256"),
        ("data:image/png,abc", "base64"),
        ("data:image/png;base64,!!!", "base64"),
        ({"base64": "***"}, "base64"),
        ({"base64": "é"}, "base64"),
        ({"url": "https://example.com"}, "gateway.fetch.allow"),
        (7, "SHA-256"),
        (None, "SHA-256"),
    ],
)
async def test_a_name_is_no_permission_to_read(gateway, response, given, word):
    reply = await gateway.post(response(images=[given]))
    assert reply.status_code == 422
    assert reply.json()["field"].startswith("images[")
    assert word in reply.json()["error"]
    assert await gateway.events() == []


async def test_a_response_without_an_image_is_recorded(gateway, response):
    assert (await gateway.post(response(images=[]))).status_code == 202


async def test_what_is_no_image_address_is_404(gateway):
    for name in ("0" * 64, "abc", "A" * 64, "%2e%2e%2fetc"):
        reply = await gateway.http.get(f"/v1/images/{name}")
        assert reply.status_code == 404
        assert "error" in reply.json()


@pytest.mark.parametrize(
    ("kind", "size", "options", "small"),
    [
        ("JPEG", (1600, 1200), {}, (224, 168)),
        ("JPEG", (1600, 1200), {"exif": "turned"}, (168, 224)),
        ("PNG", (300, 900), {}, (75, 224)),
        ("GIF", (500, 250), {}, (224, 112)),
        ("PNG", (32, 24), {}, None),
    ],
)
async def test_a_list_shows_small_whole_images(gateway, pictures, kind, size, options, small):
    if options:
        exif = Image.Exif()
        exif[0x0112] = 6
        options = {"exif": exif}
    data = pictures.encoded(kind, size, **options)
    sha256 = (await upload(gateway, data, f"image/{kind.lower()}")).json()["sha256"]
    replies = await asyncio.gather(*(gateway.http.get(f"/v1/images/{sha256}?width=224") for _ in range(3)))
    reply = replies[0]
    assert {one.content for one in replies} == {reply.content}
    assert "immutable" in reply.headers["cache-control"]
    if small is None:
        assert reply.content == data
        return
    assert reply.headers["content-type"] == "image/webp"
    assert len(reply.content) < 20_000
    with Image.open(io.BytesIO(reply.content)) as shown:
        assert shown.size == small
    assert (await gateway.http.get(f"/v1/images/{sha256}?width=10000")).status_code == 422


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_small_picture_needs_no_second_copy_of_a_large_one(mode, monkeypatch):
    data, copied = io.BytesIO(), []
    Image.new(mode, (900, 600)).save(data, "PNG")
    convert = Image.Image.convert

    def counted(image, mode, **more):
        copied.append(image.size)
        return convert(image, mode, **more)

    monkeypatch.setattr(Image.Image, "convert", counted)
    small = Thumbnails(None, IntakeSettings())._shrink(data.getvalue(), 224)
    assert small and max(max(size) for size in copied) <= 224


async def test_other_media_types_are_415(gateway):
    assert (await upload(gateway, b"x", "text/plain")).status_code == 415


async def test_a_jpeg_of_many_scans_is_refused_before_it_is_decoded(gateway):
    """A file of 200 KB that would take a core for 20 s, from the campaign."""
    began = time.monotonic()
    replies = await asyncio.gather(*(upload(gateway, scans(6_000, 300), "image/jpeg") for _ in range(2)))
    assert [reply.status_code for reply in replies] == [422, 422]
    assert "300 scans" in replies[0].json()["error"]
    assert time.monotonic() - began < 15


async def test_one_senders_costly_images_hold_up_nobody_else(gateway, pictures):
    """So many as would take a minute in all; another connection's image is answered between them."""
    costly, kind = scans(6_000, 16), {"Content-Type": "application/octet-stream"}
    async with httpx.AsyncClient(
        base_url=gateway.service.url, timeout=60, limits=httpx.Limits(max_connections=1)
    ) as other:
        reply = await other.post("/v1/images", content=pictures.encoded("PNG"), headers=kind)
        assert reply.status_code == 200
        images = [{"base64": base64.b64encode(costly + bytes([n])).decode()} for n in range(16)]
        body = b"\n".join(
            json.dumps({"id": f"c{n}", "model": "m", "answer": "a", "images": images}).encode()
            for n in range(4)
        )
        flood = asyncio.create_task(
            gateway.http.post(
                "/v1/responses", content=body, headers={"Content-Type": "application/x-ndjson"}, timeout=90
            )
        )
        await asyncio.sleep(1.0)
        reply = await other.post("/v1/images", content=pictures.encoded("JPEG"), headers=kind)
        assert reply.status_code == 200
        assert not flood.done()
        flood.cancel()
        await asyncio.gather(flood, return_exceptions=True)


async def test_an_image_that_has_left_the_object_store(
    gateway_factory, pictures, response, tmp_path, monkeypatch
):
    """It is served from the archive, and back in the object store where a new response is about it."""
    monkeypatch.setattr(images, "GRACE_SECONDS", 0.0)
    place = ArchiveSettings(url=str(tmp_path / "archive"), hot_days=1e-9)
    gateway = await gateway_factory(archive=place)
    data = pictures.encoded("PNG")
    name = sha256(data)

    async def cool():
        assert (await ImageCooling(gateway.bus, place, Metrics()).cool()).removed == 1
        # What was looked up is believed for minutes, but nothing is as old as that after them.
        gateway.service.core.store.forget(name)

    await upload(gateway, data)
    await cool()
    assert (await gateway.http.get(f"/v1/images/{name}")).content == data
    assert await images.ImageStore(gateway.bus.js).stored(name) is None, "to look is not to use"
    assert (await gateway.post(response(images=[name]))).status_code == 202
    assert await images.ImageStore(gateway.bus.js).load_hot(name) == data
    assert await needed_in_work(gateway.bus, {name}) == {name}
    await gateway.bus.js.purge_stream(RESPONSES)
    await cool()
    assert (await upload(gateway, data)).json()["sha256"] == name
    assert await images.ImageStore(gateway.bus.js).load_hot(name) == data
    await cool()
    # A damaged one is no 404: it may be mended.
    (tmp_path / "archive" / "images" / name).write_bytes(b"x")
    assert (await gateway.http.get(f"/v1/images/{name}")).status_code == 503
    assert (await gateway.http.get(f"/v1/images/{'0' * 64}")).status_code == 404


def inline(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}


@pytest.mark.parametrize(
    ("second", "changes"),
    [
        (b"no image at all", {}),
        (None, {"protocols": ["vibes"]}),
        (None, {"id": "taken"}),
    ],
)
@pytest.mark.parametrize("bulk", [False, True])
async def test_what_is_refused_leaves_no_image(gateway, pictures, response, second, changes, bulk):
    taken = await gateway.http.post("/v1/responses", json=response(id="taken", answer="Another one."))
    assert taken.status_code == 202
    data = pictures.encoded("PNG")
    given = [inline(data)] + ([inline(second)] if second else [])
    sent = response(images=given, **({"id": "refused"} | changes))
    if bulk:
        headers = {"Content-Type": "application/x-ndjson"}
        reply = await gateway.http.post("/v1/responses", content=json.dumps(sent) + "\n", headers=headers)
        assert reply.json()["refused"] == 1, reply.text
    else:
        reply = await gateway.http.post("/v1/responses", json=sent)
        assert reply.status_code in (409, 422), reply.text
    assert (await gateway.http.get(f"/v1/images/{sha256(data)}")).status_code == 404
    # The same, put right, is recorded with its image.
    right = await gateway.http.post("/v1/responses", json=response(id="right", images=[inline(data)]))
    assert right.status_code == 202
    assert (await gateway.http.get(f"/v1/images/{sha256(data)}")).status_code == 200


async def test_who_gives_up_leaves_no_more_at_work_than_may_be(monkeypatch):
    class Store:
        async def load(self, sha256: str) -> tuple[bytes, str]:
            return b"", "image/png"

    at_work, go = [], threading.Event()

    def shrink(data: bytes, side: int) -> None:
        at_work.append(data)
        go.wait(20)

    pictures = Thumbnails(Store(), IntakeSettings())
    monkeypatch.setattr(pictures, "_shrink", shrink)
    try:
        for number in range(3 * AT_ONCE):
            asked = asyncio.create_task(pictures.load(str(number), 224))
            await asyncio.sleep(0.02)
            asked.cancel()
        assert len(at_work) == AT_ONCE
    finally:
        go.set()
