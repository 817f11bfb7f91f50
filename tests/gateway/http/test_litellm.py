"""What LiteLLM's `generic_api` logger sends, in its three formats."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest
from tests.gateway.otlp.made import JSON, calls, recorded
from tests.support.frozen import frozen

FORMATS = ("json_array", "ndjson", "single")


@pytest.mark.parametrize("form", FORMATS)
async def test_a_format(gateway, form):
    name = f"litellm-proxy-{form}-images"
    for path, body in recorded(name):
        reply = await gateway.http.post(path, content=body, headers=JSON)
        assert reply.status_code == 200 and reply.json()["refused"] == 0, reply.text
    events = {event.answer: event for event in await gateway.events()}
    for call in calls(name):
        event = events[call["answer"]]
        assert event.prompt == call["prompt"]
        if call["image"].startswith("data:"):
            image = base64.b64decode(call["image"].partition(",")[2])
            assert event.images == (hashlib.sha256(image).hexdigest(),)
        elif call["image"]:
            assert event.declined == {"faithscore": "url_not_fetched"}


def call(name: str, **changes: object) -> dict[str, object]:
    said = [{"role": "user", "content": "What is it?"}]
    answer = {"choices": [{"message": {"role": "assistant", "content": "A dog."}}]}
    return {
        "id": name,
        "call_type": "acompletion",
        "model": "m",
        "messages": said,
        "response": answer,
    } | changes


async def test_each_call_of_a_body_ends_on_its_own(gateway):
    body = b"\n".join(
        [
            json.dumps(call("a" * 20)).encode(),
            b"{no json",
            b"5",
            json.dumps(call("b" * 20, model="m" * 300)).encode(),
            json.dumps(call("c" * 20, call_type="aembedding")).encode(),
            json.dumps(call("a" * 20)).encode(),
        ]
    )
    told = (await gateway.http.post("/v1/litellm", content=body, headers=JSON)).json()
    assert [told[key] for key in ("refused", "ignored")] == [3, 1]
    assert told["accepted"] + told["duplicates"] == 2
    assert len(told["errors"]) == 3
    assert [event.id for event in await gateway.events()] == ["a" * 20]
    for wrong in (b"", b"[]"):
        assert (await gateway.http.post("/v1/litellm", content=wrong, headers=JSON)).status_code == 200
    for wrong in (b"{", b"[1]", b'"text"', b"[" * 100_000, b"\xff"):
        assert (await gateway.http.post("/v1/litellm", content=wrong, headers=JSON)).status_code == 422


async def test_messages_in_an_unknown_form_are_told_by_their_keys(gateway):
    body = json.dumps(call("a" * 20, messages=[{"speaker": "x", "utterance": "What is it?"}]))
    reply = await gateway.http.post("/v1/litellm", content=body, headers=JSON)
    assert reply.status_code == 422 and "with the keys speaker, utterance" in reply.text
    notes = (await gateway.http.get("/readyz")).json()["notes"]
    assert any("calls come that are not read (unreadable)" in note for note in notes)


async def test_a_body_that_is_too_large_is_told_with_what_helps(gateway_factory):
    gateway = await gateway_factory(logged_calls={"max_batch": 300})
    reply = await gateway.http.post("/v1/litellm", content=json.dumps([call("a" * 20)] * 5), headers=JSON)
    assert reply.status_code == 413
    (note,) = (await gateway.http.get("/readyz")).json()["notes"]
    assert note.startswith("litellm: whole batches are refused") and "DEFAULT_BATCH_SIZE=1" in note
    assert gateway.count("groundwatch_lost_before_intake_total", reason="batch_refused") == 1


async def test_only_what_passes_makes_the_logger_come_again(gateway, nats_server):
    body = json.dumps([call("a" * 20), call("b" * 20)])
    with frozen(nats_server.pid):
        assert (await gateway.http.post("/v1/litellm", content=body, headers=JSON)).status_code == 503
    reply = await gateway.http.post("/v1/litellm", content=body, headers=JSON)
    assert reply.status_code == 200
    assert reply.json()["accepted"] + reply.json()["duplicates"] == 2
    assert len(await gateway.events()) == 2
