"""`Recorder` with a real gateway: what is recorded comes there, once, with its images."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
from typing import Any

import pytest
from PIL import Image, ImageFile

from groundwatch.client import Recorder, lines
from groundwatch.client.lines import held
from groundwatch.ledger.ledger import audit


async def test_a_response_is_recorded_with_its_images(gateway: Any, pictures: Any, tmp_path: Any) -> None:
    png, jpeg, webp = (pictures.encoded(kind) for kind in ("PNG", "JPEG", "WEBP"))
    path = tmp_path / "a.webp"
    path.write_bytes(webp)
    data_url = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
    async with Recorder(gateway.service.url, tags={"app": "shop"}) as recorder:
        name = recorder.record(
            model="heron-7b",
            prompt="What is this?",
            answer="A dog – 犬.",
            images=[png, data_url, path],
            tags={"version": "2"},
        )
        assert await recorder.aflush(60)
    (event,) = await gateway.events()
    assert event.id == name
    assert (event.model, event.prompt, event.answer) == ("heron-7b", "What is this?", "A dog – 犬.")
    assert event.images == tuple(hashlib.sha256(one).hexdigest() for one in (png, jpeg, webp))
    assert event.tags == {"app": "shop", "version": "2"}
    assert recorder.lost == {}


async def test_an_image_at_an_address_is_fetched_where_that_is_allowed(
    gateway_factory: Any, image_server: Any, pictures: Any
) -> None:
    png = pictures.encoded("PNG")
    image_server.reply("/images/a.png", png)
    folder = f"http://127.0.0.1:{image_server.port}/images/"
    gateway = await gateway_factory(fetch={"allow": (folder,), "networks": ("127.0.0.1",)})
    async with Recorder(gateway.service.url) as recorder:
        recorder.record(model="m", answer="A dog.", images=[png, f"{folder}a.png"])
        recorder.record(model="m", answer="A cat.", images=f"{folder}none.png")
        assert await recorder.aflush(60)
    second, first = sorted(await gateway.events(), key=lambda event: event.answer)
    assert first.images == (hashlib.sha256(png).hexdigest(),) * 2
    assert (second.images, second.declined) == ((), {"faithscore": "url_not_there"})
    assert recorder.lost == {}


async def test_many_come_once_each(gateway: Any) -> None:
    recorder = Recorder(gateway.service.url)
    names = [recorder.record(model="m", answer=f"Answer {number}.") for number in range(500)]
    for _ in range(2):
        recorder.record(model="m", answer="The same.", id="twice")
    assert await recorder.aflush(30)
    assert sorted(event.id for event in await gateway.events()) == sorted([*names, "twice"])
    await recorder.aclose()


async def test_what_is_refused_is_told_as_lost(gateway: Any) -> None:
    recorder = Recorder(gateway.service.url, sender="shop")
    recorder.record(model="m", answer="good", id="one")
    recorder.record(model="m" * 300, answer="bad")
    recorder.record(model="m", answer="bad", protocols=["no_such_protocol"])
    recorder.record(model="m", answer=7)  # type: ignore[arg-type]
    recorder.record(model="m", answer="good", id="two")
    assert await recorder.aflush(30)
    assert [event.id for event in await gateway.events()] == ["one", "two"]
    ledger = await audit(gateway.bus.js)
    assert ledger.lost_before_intake == {"shop": {"refused": 2, "unreadable": 1}}
    assert gateway.count("groundwatch_lost_before_intake_total", reason="refused") == 2
    recorder.record(model="m" * 300, answer="bad")
    assert await asyncio.to_thread(recorder.flush, 30)
    assert (await audit(gateway.bus.js)).lost_before_intake == {"shop": {"refused": 3, "unreadable": 1}}
    await recorder.aclose()


async def test_what_of_an_image_cannot_be_read_here_is_left_out(gateway: Any, tmp_path: Any) -> None:
    async with Recorder(gateway.service.url) as recorder:
        for image in ("\u2013", tmp_path / "gone.png", tmp_path):
            recorder.record(model="m", answer="x", images=[image])
        assert await recorder.aflush(60)
    told = [event.declined["faithscore"] for event in await gateway.events()]
    assert told == ["unknown_placeholder", "image_unreadable", "image_unreadable"]
    assert recorder.lost == {}


async def test_a_picture_that_is_not_read_is_sent_as_its_file(
    gateway: Any, pictures: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    """Neither decoded nor copied where the application waits."""
    files = {kind: pictures.encoded(kind) for kind in ("PNG", "JPEG", "GIF")}
    opened = [Image.open(io.BytesIO(data)) for data in files.values()]
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail("decoded"))
    kept = [held(image) for image in opened]
    monkeypatch.undo()
    assert kept == [(len(data), data) for data in files.values()]
    for image in opened:
        assert image.convert("RGB").size == image.size, "the application reads it as if nothing had been"
    (tmp_path / "a.png").write_bytes(files["PNG"])
    async with Recorder(gateway.service.url) as recorder:
        recorder.record(model="m", answer="x", images=[Image.open(tmp_path / "a.png")])
        changed = Image.open(tmp_path / "a.png")
        changed.putpixel((0, 0), (0, 0, 0))
        recorder.record(model="m", answer="y", images=[changed])
        assert await recorder.aflush(60)
    first, second = sorted(await gateway.events(), key=lambda event: event.answer)
    digest = hashlib.sha256(files["PNG"]).hexdigest()
    assert first.images == (digest,)
    assert len(second.images) == 1 and second.images[0] != digest


async def test_a_picture_beyond_the_bound_is_left_out_and_told(gateway: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(lines, "MAX_RAW", 4 * 30 * 20)
    async with Recorder(gateway.service.url) as recorder:
        for width in (30, 31):
            recorder.record(model="m", answer=f"{width}", images=[Image.new("RGB", (width, 20))])
        assert await recorder.aflush(60)
    fits, large = sorted(await gateway.events(), key=lambda event: event.answer)
    assert len(fits.images) == 1 and not fits.declined
    assert (large.images, large.declined) == ((), {"faithscore": "image_too_large"})
    assert recorder.lost == {}
