"""The callbacks for the router of vLLM's production stack, called as it calls them, with a real gateway."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTasks
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from tests.client.openai_server import ANSWER, openai_server

from groundwatch.client import vllm_router
from groundwatch.ledger.ledger import audit

PROMPT = "What is in the image?"


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with openai_server() as address:
        yield address.removesuffix("/v1")


@pytest.fixture
async def callbacks(gateway: Any, monkeypatch: Any) -> Any:
    monkeypatch.setenv("GROUNDWATCH_URL", gateway.service.url)
    module = importlib.reload(vllm_router)
    yield module.callbacks
    await module.callbacks._recorder.aclose()


@pytest.fixture
async def router(callbacks: Any, engine: str) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=router_of(callbacks, engine))
    async with (
        httpx.AsyncClient(base_url=engine) as backend,
        httpx.AsyncClient(transport=transport, base_url="http://router") as client,
    ):
        transport.app.state.backend = backend  # type: ignore[attr-defined]
        yield client


def router_of(callbacks: Any, engine: str) -> Starlette:
    """What the router does with its callbacks: the first on the loop, the second once the answer is sent."""

    async def route(request: Request) -> Response:
        body = await request.body()
        asked = json.loads(body)
        overwritten = callbacks.pre_request(request, body, asked)
        assert overwritten is None, "the router would end the request with this"
        # As the router does for models with another name.
        asked["messages"] = []
        tasks = BackgroundTasks()
        whole = bytearray()

        async def passed_on() -> AsyncIterator[bytes]:
            backend: httpx.AsyncClient = request.app.state.backend
            async with backend.stream("POST", request.url.path, content=body) as response:
                async for chunk in response.aiter_raw():
                    whole.extend(chunk)
                    yield chunk
            tasks.add_task(callbacks.post_request, request, whole)

        return StreamingResponse(passed_on(), background=tasks, media_type="text/event-stream")

    return Starlette(routes=[Route("/{path:path}", route, methods=["POST"])])


def chat(png: bytes, **more: Any) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    content = [{"type": "text", "text": PROMPT}, {"type": "image_url", "image_url": {"url": url}}]
    return {"model": "heron-7b", "messages": [{"role": "user", "content": content}], **more}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_completion_is_recorded_with_its_image(
    stream: bool, gateway: Any, callbacks: Any, router: httpx.AsyncClient, pictures: Any
) -> None:
    png = pictures.encoded("PNG")
    reply = await router.post("/v1/chat/completions", json=chat(png, stream=stream))
    assert reply.status_code == 200 and reply.content
    assert await callbacks._recorder.aflush(60)
    (event,) = await gateway.events()
    assert (event.model, event.prompt, event.answer) == ("heron-7b", PROMPT, ANSWER)
    assert event.images == (hashlib.sha256(png).hexdigest(),)
    assert callbacks._recorder.lost == {}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_recorded(
    stream: bool, gateway: Any, callbacks: Any, router: httpx.AsyncClient
) -> None:
    await router.post("/v1/responses", json={"model": "heron-7b", "input": PROMPT, "stream": stream})
    assert await callbacks._recorder.aflush(60)
    (event,) = await gateway.events()
    assert (event.prompt, event.answer) == (PROMPT, ANSWER)


async def test_what_is_no_answer_is_neither_recorded_nor_lost(
    gateway: Any, callbacks: Any, router: httpx.AsyncClient, pictures: Any
) -> None:
    await router.post("/v1/chat/completions", json=chat(pictures.encoded("PNG")) | {"model": "broken"})
    await router.post("/v1/embeddings", json={"model": "e", "input": "A dog."})
    for body in (b"", b"upstream connect error", b'{"detail": "Not Found"}', b'{"object": "error"}'):
        callbacks.post_request(asking("/v1/chat/completions", callbacks), bytearray(body))
    await router.post("/v1/chat/completions", json=chat(pictures.encoded("PNG")))
    assert await callbacks._recorder.aflush(60)
    assert len(await gateway.events()) == 1
    assert callbacks._recorder.lost == {}
    assert (await audit(gateway.bus.js)).lost_before_intake == {}


def asking(path: str, callbacks: Any) -> Request:
    scope = {"type": "http", "path": path, "headers": [], "server": ("router", 80)}
    request = Request(scope)
    callbacks.pre_request(request, json.dumps({"model": "m", "messages": []}).encode(), {})
    return request


async def test_what_cannot_be_read_is_counted_and_nothing_is_raised(callbacks: Any) -> None:
    callbacks.post_request(asking("/v1/chat/completions", callbacks), bytearray(b'{"choices": 7'))
    assert await callbacks._recorder.aflush(60)
    assert callbacks._recorder.lost == {"unreadable": 1}
    assert callbacks.pre_request(None, None, None) is None
    callbacks.post_request(None, None)
    assert callbacks._recorder.lost == {"unreadable": 2}


async def test_an_answer_whose_request_could_not_be_kept_is_counted(callbacks: Any) -> None:
    for path in ("/v1/chat/completions", "/v1/embeddings"):
        request = Request({"type": "http", "path": path, "headers": [], "server": ("router", 80)})
        callbacks.pre_request(request, None, None)
        callbacks.post_request(request, bytearray(b'{"choices": []}'))
    assert callbacks._recorder.lost == {"unreadable": 1}


@pytest.mark.parametrize(
    ("address", "said"), [("", "set GROUNDWATCH_URL"), ("ftp://gateway", "is no address of a gateway")]
)
def test_a_wrong_address_is_told_and_stops_no_router(
    address: str, said: str, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setenv("GROUNDWATCH_URL", address)
    with caplog.at_level(logging.ERROR, "groundwatch.client"):
        callbacks = vllm_router.from_environment()
    (message,) = caplog.messages
    assert message.startswith("nothing is recorded") and said in message
    callbacks.post_request(asking("/v1/chat/completions", callbacks), bytearray(b'{"choices": []}'))
