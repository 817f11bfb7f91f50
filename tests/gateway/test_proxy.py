"""The door that passes calls on: what comes and goes is as without it, and is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import nats.js.errors
import openai
import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.runtime.conftest import eventually
from tests.support.frozen import frozen
from tests.support.routes import served_by

from groundwatch.runtime.settings.gateway import _OWN, GatewaySettings, ProxySettings
from groundwatch.runtime.telemetry.server import HttpServer

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
KEY = "sk-a-key-that-is-nobodys-business"
ASKED: list[Any] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ],
    }
]


class Upstream:
    """The API of a model. A stream ends when `go_on` is set."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.bodies: list[bytes] = []
        self.go_on = asyncio.Event()
        self.encoded = False
        self.odd = False
        app = Starlette(
            routes=[Route("/base/{path:path}", self.answer, methods=["GET", "POST", "DELETE", "PUT"])]
        )
        self.server = HttpServer(app, host="127.0.0.1", port=0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}/base"

    async def answer(self, request: Request) -> Response:
        body = await request.body()
        self.seen.append(request)
        self.bodies.append(body)
        if request.url.path.endswith("/busy/chat/completions"):
            headers = {"retry-after": "7", "x-request-id": "r1"}
            return JSONResponse({"error": {"message": "slower"}}, 429, headers)
        if request.url.path.endswith("/chat/completions"):
            asked = json.loads(body)
            if asked.get("stream"):
                return StreamingResponse(self.chunks(cut="cut" in asked), media_type="text/event-stream")
            if self.odd:
                return Response("<p>busy</p>", media_type="text/html")
            told = completion("A dog on a mat.")
            if self.encoded:
                zipped = gzip.compress(json.dumps(told).encode())
                headers = {"content-encoding": "gzip", "content-type": "application/json"}
                return Response(zipped, headers=headers)
            return JSONResponse(told, headers={"x-request-id": "r2", "set-cookie": "there=1"})
        if request.url.path.endswith("/messages"):
            return StreamingResponse(anthropic(), media_type="text/event-stream")
        return JSONResponse({"path": request.scope["raw_path"].decode(), "query": request.url.query})

    async def chunks(self, *, cut: bool) -> AsyncIterator[bytes]:
        for number, text in enumerate(("A dog", " sleeps.")):
            if number:
                await self.go_on.wait()
            if number and cut:
                raise ConnectionResetError
            delta = {"index": 0, "delta": {"content": text}, "finish_reason": "stop" if number else None}
            chunk = completion("") | {"object": "chat.completion.chunk", "choices": [delta]}
            yield f"data: {json.dumps(chunk)}\n\n".encode()
        yield b"data: [DONE]\n\n"


def completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "heron-7b",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }


async def anthropic() -> AsyncIterator[bytes]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "osprey", "content": []}
    for event in (
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "A red "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "kite."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    one = Upstream()
    await one.server.start()
    yield one
    one.go_on.set()
    await one.server.stop(1)


@pytest.fixture
async def passing(gateway_factory: Any, upstream: Upstream) -> Any:
    """A gateway that passes calls on to it, under two names."""
    return await gateway_factory(proxy={"upstreams": {"openai": upstream.url, "anthropic": upstream.url}})


def client(gateway: Any, **options: Any) -> openai.AsyncOpenAI:
    url = f"http://127.0.0.1:{gateway.service.port}/openai/v1"
    return openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0, **options)


async def recorded(gateway: Any, number: int = 1) -> list[Any]:
    found: list[Any] = []

    async def there() -> bool:
        found[:] = await gateway.events()
        return len(found) == number

    await eventually(there, within=20)
    return found


async def test_a_call_passes_as_it_is_and_is_recorded(passing, upstream, bus):
    async with client(passing) as api:
        raw = await api.chat.completions.with_raw_response.create(model="heron", messages=ASKED)
    assert raw.parse().choices[0].message.content == "A dog on a mat."
    assert raw.headers["x-request-id"] == "r2" and "set-cookie" not in raw.headers
    assert len(raw.headers.get_list("date")) == len(raw.headers.get_list("server")) == 1
    seen = upstream.seen[0]
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["host"] == f"127.0.0.1:{upstream.server.port}"
    assert json.loads(upstream.bodies[0]) == {"messages": ASKED, "model": "heron"}
    (event,) = await recorded(passing)
    assert (event.model, event.answer, event.prompt) == ("heron-7b", "A dog on a mat.", "What is this?")
    assert len(event.images) == 1 and event.tenant == "default"
    stored = [message async for message in read_all(bus)]
    assert any(b"A dog on a mat." in message for message in stored)
    assert not any(KEY.encode() in message for message in stored)
    assert passing.count("groundwatch_logged_calls_total", source="proxy", result="recorded") == 1


async def read_all(bus: Any) -> AsyncIterator[bytes]:
    """Every message of every stream."""
    names = (await bus.js._api_request("$JS.API.STREAM.NAMES"))["streams"]
    for name in names:
        for number in range(1, (await bus.js.stream_info(name)).state.last_seq + 1):
            with contextlib.suppress(nats.js.errors.NotFoundError):
                message = await bus.js.get_msg(name, number)
                yield (message.data or b"") + repr(message.headers).encode()


async def test_a_stream_passes_piece_by_piece(passing, upstream):
    async with client(passing) as api:
        stream = await api.chat.completions.create(model="heron", messages=ASKED, stream=True)
        first = await anext(stream)
        assert first.choices[0].delta.content == "A dog"
        assert not upstream.go_on.is_set()
        upstream.go_on.set()
        rest = [chunk.choices[0].delta.content async for chunk in stream]
    assert rest == [" sleeps."]
    (event,) = await recorded(passing)
    assert event.answer == "A dog sleeps." and "finish_reason" not in event.tags


async def test_what_somebody_saw_who_left_is_recorded(passing, upstream):
    async with client(passing) as api:
        stream = await api.chat.completions.create(model="heron", messages=ASKED, stream=True)
        await anext(stream)
        await stream.close()
    (event,) = await recorded(passing)
    assert (event.answer, event.tags["finish_reason"]) == ("A dog", "incomplete")


async def test_an_answer_that_is_cut_off_is_cut_off(passing, upstream):
    upstream.go_on.set()
    async with client(passing) as api:
        stream = await api.chat.completions.create(
            model="heron", messages=ASKED, stream=True, extra_body={"cut": True}
        )
        with pytest.raises((httpx.RemoteProtocolError, openai.APIError)):
            async for _ in stream:
                pass
    (event,) = await recorded(passing)
    assert event.tags["finish_reason"] == "incomplete"


async def test_messages_of_anthropic(passing):
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What flies?"}]
    asked = {"model": "osprey", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
    reply = await passing.http.post("/anthropic/v1/messages", json=asked | {"stream": True})
    assert reply.status_code == 200 and "message_stop" in reply.text
    (event,) = await recorded(passing)
    assert (event.model, event.answer, event.prompt) == ("osprey", "A red kite.", "What flies?")
    assert len(event.images) == 1


async def test_an_answer_that_is_compressed(passing, upstream):
    upstream.encoded = True
    reply = await passing.http.post(
        "/openai/v1/chat/completions",
        json={"model": "heron", "messages": ASKED},
        headers={"Accept-Encoding": "br, gzip"},
    )
    assert reply.headers["content-encoding"] == "gzip" and reply.json()["model"] == "heron-7b"
    assert upstream.seen[0].headers["accept-encoding"] == "gzip"
    (event,) = await recorded(passing)
    assert event.answer == "A dog on a mat."


async def test_errors_and_all_else_pass(passing, upstream):
    call = {"model": "heron", "messages": ASKED}
    refused = await passing.http.post("/openai/v1/busy/chat/completions", json=call)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
    assert refused.json() == {"error": {"message": "slower"}}
    other = await passing.http.get("/openai/v1/files/a%2Fb%20c", params={"limit": "2"})
    assert other.json() == {"path": "/base/v1/files/a%2Fb%20c", "query": "limit=2"}
    assert (await passing.http.delete("/openai/v1/files/x")).status_code == 200
    sent = await passing.http.put("/openai/v1/files/y", content=b"z" * 3_000_000)
    assert sent.status_code == 200 and upstream.bodies[-1] == b"z" * 3_000_000
    assert await passing.events() == []
    ignored = {"source": "proxy", "result": "ignored"}
    assert passing.count("groundwatch_logged_calls_total", **ignored) == 1


async def test_it_leads_nowhere_else(passing, upstream):
    host, port = "127.0.0.1", passing.service.port
    for path in ("/openai/../admin", "/openai/v1/%2e%2e/admin"):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        told = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert told.split()[1] in (b"404", b"422"), told
    assert upstream.seen == []


async def test_a_call_passes_though_it_cannot_be_recorded(gateway_factory, upstream):
    passing = await gateway_factory(
        intake={"max_line": 10_000, "max_image_bytes": 10_000},
        http={"max_receiving": 25_000},
        proxy={"upstreams": {"openai": upstream.url}},
    )
    call = {"model": "heron", "messages": ASKED, "user": "x" * 30_000}
    reply = await passing.http.post("/openai/v1/chat/completions", json=call)
    assert reply.json()["choices"][0]["message"]["content"] == "A dog on a mat."

    async def told() -> bool:
        return passing.count("groundwatch_lost_before_intake_total", reason="gave_up") == 1

    await eventually(told, within=10)
    assert await passing.events() == []


async def test_a_call_passes_while_nats_is_away(passing, nats_server):
    with frozen(nats_server.pid):
        reply = await passing.http.post(
            "/openai/v1/chat/completions", json={"model": "heron", "messages": ASKED}
        )
        assert reply.json()["choices"][0]["message"]["content"] == "A dog on a mat."
    (event,) = await recorded(passing)
    assert event.answer == "A dog on a mat."


async def test_an_answer_that_nobody_reads_is_in_the_ledger(passing, upstream):
    upstream.odd = True
    call = {"model": "heron", "messages": ASKED}
    assert (await passing.http.post("/openai/v1/chat/completions", json=call)).text == "<p>busy</p>"
    assert (await passing.http.post("/openai/v1/threads/t/messages", json=call)).status_code == 200
    (event,) = await recorded(passing)
    assert event.answer == "" and set(event.declined.values()) == {"unreadable"}


async def test_nobody_answers_there(gateway_factory):
    with contextlib.closing(await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)) as closed:
        port = closed.sockets[0].getsockname()[1]
    gateway = await gateway_factory(proxy={"upstreams": {"openai": f"http://127.0.0.1:{port}"}})
    reply = await gateway.http.post("/openai/v1/chat/completions", json={"model": "m", "messages": ASKED})
    assert reply.status_code == 502
    assert reply.json()["error"] == (
        "the upstream 'openai' does not answer (ConnectError): gateway.proxy.upstreams says where it is"
    )


async def test_who_calls_is_said_in_a_header_of_its_own(gateway_factory, upstream, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("birds a-token-of-the-birds sender\nothers a-token-that-only-reads viewer\n")
    gateway = await gateway_factory(
        tokens_file=str(tokens), proxy={"upstreams": {"openai": upstream.url}}, hosts=("*",)
    )
    call = {"model": "heron", "messages": ASKED}
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer a-token-of-the-birds"}, 401),
        ({"X-Groundwatch-Token": "another"}, 401),
        ({"X-Groundwatch-Token": "a-token-that-only-reads"}, 403),
    ):
        reply = await gateway.http.post("/openai/v1/chat/completions", json=call, headers=headers)
        assert reply.status_code == status, headers
        assert ("x-groundwatch-token: TOKEN" in reply.text) == ("X-Groundwatch-Token" not in headers)
    assert upstream.seen == []
    async with client(gateway, default_headers={"X-Groundwatch-Token": "a-token-of-the-birds"}) as api:
        await api.chat.completions.create(model="heron", messages=ASKED)
    assert not [name for name in upstream.seen[0].headers if name.startswith("x-groundwatch")]
    (event,) = await recorded(gateway)
    assert event.tenant == "birds"


async def test_no_upstream_takes_an_address_of_the_gateway(gateway):
    firsts = {route.path.split("/")[1].partition("{")[0] for route in served_by(gateway)}
    assert firsts - {""} <= _OWN
    assert (await gateway.http.post("/openai/v1/chat/completions", json={})).status_code == 404


@pytest.mark.parametrize(
    ("upstreams", "told"),
    [
        ({"v1": "https://api.openai.com"}, "no name of an upstream"),
        ({"Open AI": "https://api.openai.com"}, "no name of an upstream"),
        ({"openai": "api.openai.com"}, "api.openai.com"),
        ({"openai": "s3://bucket/x"}, "no address such as https://api.openai.com"),
        ({"openai": "https://api.openai.com/v1?key=1"}, "no address such as https://api.openai.com"),
    ],
)
def test_what_cannot_be_an_upstream_is_told(upstreams: dict[str, str], told: str):
    with pytest.raises(ValidationError, match=told):
        GatewaySettings(proxy=ProxySettings(upstreams=upstreams))
