"""A logged call with an image or a text that cannot be taken is recorded and declined with its reason."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from PIL import Image
from tests.client.openai_server import openai_server
from tests.gateway.grpc.test_otlp import export
from tests.gateway.otlp.made import PROTOBUF, said, span, traces
from tests.gateway.serving.test_dynamo import STREAM, SUBJECT, dynamo, record
from tests.gateway.serving.test_kserve import answered, log
from tests.runtime.conftest import eventually

from groundwatch.client import Recorder, wrap_openai
from groundwatch.client.litellm import GroundwatchLogger
from groundwatch.client.vllm_router import RouterCallbacks
from groundwatch.ledger.ledger import audit

__all__ = ["dynamo"]

INTAKE = {"max_prompt": 1_000, "max_image_bytes": 20_000, "max_line": 60_000}


def picture(kind: str, side: int = 8) -> bytes:
    out = io.BytesIO()
    Image.frombytes("RGB", (side, side), os.urandom(3 * side * side)).save(out, kind)
    return out.getvalue()


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


CASES = {
    "whole": ("whole", data_url(picture("PNG")), ""),
    "gif": ("gif", data_url(picture("GIF")), ""),
    "bmp": ("bmp", data_url(picture("BMP")), "image_format"),
    "https": ("https", "https://images.example.com/a.png", "url_not_fetched"),
    "cut": ("cut", data_url(picture("PNG")[:-20]), "image_unreadable"),
    "large": ("large", data_url(picture("PNG", 90)), "image_too_large"),
    "huge": ("huge", data_url(picture("PNG", 180)), "image_too_large"),
    "long": ("long" + " and on" * 300, data_url(picture("PNG")), "prompt_too_long"),
}
"""A prompt, an image's address, and the reason for which no protocol judges the call."""

Send = Callable[[Any, str, list[dict[str, Any]]], Awaitable[None]]


def asked(prompt: str, image: str) -> list[dict[str, Any]]:
    content = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": image}}]
    return [{"role": "user", "content": content}]


def logged(name: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    answer = {"choices": [{"message": {"role": "assistant", "content": "A dog."}}]}
    return {"id": name, "call_type": "acompletion", "model": "m", "messages": messages, "response": answer}


async def by_recorder(gateway: Any, name: str, messages: list[dict[str, Any]]) -> None:
    text, image = messages[0]["content"]
    async with Recorder(gateway.service.url) as recorder:
        url = image["image_url"]["url"]
        recorder.record(id=name, model="m", answer="A dog.", prompt=text["text"], images=[url])
        assert await recorder.aflush(60) and recorder.lost == {}


async def by_wrapper(gateway: Any, name: str, messages: list[dict[str, Any]]) -> None:
    with openai_server() as address:
        async with Recorder(gateway.service.url) as recorder:
            client = wrap_openai(openai.AsyncOpenAI(base_url=address, api_key="x"), recorder)
            await client.chat.completions.create(model="heron-7b", messages=messages)  # type: ignore[arg-type]
            assert await recorder.aflush(60) and recorder.lost == {}
            await client.close()


async def by_router(gateway: Any, name: str, messages: list[dict[str, Any]]) -> None:
    request = SimpleNamespace(url=SimpleNamespace(path="/v1/chat/completions"), state=SimpleNamespace())
    async with Recorder(gateway.service.url) as recorder:
        callbacks = RouterCallbacks(recorder)
        callbacks.pre_request(request, json.dumps({"model": "m", "messages": messages}).encode(), {})
        callbacks.post_request(request, json.dumps(answered() | {"id": name * 10}).encode())
        assert await recorder.aflush(60) and recorder.lost == {}


async def by_litellm_logger(gateway: Any, name: str, messages: list[dict[str, Any]]) -> None:
    async with Recorder(gateway.service.url) as recorder:
        call = {"standard_logging_object": logged(name * 10, []), "messages": messages}
        GroundwatchLogger(recorder).log_success_event(call, None, None, None)
        assert await recorder.aflush(60) and recorder.lost == {}


async def by_litellm_proxy(gateway: Any, name: str, messages: list[dict[str, Any]]) -> None:
    reply = await gateway.http.post("/v1/litellm", json=logged(name * 10, messages))
    assert reply.status_code == 200 and reply.json()["accepted"] == 1, reply.text


def spans(name: str, messages: list[dict[str, Any]]) -> Any:
    attributes = said(f"chatcmpl-{name}-aaaaaaaaaaaaaaaa")
    return traces(span(attributes | {"gen_ai.input.messages": json.dumps(messages)}))


async def by_otlp(gateway: Any, name: str, messages: list[dict[str, Any]]) -> None:
    content = spans(name, messages).SerializeToString()
    reply = await gateway.http.post("/v1/traces", content=content, headers=PROTOBUF)
    assert reply.status_code == 200 and reply.content == b"", reply.text


async def by_otlp_grpc(gateway: Any, name: str, messages: list[dict[str, Any]]) -> None:
    answer = await export(gateway, spans(name, messages))
    assert not answer.partial_success.rejected_spans


async def by_kserve(gateway: Any, name: str, messages: list[dict[str, Any]]) -> None:
    await log(gateway, "request", {"model": "heron-7b", "messages": messages}, name)
    await log(gateway, "response", answered(), name)


DOORS: list[Send] = [
    by_recorder,
    by_wrapper,
    by_router,
    by_litellm_logger,
    by_litellm_proxy,
    by_otlp,
    by_otlp_grpc,
    by_kserve,
]


async def check(gateway: Any) -> None:
    """Every case is in the stream, and in the ledger, with its reason."""
    found = {event.prompt.split()[0]: event for event in await gateway.events()}
    told = {name: event.declined.get("faithscore", "") for name, event in found.items()}
    assert told == {name: reason for name, (_, _, reason) in CASES.items()}
    assert len(found["long"].prompt) == INTAKE["max_prompt"]
    assert len(found["whole"].images) == 1 and not found["huge"].images
    ledger = await audit(gateway.bus.js)
    assert (ledger.responses, ledger.lost_before_intake) == (len(CASES), {})
    for reason in {reason for _, _, reason in CASES.values() if reason}:
        assert gateway.count("groundwatch_images_left_out_total", reason=reason) >= 1
    notes = (await gateway.http.get("/readyz")).json()["notes"]
    assert any("gateway.fetch.allow" in note for note in notes)


@pytest.mark.parametrize("send", DOORS, ids=lambda send: send.__name__)
async def test_what_cannot_be_taken_of_a_logged_call_declines_it(send: Send, gateway_factory: Any) -> None:
    gateway = await gateway_factory(grpc_port=0, intake=INTAKE)
    for name, (prompt, image, _) in CASES.items():
        await send(gateway, name, asked(prompt, image))
    await check(gateway)


async def test_so_it_is_with_dynamo(gateway_factory: Any, dynamo: Any) -> None:
    server, bus = dynamo
    gateway = await gateway_factory(dynamo={"url": server.url, "stream": STREAM}, intake=INTAKE)
    for name, (prompt, image, _) in CASES.items():
        request = {"model": "heron-7b", "messages": asked(prompt, image)}
        await bus.js.publish(SUBJECT, record(name, request=request))

    async def all_there() -> bool:
        return len(await gateway.events()) == len(CASES)

    await eventually(all_there, within=60)
    await check(gateway)


async def test_who_sends_a_response_on_purpose_is_told_what_is_wrong(gateway_factory: Any) -> None:
    gateway = await gateway_factory(intake=INTAKE)
    for name in ("bmp", "cut", "large", "long"):
        prompt, image, _ = CASES[name]
        body = {"id": name, "model": "m", "answer": "A dog.", "prompt": prompt, "images": [image]}
        assert (await gateway.post(body)).status_code == 422
        assert (await gateway.post(body | {"left_out": []})).json()["left_out"] == [CASES[name][2]]
    body = {"id": "x", "model": "m", "answer": "A dog.", "images": ["a.png", {"url": "no"}, "b" * 64]}
    told = (await gateway.post(body | {"left_out": ["file_id", "<b>"]})).json()
    assert told["left_out"][:2] == ["file_id", "unknown_placeholder"] and len(told["left_out"]) == 5


async def test_without_image_is_judged_where_that_is_set_half_a_prompt_never(
    gateway_factory: Any,
) -> None:
    gateway = await gateway_factory(intake=INTAKE, logged_calls={"without_image": "record"})
    await asyncio.gather(
        *(by_litellm_proxy(gateway, name, asked(*CASES[name][:2])) for name in ("gif", "https", "long"))
    )
    told = {event.prompt.split()[0]: event.declined for event in await gateway.events()}
    assert told == {"gif": {}, "https": {}, "long": {"faithscore": "prompt_too_long"}}
