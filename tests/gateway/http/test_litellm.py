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
    assert [told[key] for key in ("refused", "ignored")] == [2, 1]
    assert told["accepted"] + told["duplicates"] == 3
    assert len(told["errors"]) == 3
    declined = {event.id: set(event.declined.values()) for event in await gateway.events()}
    assert declined == {"a" * 20: set(), "b" * 20: {"invalid"}}
    for wrong in (b"", b"[]"):
        assert (await gateway.http.post("/v1/litellm", content=wrong, headers=JSON)).status_code == 200
    for wrong in (b"{", b"[1]", b'"text"', b"[" * 100_000, b"\xff"):
        assert (await gateway.http.post("/v1/litellm", content=wrong, headers=JSON)).status_code == 422


UNREAD: dict[str, tuple[dict[str, object], str, str]] = {
    "messages in an unknown form": (
        {"messages": [{"speaker": "x", "utterance": "What is it?"}]},
        "unreadable",
        "with the keys speaker, utterance",
    ),
    "without content": (
        {"messages": None, "response": None},
        "unreadable",
        "neither messages nor a response",
    ),
    "without a model": ({"model": ""}, "no_model", "names no model"),
    "without an answer": ({"response": {"choices": [{"message": {"content": ""}}]}}, "no_answer", "logged"),
}


@pytest.mark.parametrize("name", UNREAD)
async def test_a_call_that_is_not_read_is_declined_and_told(gateway, name):
    changes, reason, why = UNREAD[name]
    reply = await gateway.http.post("/v1/litellm", json=call("a" * 20, **changes))
    told = reply.json()
    assert (reply.status_code, told["accepted"], told["refused"]) == (200, 1, 0)
    assert why in told["errors"][0]["error"]
    assert [set(event.declined.values()) for event in await gateway.events()] == [{reason}]
    again = (await gateway.http.post("/v1/litellm", json=call("a" * 20, **changes))).json()
    assert (again["duplicates"], again["errors"]) == (1, [])
    if reason == "no_answer":
        return
    notes = (await gateway.http.get("/readyz")).json()["notes"]
    assert any(f"calls come that are not read ({reason})" in note for note in notes)


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
