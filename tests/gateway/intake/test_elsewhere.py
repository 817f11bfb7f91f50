"""What logged calls only name: fetched where that is allowed, else left out with its reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable

import pytest

from groundwatch.conversations.conversation import REASONS, Conversation, ImageUrl
from groundwatch.gateway.auth import EVERYBODY, Caller
from groundwatch.gateway.intake import submissions
from groundwatch.gateway.intake.logged import NO_MESSAGES
from groundwatch.gateway.refusals import Recorded, Refused

CALL = {"model": "heron-7b", "prompt": "What is it?", "answer": "A dog."}


async def refused(recording: Awaitable[Recorded]) -> Refused:
    with pytest.raises(Refused) as caught:
        await recording
    return caught.value


@pytest.fixture
def opened(gateway_factory, image_server):
    """A gateway that may fetch below /images/ of the server of images, which is told besides."""

    async def make(**gateway):
        there = f"http://127.0.0.1:{image_server.port}/images/"
        fetch = {"allow": (there,), "networks": ("127.0.0.1",)}
        return await gateway_factory(fetch=fetch, **gateway), there

    return make


async def test_an_image_at_an_address_is_stored(opened, image_server, pictures):
    image_server.reply("/images/a.png", pictures.encoded("PNG"))
    gateway, there = await opened()
    logged = gateway.service.core.logged
    call = Conversation(id="a", images=(pictures.encoded("JPEG"), ImageUrl(f"{there}a.png")), **CALL)
    assert await logged.record(call, EVERYBODY, "otlp") == Recorded(id="a", status="recorded")
    assert await logged.record(call, EVERYBODY, "otlp") == Recorded(id="a", status="duplicate")
    (event,) = await gateway.events()
    assert event.images == tuple(
        hashlib.sha256(pictures.encoded(kind)).hexdigest() for kind in ("JPEG", "PNG")
    )
    assert event.declined == {}


async def test_nothing_is_fetched_for_a_tenant_that_sends_too_much(opened, image_server, pictures):
    image_server.reply("/images/a.png", pictures.encoded("PNG"))
    gateway, there = await opened(admission={"rate": 0.001, "burst": 1})
    logged = gateway.service.core.logged
    reasons = []
    for name, who in [("a", EVERYBODY), ("b", EVERYBODY), ("c", EVERYBODY), ("d", Caller("acme"))]:
        call = Conversation(id=name, images=(ImageUrl(f"{there}a.png?{name}"),), **CALL)
        try:
            await logged.record(call, who, "otlp")
            reasons.append("")
        except Refused as error:
            reasons.append(error.reason)
    assert reasons == ["", "rate_limited", "rate_limited", ""]
    assert [path for _, path, _ in image_server.asked] == ["/images/a.png?a", "/images/a.png?d"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("images/none.png", submissions.NOT_THERE),
        ("images/busy.png", submissions.NOT_THERE),
        ("images/text.png", "image_format"),
        ("images/moved.png", submissions.NOT_THERE),
        ("other/a.png", submissions.NOT_ALLOWED),
    ],
)
async def test_what_cannot_be_had_is_left_out(opened, image_server, pictures, path, reason):
    image_server.reply("/images/a.png", pictures.encoded("PNG"))
    image_server.reply("/images/busy.png", b"", "503 Busy")
    image_server.reply("/images/text.png", b"text")
    image_server.redirect("/images/moved.png", "http://169.254.169.254/latest/")
    gateway, there = await opened()
    url = there.removesuffix("images/") + path
    call = Conversation(id="a", images=(ImageUrl(url), ImageUrl(f"{there}a.png")), **CALL)
    ended = await gateway.service.core.logged.record(call, EVERYBODY, "otlp")
    assert ended == Recorded(id="a", status="recorded", left_out=(reason,))
    (event,) = await gateway.events()
    assert (len(event.images), event.declined) == (1, {"faithscore": reason})
    assert gateway.count("groundwatch_images_left_out_total", reason=reason) == 1
    assert gateway.count("groundwatch_logged_calls_total", source="otlp", result="without_image") == 1
    assert reason in REASONS


async def test_without_an_id_what_is_fetched_does_not_change_it(opened, image_server, pictures):
    gateway, there = await opened(logged_calls={"without_image": "record"})
    logged = gateway.service.core.logged
    call = Conversation(images=(ImageUrl(f"{there}a.png"),), at=5.0, **CALL)
    first = await logged.record(call, EVERYBODY, "otlp")
    assert isinstance(first, Recorded)
    assert await logged.record(call, EVERYBODY, "otlp") == Recorded(id=first.id, status="duplicate")
    (event,) = await gateway.events()
    assert event.declined == {}


async def test_the_same_call_is_a_duplicate_although_more_can_be_fetched_now(opened, image_server, pictures):
    gateway, there = await opened()
    logged = gateway.service.core.logged
    call = Conversation(id="a", images=(ImageUrl(f"{there}a.png"),), **CALL)
    assert isinstance(await logged.record(call, EVERYBODY, "otlp"), Recorded)
    image_server.reply("/images/a.png", pictures.encoded("PNG"))
    assert await logged.record(call, EVERYBODY, "otlp") == Recorded(id="a", status="duplicate")
    assert len(await gateway.events()) == 1


async def test_uploaded_messages_are_fetched(opened, image_server, pictures):
    image_server.reply("/images/b.png", pictures.encoded("PNG"))
    gateway, there = await opened()
    parts = [
        {"type": "text", "content": "What is on it?"},
        {"type": "uri", "modality": "image", "uri": f"{there}b.png"},
    ]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "A cat."}]}]
    image_server.reply("/images/in.json", json.dumps([{"role": "user", "parts": parts}]).encode())
    image_server.reply("/images/out.json", json.dumps(said).encode())
    references = {"input": f"{there}in.json", "output": f"{there}out.json"}
    call = Conversation(id="a", model="heron-7b", references=references)
    ended = await gateway.service.core.logged.record(call, EVERYBODY, "otlp")
    assert ended == Recorded(id="a", status="recorded")
    (event,) = await gateway.events()
    assert (event.prompt, event.answer, len(event.images)) == ("What is on it?", "A cat.", 1)


async def test_uploaded_messages_that_cannot_be_had_are_left_out(opened, image_server):
    gateway, there = await opened()
    references = {"input": f"{there}none.json", "output": "s3://elsewhere/out.json"}
    logged = gateway.service.core.logged
    call = Conversation(id="a", references=references, **CALL)
    assert isinstance(await logged.record(call, EVERYBODY, "otlp"), Recorded)
    (event,) = await gateway.events()
    assert event.declined == {"faithscore": NO_MESSAGES}
    silent = Conversation(id="b", model="m", references=references)
    assert (await refused(logged.record(silent, EVERYBODY, "otlp"))).field == "answer"
    assert NO_MESSAGES in REASONS


async def test_nothing_is_fetched_for_a_call_that_is_not_taken(opened, image_server):
    gateway, there = await opened()
    logged = gateway.service.core.logged
    url = ImageUrl(f"{there}a.png")
    nameless = Conversation(id="a", images=(url,), **CALL | {"model": ""})
    assert (await refused(logged.record(nameless, EVERYBODY, "otlp"))).field == "model"
    named = {"input": f"{there}in.json"}
    long = Conversation(id="c", model="x" * 300, answer="A dog.", references=named)
    assert (await refused(logged.record(long, EVERYBODY, "otlp"))).field == "model"
    assert image_server.connections == []
