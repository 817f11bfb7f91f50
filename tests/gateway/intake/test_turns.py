"""A conversation of several turns: the judge is shown the images of the last one, by setting those of all."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import msgspec
import pytest

from groundwatch.events import Earlier
from groundwatch.runtime.stores.images import images_in

BROKEN = b"\x89PNG\r\n\x1a\n" + bytes(40)


def call(*turns: bytes | None) -> dict[str, Any]:
    """What LiteLLM logs; each turn with its image."""
    messages: list[dict[str, Any]] = []
    for number, image in enumerate(turns):
        content: list[dict[str, Any]] = [{"type": "text", "text": f"What is number {number}?"}]
        if image is not None:
            url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
            content.append({"type": "image_url", "image_url": {"url": url}})
        messages += [{"role": "user", "content": content}, {"role": "assistant", "content": "A cat."}]
    answer = {"choices": [{"message": {"role": "assistant", "content": "A dog."}}]}
    said = {"id": "chatcmpl-0123456789abcdef", "call_type": "completion", "model": "m"}
    return said | {"messages": messages[:-1], "response": answer}


def names(*images: bytes) -> tuple[str, ...]:
    return tuple(hashlib.sha256(image).hexdigest() for image in images)


@pytest.mark.parametrize("judged", ["last_turn", "all"])
async def test_images_of_earlier_turns_are_kept_and_judged_by_setting(
    gateway_factory: Any, pictures: Any, judged: str
) -> None:
    gateway = await gateway_factory(logged_calls={"judged_images": judged})
    cat, dog = pictures.encoded("PNG"), pictures.encoded("JPEG")
    for _ in range(2):
        assert (await gateway.http.post("/v1/litellm", json=call(cat, dog))).status_code == 200
    (event,) = await gateway.events()
    assert event.declined == {}
    assert event.every_image == names(cat, dog)
    assert event.images == (names(dog) if judged == "last_turn" else names(cat, dog))
    assert event.earlier.text == "user: What is number 0?\nassistant: A cat."
    # An erasure, and retention, find it by what the event says.
    assert images_in(msgspec.json.encode(event)) == {*names(cat, dog)}
    page = (await gateway.http.get(f"/answers/{event.id}", headers={"Accept": "text/html"})).text
    assert all(f"/v1/images/{name}" in page for name in names(cat, dog))
    assert ("with 1 image that no judge was shown" in page) is (judged == "last_turn")


@pytest.mark.parametrize(
    ("judged", "declined"), [("last_turn", {}), ("all", {"faithscore": "image_unreadable"})]
)
async def test_an_image_of_an_earlier_turn_declines_nothing_that_is_judged_without(
    gateway_factory: Any, pictures: Any, judged: str, declined: dict[str, str]
) -> None:
    gateway = await gateway_factory(logged_calls={"judged_images": judged})
    dog = pictures.encoded("JPEG")
    assert (await gateway.http.post("/v1/litellm", json=call(BROKEN, dog))).status_code == 200
    (event,) = await gateway.events()
    assert (event.images, event.declined) == (names(dog), declined)
    # It is told in any case.
    assert gateway.count("groundwatch_images_left_out_total", reason="image_unreadable") == 1


async def test_of_too_many_images_those_of_the_earliest_turns_go(gateway_factory: Any, pictures: Any) -> None:
    gateway = await gateway_factory(intake={"max_images": 2})
    several = [pictures.encoded("PNG", size=(8 + number, 8)) for number in range(3)]
    assert (await gateway.http.post("/v1/litellm", json=call(*several))).status_code == 200
    (event,) = await gateway.events()
    assert (event.images, event.declined) == (names(several[2]), {})
    assert event.earlier.images == names(several[1])


async def test_who_sends_over_http_says_which_images_are_of_earlier_turns(
    gateway: Any, pictures: Any
) -> None:
    images = [pictures.encoded("PNG"), pictures.encoded("JPEG")]
    sent = {"id": "one", "model": "m", "answer": "A dog.", "earlier": "user: What?", "earlier_images": 1}
    sent["images"] = [{"base64": base64.b64encode(image).decode()} for image in images]
    assert (await gateway.post(sent)).status_code == 202
    # By their hashes, the second time.
    sent |= {"id": "two", "images": [*names(*images)], "left_out": []}
    assert (await gateway.post(json.dumps(sent).encode() + b"\n", bulk=True)).json()["accepted"] == 1
    for event in await gateway.events():
        assert event.images == names(images[1])
        assert event.earlier == Earlier(text="user: What?", images=names(images[0]))
    reply = await gateway.post(sent | {"id": "three", "left_out": None, "earlier_images": 3})
    assert (reply.status_code, reply.json()["field"]) == (422, "earlier_images")
