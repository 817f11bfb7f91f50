"""POST /v1/responses with one response: what is taken, what is refused and in which words."""

from __future__ import annotations

import asyncio
import json

import pytest


async def test_records_an_event(gateway, response):
    sent = response(prompt="What is there?", tags={"version": "3"}, tenant="acme")
    reply = await gateway.post(sent)
    assert reply.status_code == 202
    assert reply.json() == {"id": sent["id"], "status": "recorded"}
    [event] = await gateway.events()
    assert (event.id, event.model, event.answer, event.prompt) == (
        sent["id"],
        sent["model"],
        sent["answer"],
        "What is there?",
    )
    assert event.tenant == "acme"
    assert event.tags == {"version": "3"}
    assert event.protocols == ("faithscore",)
    assert event.declined == {}
    assert event.recorded_at > 1.7e9
    assert gateway.count("groundwatch_responses_total", tenant="acme", model="heron-7b") == 1


async def test_only_the_gateway_says_when_where_and_what_is_declined(gateway, response):
    sent = response(recorded_at=12.0, run="mine", declined={"faithscore": "because"})
    assert (await gateway.post(sent)).status_code == 202
    [event] = await gateway.events()
    assert event.recorded_at > 1.7e9
    assert event.run == "live"
    assert event.declined == {}


async def test_a_missing_id_is_made_up_and_returned(gateway, response):
    sent = response()
    del sent["id"]
    first, second = (await gateway.post(sent)).json(), (await gateway.post(sent)).json()
    assert first["status"] == second["status"] == "recorded"
    assert first["id"] != second["id"]
    assert {event.id for event in await gateway.events()} == {first["id"], second["id"]}


async def test_the_same_again_is_a_duplicate(gateway, response):
    sent = response(tags={"b": "1", "a": "2"})
    assert (await gateway.post(sent)).status_code == 202
    again = sent | {"tags": {"a": "2", "b": "1"}, "recorded_at": 77.0}
    reply = await gateway.post(again)
    assert reply.status_code == 200
    assert reply.json() == {"id": sent["id"], "status": "duplicate"}
    assert len(await gateway.events()) == 1
    assert gateway.count("groundwatch_responses_total", tenant="default", model="heron-7b") == 1


async def test_the_same_at_the_same_time_is_recorded_once(gateway, response):
    sent = response()
    replies = await asyncio.gather(*(gateway.post(sent) for _ in range(20)))
    assert sorted(reply.status_code for reply in replies) == [200] * 19 + [202]
    assert len(await gateway.events()) == 1


@pytest.mark.parametrize(
    "change", [{"answer": "Else."}, {"model": "other"}, {"prompt": "?"}, {"tags": {"a": "b"}}]
)
async def test_another_body_under_the_same_id_is_a_conflict(gateway, response, change):
    sent = response()
    await gateway.post(sent)
    reply = await gateway.post(sent | change)
    assert reply.status_code == 409
    assert reply.json()["field"] == "id"
    assert len(await gateway.events()) == 1
    assert gateway.count("groundwatch_refused_responses_total", reason="conflict") == 1


async def test_ids_belong_to_their_tenant(gateway, response):
    sent = response(tenant="a")
    assert (await gateway.post(sent)).status_code == 202
    assert (await gateway.post(sent | {"tenant": "b", "answer": "Else."})).status_code == 202


async def test_what_was_erased_can_be_recorded_again(gateway, response, bus):
    sent = response()
    await gateway.post(sent)
    await bus.js.purge_stream("GW_RESPONSES")
    assert (await gateway.post(sent)).status_code == 202
    assert len(await gateway.events()) == 1


TEXTS = {
    "empty": "",
    "control characters": "a\x00b\x01c\x1b[31m\x7f\u0085 d\r\n\te",
    "emoji": "Two 👩‍👩‍👧‍👦 and a 🏴󠁧󠁢󠁥󠁮󠁧󠁿 flag 🫥",
    "right to left": "שלום עולם ‏مرحبا‎ بالعالم",
    "combining and wide": "e\u0301 \U0001d11e 漢字 \ufeff \ufffd \uffff",
    "looks like markup": "<script>alert(1)</script> {{ 1 }} %s ${x}",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
async def test_text_travels_unchanged(gateway, response, text):
    sent = response(answer=text, prompt=text, tags={text or "t": text})
    assert (await gateway.post(sent)).status_code == 202
    [event] = await gateway.events()
    assert event.answer == event.prompt == text
    found = await gateway.http.get(f"/v1/responses/{sent['id']}")
    assert found.json()["response"].get("answer", "") == text


async def test_ids_may_hold_any_characters(gateway, response):
    for name in ("a/b", "a.b > *", "ü 👾", "..", "a?b#c", "\x01", "x" * 256):
        assert (await gateway.post(response(id=name))).json()["id"] == name
    found = await gateway.http.get("/v1/responses/a%2Fb")
    assert found.json()["response"]["id"] == "a/b"
    assert len(await gateway.events()) == 7


async def test_a_megabyte_of_answer_is_taken_where_settings_allow_it(gateway_factory, response):
    gateway = await gateway_factory(intake={"max_answer": 1_000_000})
    assert (await gateway.post(response(answer="word " * 200_000))).status_code == 202
    [event] = await gateway.events()
    assert len(event.answer) == 1_000_000


async def test_a_megabyte_of_answer_is_refused_by_default(gateway, response):
    reply = await gateway.post(response(answer="x" * 1_000_000))
    assert reply.status_code == 422
    assert reply.json()["field"] == "answer"
    assert "200000" in reply.json()["error"]
    assert await gateway.events() == []


async def test_an_event_that_the_server_cannot_hold_is_refused(gateway_factory, response):
    gateway = await gateway_factory(intake={"max_answer": 10_000_000, "max_line": 30_000_000})
    reply = await gateway.post(response(answer="x" * 9_000_000))
    assert reply.status_code == 413
    assert "max_payload" in reply.json()["error"]


REFUSED = {
    "not JSON": (b"{", "", "JSON"),
    "empty": (b"", "", "JSON"),
    "prose": (b"hello", "", "JSON"),
    "not UTF-8": (b'{"id": "a", "model": "m", "answer": "\xff\xfe"}', "", "UTF-8"),
    "a list": (b"[]", "", "object"),
    "two objects": (b'{"model":"m","answer":"a"}{"model":"m","answer":"a"}', "", "JSON"),
    "deeply nested": (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "", ""),
    "model missing": ({"answer": "a"}, "model", "missing"),
    "model empty": ({"model": "", "answer": "a"}, "model", "length"),
    "answer missing": ({"model": "m"}, "answer", "missing"),
    "answer null": ({"model": "m", "answer": None}, "answer", "null"),
    "answer a number": ({"model": "m", "answer": 7}, "answer", "int"),
    "id a number": ({"id": 7, "model": "m", "answer": "a"}, "id", "int"),
    "id too long": ({"id": "i" * 257, "model": "m", "answer": "a"}, "id", "256"),
    "prompt too long": ({"model": "m", "answer": "a", "prompt": "p" * 50_001}, "prompt", "50000"),
    "tags not text": ({"model": "m", "answer": "a", "tags": {"k": 1}}, "tags[...]", "str"),
    "too many images": ({"model": "m", "answer": "a", "images": ["0" * 64] * 17}, "images", "16"),
    "a fact without truth": (
        {"model": "m", "answer": "a", "reference": {"facts": [{"text": "t"}]}},
        "reference.facts[0].holds",
        "missing",
    ),
    "a pair for a triplet": (
        {"model": "m", "answer": "a", "reference": {"triplets": [["a", "b"]]}},
        "reference.triplets[0]",
        "length",
    ),
    "too much reference": (
        {"model": "m", "answer": "a", "reference": {"objects": ["o"] * 2001}},
        "reference",
        "2000",
    ),
    "unknown protocol": (
        {"model": "m", "answer": "a", "protocols": ["faithscore", "vibes"]},
        "protocols",
        "faithscore",
    ),
    "lone high surrogate": (b'{"id":"s","model":"m","answer":"a \\ud800 b"}', "answer", "surrogate"),
    "lone low surrogate": (b'{"model":"m","answer":"a","prompt":"\\udc00"}', "prompt", "surrogate"),
    "surrogate in a tag": (b'{"model":"m","answer":"a","tags":{"k":"\\udfff"}}', "tags", "surrogate"),
}


@pytest.mark.parametrize(("body", "field", "word"), REFUSED.values(), ids=REFUSED.keys())
async def test_refusals_name_the_field_on_one_line(gateway, body, field, word):
    reply = await gateway.post(body)
    assert reply.status_code == 422, reply.text
    told = reply.json()
    assert told.get("field", "") == field
    assert word in told["error"]
    assert "\n" not in told["error"] and len(told["error"]) <= 1000
    assert await gateway.events() == []


async def test_a_pair_of_surrogates_is_a_character(gateway):
    reply = await gateway.post(b'{"id":"s","model":"m","answer":"\\ud83d\\ude00"}')
    assert reply.status_code == 202
    [event] = await gateway.events()
    assert event.answer == "\U0001f600"


async def test_unknown_fields_are_ignored(gateway, response):
    assert (await gateway.post(response(surprise=[1, {"a": None}]))).status_code == 202


async def test_protocols_are_kept_once_each(gateway, response):
    await gateway.post(response(protocols=["faithscore", "faithscore"]))
    [event] = await gateway.events()
    assert event.protocols == ("faithscore",)


async def test_sampled_out_is_written_into_the_event(gateway_factory, response):
    gateway = await gateway_factory(sampling=[{"rate": 0.0, "model": "dull"}, {"rate": 1.0}])
    await gateway.post(response(model="dull"))
    await gateway.post(response(model="bright"))
    events = {event.model: event for event in await gateway.events()}
    assert events["dull"].declined == {"faithscore": "sampled_out"}
    assert events["dull"].protocols == ("faithscore",)
    assert events["bright"].declined == {}


async def test_a_body_beyond_the_limit_is_413(gateway_factory, response):
    gateway = await gateway_factory(intake={"max_line": 10_000})
    for headers in ({}, {"Transfer-Encoding": "chunked"}):
        body = json.dumps(response(answer="x" * 20_000)).encode()

        async def chunks(body=body):
            yield body

        reply = await gateway.http.post(
            "/v1/responses",
            content=chunks() if headers else body,
            headers={"Content-Type": "application/json"},
        )
        assert reply.status_code == 413
        assert "10000" in reply.json()["error"]


async def test_other_media_types_are_415(gateway, response):
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/xml"):
        reply = await gateway.http.post("/v1/responses", content=b"{}", headers={"Content-Type": kind})
        assert reply.status_code == 415
        assert "application/json" in reply.json()["error"]
    reply = await gateway.http.post(
        "/v1/responses",
        content=b"{}",
        headers={"Content-Type": "application/json", "Content-Encoding": "gzip"},
    )
    assert reply.status_code == 415
    reply = await gateway.http.post(
        "/v1/responses",
        content=json.dumps(response()),
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert reply.status_code == 202


async def test_a_full_backlog_is_503_with_retry_after(gateway_factory, response):
    gateway = await gateway_factory(intake={"max_backlog": 2})
    for _ in range(3):
        assert (await gateway.post(response())).status_code == 202
    reply = await gateway.post(response())
    assert reply.status_code == 503
    assert int(reply.headers["Retry-After"]) > 0
    assert reply.json()["reason"] == "backlog"
    assert len(await gateway.events()) == 3
    assert gateway.service.problems() == []
    assert any("wait to be judged" in note for note in gateway.service.notes())


async def test_a_full_stream_is_503(gateway_factory, response, bus):
    gateway = await gateway_factory()
    config = (await bus.js.stream_info("GW_RESPONSES")).config
    config.max_msgs = 1
    await bus.js.update_stream(config)
    assert (await gateway.post(response())).status_code == 202
    reply = await gateway.post(response())
    assert reply.status_code == 503
    assert "Retry-After" in reply.headers
    assert gateway.count("groundwatch_refused_responses_total", reason="unavailable") == 1


async def test_a_missing_stream_is_503_and_told_by_readyz(gateway_factory, response, bus):
    gateway = await gateway_factory(nats={"publish_timeout": 1.0})
    await bus.js.delete_stream("GW_RESPONSES")
    assert (await gateway.post(response())).status_code == 503
    await gateway.service.core.backlog.look()
    reply = await gateway.http.get("/readyz")
    assert reply.status_code == 200
    assert any("provision" in note for note in reply.json()["notes"])
