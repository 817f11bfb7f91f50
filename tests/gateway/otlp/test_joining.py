"""Messages that come as log records are joined to their span, whatever happens in between."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any

import pytest
from tests.gateway.otlp.made import PROTOBUF, calls, logs, record, recorded, span, traces

from groundwatch.gateway.halves import STREAM

CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "heron-7b",
    "gen_ai.response.id": "chatcmpl-aaaaaaaaaaaaaaaaaaaa",
}
QUICK = {"join_wait": 0.2, "join_timeout": 600.0}


def messages() -> Any:
    chosen = {"index": 0, "message": {"role": "assistant", "content": "A dog."}}
    return logs(record("gen_ai.user.message", {"content": "What is it?"}), record("gen_ai.choice", chosen))


async def post(gateway: Any, path: str, request: Any) -> None:
    reply = await gateway.http.post(path, content=request.SerializeToString(), headers=PROTOBUF)
    assert (reply.status_code, reply.content) == (200, b"")


async def events(gateway: Any, count: int = 1) -> list[Any]:
    for _ in range(200):
        found = await gateway.events()
        if len(found) >= count:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(found)


@pytest.mark.parametrize("first", ["span", "logs"])
async def test_in_any_order(gateway_factory, first):
    gateway = await gateway_factory(logged_calls=QUICK)
    requests = [("/v1/traces", traces(span(CALL))), ("/v1/logs", messages())]
    for path, request in requests if first == "span" else reversed(requests):
        await post(gateway, path, request)
    (event,) = await events(gateway)
    assert (event.id, event.model, event.prompt, event.answer) == (
        "chatcmpl-aaaaaaaaaaaaaaaaaaaa",
        "heron-7b",
        "What is it?",
        "A dog.",
    )


async def test_a_real_emitter_with_images(gateway_factory):
    gateway = await gateway_factory(logged_calls=QUICK)
    sent = recorded("openai-v2-content")
    for path, body in sent:
        assert (await gateway.http.post(path, json=body)).status_code == 200
    said = calls("openai-v2-content")
    found = {event.answer: event for event in await events(gateway, len(said))}
    for call in said:
        event = found[call["answer"]]
        assert event.prompt == call["prompt"]
        if call["image"].startswith("data:"):
            image = base64.b64decode(call["image"].partition(",")[2])
            assert event.images == (hashlib.sha256(image).hexdigest(),)


async def test_what_one_gateway_kept_another_joins(gateway_factory):
    slow = await gateway_factory(logged_calls={"join_wait": 3600.0})
    await post(slow, "/v1/logs", messages())
    await post(slow, "/v1/traces", traces(span(CALL)))
    await slow.service.drain(1.0)
    gateway = await gateway_factory(logged_calls=QUICK)
    (event,) = await events(gateway)
    assert event.answer == "A dog."


async def test_a_half_whose_other_never_comes_is_told(gateway_factory):
    gateway = await gateway_factory(logged_calls={"join_wait": 0.2, "join_timeout": 0.2})
    await post(gateway, "/v1/logs", messages())
    await post(gateway, "/v1/traces", traces(span(CALL, span_id=b"\x07" * 8)))
    results = ("unreadable", "refused")

    def told() -> list[float]:
        return [gateway.count("groundwatch_logged_calls_total", source="otlp", result=one) for one in results]

    for _ in range(200):
        if told() == [1, 1]:
            break
        await asyncio.sleep(0.1)
    assert told() == [1, 1]
    assert await gateway.events() == []


async def test_erasing_a_tenant_takes_what_waits_along(gateway_factory, bus, tmp_path):
    from groundwatch.erasure.erasing import Eraser
    from groundwatch.erasure.finding import Stores, subject

    tokens = {"acme": "an-acme-token-of-length", "other": "another-token-of-length"}
    file = tmp_path / "tokens"
    file.write_text("".join(f"{tenant} {token}\n" for tenant, token in tokens.items()))
    gateway = await gateway_factory(tokens_file=str(file), logged_calls={"join_wait": 3600.0})
    for token in tokens.values():
        headers = PROTOBUF | {"Authorization": f"Bearer {token}"}
        body = traces(span(CALL)).SerializeToString()
        reply = await gateway.http.post("/v1/traces", content=body, headers=headers)
        assert (reply.status_code, reply.content) == (200, b"")
    done = await Eraser(bus.js, subject(None, "acme", None), Stores(), wait=1).erase()
    assert done.counts == {STREAM: 1}
    assert (await bus.js.stream_info(STREAM)).state.messages == 1
