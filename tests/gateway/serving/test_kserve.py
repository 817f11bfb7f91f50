"""What KServe's logger sends: requests and responses that are joined, whoever gets which half, and when."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.conftest import Running
from tests.runtime.conftest import eventually

from groundwatch.gateway.receivers import cloudevents, joining
from groundwatch.gateway.receivers.cloudevents import BATCH, STRUCTURED, Event, read_events
from groundwatch.gateway.receivers.joining import STREAM
from groundwatch.gateway.refusals import Refused

KIND = "org.kubeflow.serving.inference."


def asked(image: bytes | None = None, text: str = "What is there?", **more: Any) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if image is not None:
        url = "data:image/png;base64," + base64.b64encode(image).decode()
        content.append({"type": "image_url", "image_url": {"url": url}})
    return {"model": "heron-7b", "messages": [{"role": "user", "content": content}]} | more


def answered(text: str = "A dog sits on a mat.") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1764000000,
        "model": "heron-7b",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }


def streamed(*words: str) -> bytes:
    chunks: list[bytes] = []
    for word in words:
        choice = {"index": 0, "delta": {"content": word}}
        chunk = {"id": "c", "model": "heron-7b", "choices": [choice]}
        chunks.append(b"data: " + msgspec.json.encode(chunk) + b"\n\n")
    end = {"id": "c", "model": "heron-7b", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return b"".join([*chunks, b"data: " + msgspec.json.encode(end) + b"\n\n", b"data: [DONE]\n\n"])


async def log(
    gateway: Running, side: str, body: Any, name: str = "ce-1", tenant: str = "", **headers: str
) -> Any:
    """Send one half as KServe's logger does: the response with the request's content type, too."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    said = {
        "ce-specversion": "1.0",
        "ce-id": name,
        "ce-type": KIND + side,
        "ce-source": "http://localhost:9081/",
        "ce-time": "2026-11-22T10:00:00Z",
        "ce-inferenceservicename": "lvlm",
        "ce-namespace": "prod",
        "ce-component": "predictor",
        "ce-endpoint": "",
        "ce-metadata": "{}",
        "content-type": "application/json",
    } | headers
    query = f"?tenant={tenant}" if tenant else ""
    return await gateway.http.post(f"/v1/cloudevents{query}", content=content, headers=said)


async def kept(gateway: Running) -> int:
    return int((await gateway.bus.js.stream_info(STREAM)).state.messages)


@pytest.mark.parametrize("first", ["request", "response"])
async def test_the_halves_are_joined_in_any_order(gateway: Running, pictures, first):
    image = pictures.encoded("PNG")
    halves = {"request": asked(image), "response": answered()}
    second = {"request": "response", "response": "request"}[first]
    reply = await log(gateway, first, halves[first])
    assert (reply.status_code, reply.json()) == (200, {"id": "ce-1", "status": "waiting"})
    assert await kept(gateway) == 1
    reply = await log(gateway, second, halves[second])
    assert (reply.status_code, reply.json()) == (200, {"id": "ce-1", "status": "recorded"})
    [event] = await gateway.events()
    assert (event.id, event.model, event.prompt, event.answer) == (
        "ce-1",
        "heron-7b",
        "What is there?",
        "A dog sits on a mat.",
    )
    assert event.tags["inference_service"] == "lvlm" and event.tags["namespace"] == "prod"
    assert (await gateway.http.get(f"/v1/images/{event.images[0]}")).content == image
    assert await kept(gateway) == 0
    assert gateway.count("groundwatch_logged_calls_total", source="kserve", result="recorded") == 1


async def test_a_stream_arrives_as_one_body(gateway: Running):
    await log(gateway, "request", asked(stream=True))
    reply = await log(gateway, "response", streamed("A dog ", "on a ", "mat."))
    assert reply.json()["status"] == "recorded"
    assert [one.answer for one in await gateway.events()] == ["A dog on a mat."]


async def test_halves_come_to_different_gateways(gateway_factory):
    first, second = await gateway_factory(), await gateway_factory()
    names = [f"n{number}" for number in range(20)]
    await asyncio.gather(
        *(log(first, "request", asked(text=name), name) for name in names),
        *(log(second, "response", answered(name), name) for name in names),
    )
    for one in (first, second):
        await one.service._joiner.look()
    events = await first.events()
    assert sorted((one.id, one.prompt, one.answer) for one in events) == sorted((n, n, n) for n in names)
    assert await kept(first) == 0


async def test_a_repeat_adds_nothing(gateway: Running):
    for _ in range(2):
        assert (await log(gateway, "request", asked())).json()["status"] == "waiting"
    assert (await log(gateway, "response", answered())).json()["status"] == "recorded"
    for side, body in (("request", asked()), ("response", answered())):
        reply = await log(gateway, side, body)
    assert reply.json()["status"] == "duplicate"
    assert len(await gateway.events()) == 1 and await kept(gateway) == 0


async def test_a_half_that_comes_again_alone_is_no_loss(gateway_factory):
    gateway = await gateway_factory(cloud_events={"wait": 1.0})
    await log(gateway, "request", asked())
    await log(gateway, "response", answered())
    await log(gateway, "request", asked())

    async def gone() -> bool:
        return await kept(gateway) == 0

    await eventually(gone, within=30)
    assert [one.declined for one in await gateway.events()] == [{}]
    assert gateway.count("groundwatch_logged_calls_total", source="kserve", result="incomplete") == 0


async def test_another_half_under_the_same_id_is_a_conflict(gateway: Running):
    await log(gateway, "request", asked())
    reply = await log(gateway, "request", asked(text="Something else?"))
    assert (reply.status_code, reply.json()["reason"]) == (409, "conflict")
    assert (await log(gateway, "response", answered())).json()["status"] == "recorded"
    assert [one.prompt for one in await gateway.events()] == ["What is there?"]


async def test_the_same_id_of_another_tenant_is_another_call(gateway: Running):
    await log(gateway, "request", asked(text="mine"), tenant="acme")
    reply = await log(gateway, "response", answered("theirs"), tenant="other")
    assert reply.json()["status"] == "waiting"
    await log(gateway, "response", answered("mine"), tenant="acme")
    assert [(one.tenant, one.prompt, one.answer) for one in await gateway.events()] == [
        ("acme", "mine", "mine")
    ]


async def test_a_token_is_good_for_its_tenant(gateway_factory, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("acme kQ0vTz8mX2nR5wLp\n")
    gateway = await gateway_factory(tokens_file=str(tokens))
    assert (await log(gateway, "request", asked())).status_code == 401
    mine = {"authorization": "Bearer kQ0vTz8mX2nR5wLp"}
    assert (await log(gateway, "request", asked(), tenant="other", **mine)).status_code == 403
    assert (await log(gateway, "request", asked(), **mine)).json()["status"] == "waiting"
    # Whoever can only set an address puts the token there, which is Basic authentication.
    basic = {"authorization": "Basic " + base64.b64encode(b"kserve:kQ0vTz8mX2nR5wLp").decode()}
    assert (await log(gateway, "response", answered(), **basic)).json()["status"] == "recorded"
    assert [one.tenant for one in await gateway.events()] == ["acme"]


@pytest.mark.parametrize(
    "headers, field",
    [
        ({"ce-id": ""}, "ce-id"),
        ({"ce-id": "x" * 257}, "ce-id"),
        ({"ce-type": "org.kubeflow.serving.other"}, "ce-type"),
        ({"ce-type": ""}, "ce-type"),
        ({"ce-specversion": "0.3"}, "ce-specversion"),
        ({"ce-id": "%ED%A0%80", "ce-type": ""}, "ce-type"),
    ],
)
async def test_what_is_no_event_of_kserves(gateway: Running, headers, field):
    reply = await log(gateway, "request", asked(), **headers)
    assert (reply.status_code, reply.json()["field"]) == (422, field)
    assert await kept(gateway) == 0


@pytest.mark.parametrize(
    "request_body, response_body, declined",
    [
        (b"no json", answered(), "unreadable"),
        ({"instances": [[1, 2]]}, {"predictions": [1]}, "unreadable"),
        (asked(), {"error": {"message": "out of memory"}}, None),
        (asked(), b"\xff\xfe", "unreadable"),
        (asked(), b"", "unreadable"),
        (asked(), b"[" * 50_000, "unreadable"),
        ([], [], "unreadable"),
        (asked(), answered(""), "no_answer"),
    ],
)
async def test_what_is_no_call_to_judge_is_told_and_declined(
    gateway: Running, request_body, response_body, declined
):
    """Its request had been acknowledged. A call that failed has nothing to judge."""
    await log(gateway, "request", request_body)
    reply = await log(gateway, "response", response_body)
    assert reply.status_code == 422, reply.text
    assert await kept(gateway) == 0
    assert [set(one.declined.values()) for one in await gateway.events()] == (
        [{declined}] if declined else []
    )
    counted = "unreadable" if declined else "ignored"
    assert gateway.count("groundwatch_logged_calls_total", source="kserve", result=counted) == 1


async def test_a_half_without_the_other_is_declined_and_told(gateway_factory):
    gateway = await gateway_factory(cloud_events={"wait": 1.0})
    await log(gateway, "request", asked(), "alone")

    def counted() -> bool:
        return gateway.count("groundwatch_logged_calls_total", source="kserve", result="incomplete") == 1

    await eventually(counted, within=30)
    assert await kept(gateway) == 0
    [event] = await gateway.events()
    assert (event.id, event.model, set(event.declined.values())) == ("alone", "heron-7b", {"no_response"})
    ready = (await gateway.http.get("/readyz")).json()
    assert "1 requests that KServe logged had no response" in ready["notes"][0]


async def test_too_large_a_body_is_cut(gateway: Running):
    reply = await log(gateway, "request", b"x" * 100_000_000)
    assert (reply.status_code, reply.json()["reason"]) == (413, "too_large")

    async def pieces():
        for _ in range(100):
            yield b"x" * 1_000_000

    headers = {"ce-specversion": "1.0", "ce-id": "a", "ce-type": KIND + "request"}
    reply = await gateway.http.post("/v1/cloudevents", content=pieces(), headers=headers)
    assert reply.status_code == 413
    # Larger than a message may be, and within what a body may be.
    reply = await log(gateway, "request", b"x" * 10_000_000)
    assert (reply.status_code, reply.json()["reason"]) == (413, "too_large")
    assert "max_payload" in reply.json()["error"]


async def test_a_large_half_comes_back_whole(gateway: Running):
    text = "w" * 40_000
    filler = "x" * 7_000_000
    await log(gateway, "request", asked(text=text, metadata={"filler": filler}))
    assert (await log(gateway, "response", answered())).json()["status"] == "recorded"
    assert [one.prompt for one in await gateway.events()] == [text]


async def test_one_event_as_json_and_many(gateway: Running):
    def event(side: str, name: str, **data: Any) -> dict[str, Any]:
        return {"specversion": "1.0", "id": name, "type": KIND + side, "source": "/", **data}

    one = event("request", "s", data=asked())
    reply = await gateway.http.post(
        "/v1/cloudevents", content=json.dumps(one), headers={"content-type": STRUCTURED + "; charset=utf-8"}
    )
    assert reply.json() == {"id": "s", "status": "waiting"}
    many = [
        event("response", "s", data_base64=base64.b64encode(streamed("A ", "mat.")).decode()),
        event("request", "t", data=asked()),
        event("response", "t", datacontenttype="text/event-stream", data=streamed("A dog.").decode()),
        event("response", "u", data_base64="?"),
        {"id": "v"},
    ]
    reply = await gateway.http.post(
        "/v1/cloudevents", content=json.dumps(many), headers={"content-type": BATCH}
    )
    assert [one["status"] for one in reply.json()] == [
        "recorded",
        "waiting",
        "recorded",
        "refused",
        "refused",
    ]
    assert {one.id: one.answer for one in await gateway.events()} == {"s": "A mat.", "t": "A dog."}


async def test_while_nothing_can_be_recorded_both_halves_are_kept(gateway_factory, bus, response):
    gateway = await gateway_factory(intake={"max_backlog": 1})
    for _ in range(2):
        await gateway.post(response())
    await gateway.service.core.backlog.look()
    await log(gateway, "request", asked())
    reply = await log(gateway, "response", answered())
    assert (reply.status_code, reply.json()["status"]) == (200, "waiting")
    reading = await bus.js.pull_subscribe_bind("extraction", stream="GW_RESPONSES")
    for message in await reading.fetch(2, timeout=5):
        await message.ack_sync()
    await gateway.service.core.backlog.look()
    await gateway.service._joiner.look()
    assert "ce-1" in {one.id for one in await gateway.events()}
    assert await kept(gateway) == 0


async def test_halves_that_cannot_be_read_in_time_are_declined_and_others_go_on(gateway_factory, monkeypatch):
    for name, seconds in (("READ_SECONDS", 0.2), ("AGAIN_SECONDS", 0.1)):
        monkeypatch.setattr(joining, name, seconds)
    read = cloudevents.read_exchange

    def slow(request: bytes, response: bytes, *, id: str) -> Any:
        if id == "slow":
            time.sleep(0.5)
        return read(request, response, id=id)

    monkeypatch.setattr(cloudevents, "read_exchange", slow)
    gateway = await gateway_factory()
    await log(gateway, "request", asked(), "slow")
    reply = await log(gateway, "response", answered(), "slow")
    assert (reply.status_code, reply.json()["status"]) == (200, "waiting")
    await log(gateway, "request", asked(), "good")
    assert (await log(gateway, "response", answered(), "good")).json()["status"] == "recorded"

    async def declined() -> bool:
        await gateway.service._joiner.look()
        return len(await gateway.events()) == 2

    await eventually(declined, within=30)
    ended = {event.id: set(event.declined.values()) for event in await gateway.events()}
    assert ended == {"good": set(), "slow": {"unreadable"}}
    assert await kept(gateway) == 0


async def test_erasing_takes_the_halves_along(gateway: Running, bus):
    from groundwatch.erasure.erasing import Eraser
    from groundwatch.erasure.finding import Stores, subject

    for name, tenant in (("a", "acme"), ("b", "acme"), ("c", "other")):
        await log(gateway, "request", asked(), name, tenant)
    done = await Eraser(bus.js, subject("a", "acme", None), Stores(), wait=1).erase()
    assert done.counts == {STREAM: 1}
    done = await Eraser(bus.js, subject(None, "acme", None), Stores(), wait=1).erase()
    assert done.counts == {STREAM: 1} and await kept(gateway) == 1

    async def refused() -> bool:
        return bool((await log(gateway, "response", answered(), "a", "acme")).status_code == 410)

    await eventually(refused)


TEXT = st.text(max_size=20)


@given(
    media_type=st.sampled_from(["", "application/json", STRUCTURED, BATCH]),
    headers=st.dictionaries(st.sampled_from(["ce-id", "ce-type", "ce-specversion", "ce-endpoint"]), TEXT),
    body=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["id", "type", "specversion", "data", "data_base64"]), inner)
        ),
    ).map(lambda value: json.dumps(value).encode()),
)
def test_any_bytes_are_read_or_refused(media_type, headers, body):
    with contextlib.suppress(Refused):
        for read in read_events(media_type, headers, body):
            with contextlib.suppress(Refused):
                event = read()
                assert isinstance(event, Event) and event.id and event.side


def test_a_batch_has_a_bound() -> None:
    with pytest.raises(Refused) as refused:
        read_events(BATCH, {}, b"[" + b",".join([b"{}"] * 1_001) + b"]")
    assert refused.value.reason == "too_large"
