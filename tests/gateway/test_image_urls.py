"""Images that are given by their address, for one response and many."""

from __future__ import annotations

import base64
import hashlib

import msgspec
import pytest


@pytest.fixture
def allowed(image_server):
    """Settings under which the image_server of images may be asked."""
    return {"allow": (f"http://127.0.0.1:{image_server.port}/images/",), "networks": ("127.0.0.1",)}


async def test_an_image_is_fetched_stored_and_named_by_its_hash(
    gateway_factory, image_server, allowed, pictures, response
):
    first, second = pictures.encoded("PNG"), pictures.encoded("JPEG")
    image_server.reply("/images/a.png", first)
    image_server.reply("/images/b.jpg", second)
    gateway = await gateway_factory(fetch=allowed)
    url = f"http://127.0.0.1:{image_server.port}/images"
    inside = {"base64": base64.b64encode(first).decode()}
    reply = await gateway.post(response(images=[{"url": f"{url}/b.jpg"}, inside, {"url": f"{url}/a.png"}]))
    assert reply.status_code == 202, reply.text
    (event,) = await gateway.events()
    digests = tuple(hashlib.sha256(data).hexdigest() for data in (second, first, first))
    assert event.images == digests
    assert (await gateway.http.get(f"/v1/images/{digests[0]}")).content == second
    assert gateway.count("groundwatch_fetches_total", result="fetched") == 2


async def test_the_same_again_is_a_duplicate(gateway_factory, image_server, allowed, pictures, response):
    image_server.reply("/images/a.png", pictures.encoded("PNG"))
    gateway = await gateway_factory(fetch=allowed)
    body = response(images=[{"url": f"http://127.0.0.1:{image_server.port}/images/a.png"}])
    assert [(await gateway.post(body)).status_code for _ in range(2)] == [202, 200]


async def test_by_default_nothing_is_fetched_and_the_setting_is_named(gateway, image_server, response):
    reply = await gateway.post(
        response(images=[{"url": f"http://127.0.0.1:{image_server.port}/images/a.png"}])
    )
    told = reply.json()
    assert (reply.status_code, told["reason"], told["field"]) == (422, "image_not_allowed", "images[0]")
    assert "gateway.fetch.allow" in told["error"]
    assert image_server.connections == []
    assert gateway.count("groundwatch_refused_responses_total", reason="image_not_allowed") == 1


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/images/none.png", 422, "image_not_fetched"),
        ("/images/busy.png", 503, "image_unavailable"),
        ("/images/text.png", 422, "image"),
        ("/images/moved.png", 422, "image_not_fetched"),
        ("/images/long.png", 422, "image_not_fetched"),
        ("/other/a.png", 422, "image_not_allowed"),
    ],
)
async def test_what_cannot_be_had_is_refused(
    gateway_factory, image_server, allowed, response, path, status, reason
):
    image_server.reply("/images/busy.png", b"", "503 Busy")
    image_server.reply("/images/text.png", b"<html>")
    image_server.reply("/images/long.png", b"", Content_Length="999999999")
    image_server.redirect("/images/moved.png", "http://169.254.169.254/latest/meta-data/")
    gateway = await gateway_factory(fetch=allowed)
    reply = await gateway.post(response(images=[{"url": f"http://127.0.0.1:{image_server.port}{path}"}]))
    told = reply.json()
    assert (reply.status_code, told["reason"], told["field"]) == (status, reason, "images[0]")
    assert ("retry-after" in reply.headers) == (status == 503)
    assert await gateway.events() == []


async def test_of_many_lines_each_ends_on_its_own(gateway_factory, image_server, allowed, pictures, response):
    image_server.reply("/images/a.png", pictures.encoded("PNG"))
    image_server.reply("/images/busy.png", b"", "503 Busy")
    gateway = await gateway_factory(fetch=allowed)
    there = f"http://127.0.0.1:{image_server.port}/images/"
    names = ("a.png", "busy.png", "none.png", "a.png")
    lines = [response(images=[{"url": there + name}]) for name in names]
    told = (await gateway.post(b"\n".join(map(msgspec.json.encode, lines)), bulk=True)).json()
    assert (told["accepted"], told["refused"], told["retry_from"]) == (2, 2, 2)
    assert [error["reason"] for error in told["errors"]] == ["image_unavailable", "image_not_fetched"]
    # Asked for once: the line is not held up, nor are those behind it.
    assert sum(path == "/images/busy.png" for _, path, _ in image_server.asked) == 1


@pytest.mark.parametrize(
    "image",
    [{}, {"url": 1}, {"url": "https://a.example/", "base64": ""}, {"url": None}, "https://a.example/b"],
)
async def test_what_is_no_image_is_told_how_to_write_one(gateway, response, image):
    reply = await gateway.post(response(images=[image]))
    assert reply.status_code == 422
    assert "url" in reply.json()["error"]


async def test_a_question_takes_them_too(gateway_factory, image_server, allowed, pictures):
    image_server.reply("/images/a.png", pictures.encoded("PNG"))
    gateway = await gateway_factory(fetch=allowed)
    body = {"id": "q", "model": "heron-7b", "prompt": "What is it?"}
    body["images"] = [{"url": f"http://127.0.0.1:{image_server.port}/images/a.png"}]
    reply = await gateway.http.post("/v1/questions", json=body)
    assert reply.status_code == 202, reply.text
