"""How many spans with an image of 100 kB the gateway records in a second, and whether memory grows.

The same responses, with other images of the same size, go through `/v1/responses` in the same run: the ratio
of the two rates must be at least 0.5. Afterwards the stream is counted: everything that was acknowledged must
be in it. Three processes share the machine: a NATS server, `groundwatch serve gateway` and this client.
"""

from __future__ import annotations

import asyncio
import base64
import io
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from PIL import Image

from groundwatch.errors import CheckFailed
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import RESPONSES
from ingest import ANSWER, HOST, MIB, PROMPT, gateway

SIDE = 184
"""Pixels of a side of an image of noise, whose PNG has 100 kB."""

SPANS = 32
"""In a request."""

SENDERS = 4
GOAL = 0.5
LOOK_SECONDS = 0.1


def picture() -> bytes:
    out = io.BytesIO()
    Image.frombytes("RGB", (SIDE, SIDE), os.urandom(3 * SIDE * SIDE)).save(out, "PNG")
    return out.getvalue()


def encoded(image: bytes, number: int) -> str:
    """An image of its own for every response: what stands behind the end of a file is part of its name."""
    return base64.b64encode(image + number.to_bytes(8, "big")).decode()


def batch(image: bytes, numbers: range) -> bytes:
    """A request with a span for each number."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in numbers:
        blob = {"type": "blob", "modality": "image", "content": encoded(image, number)}
        asked = [{"role": "user", "parts": [{"type": "text", "content": PROMPT}, blob]}]
        answered = [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}]
        span = spans.add(name="chat", trace_id=number.to_bytes(16, "big"), span_id=number.to_bytes(8, "big"))
        for key, value in (
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.request.model", "heron-7b"),
            ("gen_ai.response.id", f"chatcmpl-{number:020}"),
            ("gen_ai.input.messages", msgspec.json.encode(asked).decode()),
            ("gen_ai.output.messages", msgspec.json.encode(answered).decode()),
        ):
            span.attributes.add(key=key).value.string_value = value
    return request.SerializeToString()


async def over_otlp(http: httpx.AsyncClient, image: bytes, numbers: range) -> int:
    reply = await http.post(
        "/v1/traces", content=batch(image, numbers), headers={"Content-Type": "application/x-protobuf"}
    )
    reply.raise_for_status()
    told = ExportTraceServiceResponse.FromString(reply.content).partial_success
    return len(numbers) - told.rejected_spans


async def over_json(http: httpx.AsyncClient, image: bytes, numbers: range) -> int:
    recorded = 0
    for number in numbers:
        said = {"id": f"r{number}", "model": "heron-7b", "answer": ANSWER, "prompt": PROMPT}
        body = msgspec.json.encode(said | {"images": [{"base64": encoded(image, number)}]})
        reply = await http.post("/v1/responses", content=body, headers={"Content-Type": "application/json"})
        reply.raise_for_status()
        recorded += reply.json()["status"] == "recorded"
    return recorded


Send = Callable[[httpx.AsyncClient, bytes, range], Awaitable[int]]


async def one_way(
    send: Send, port: int, numbers: range, image: bytes, bus: Bus, served: psutil.Process
) -> dict[str, Any]:
    before = (await bus.js.stream_info(RESPONSES)).state.messages
    starts: Iterator[int] = iter(range(numbers.start, numbers.stop, SPANS))
    held: list[float] = []

    async def look() -> None:
        while True:
            held.append(served.memory_info().rss / MIB)
            await asyncio.sleep(LOOK_SECONDS)

    async def sender(http: httpx.AsyncClient) -> int:
        return sum(
            [await send(http, image, range(start, min(start + SPANS, numbers.stop))) for start in starts]
        )

    looking = asyncio.create_task(look())
    began = time.monotonic()
    try:
        async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}", timeout=120) as http:
            acknowledged = sum(await asyncio.gather(*(sender(http) for _ in range(SENDERS))))
    finally:
        looking.cancel()
    seconds = time.monotonic() - began
    stored = (await bus.js.stream_info(RESPONSES)).state.messages - before
    if len(held) < 4:
        raise CheckFailed("too short a run to see whether memory grows: ask for more --set spans=NUMBER")
    quarter = len(held) // 4
    return {
        "per_second": round(len(numbers) / seconds, 1),
        "acknowledged": acknowledged,
        "lost": acknowledged - stored,
        "rss_mib": round(max(held), 1),
        "growth_mib": round(max(held[3 * quarter :]) - max(held[quarter : 2 * quarter]), 1),
    }


async def measure(*, spans: int = 2_000) -> dict[str, Any]:
    """Spans and responses with an image each, per second, in one run."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-otlp-") as folder:
        server = NatsServer(Path(folder) / "nats")
        await server.start()
        bus = Bus(NatsSettings(url=server.url), name="otlp")
        ports = {"http": free_port(), "grpc": free_port()}
        image = picture()
        try:
            await bus.connect()
            await provision(bus.js)
            async with gateway(Path(folder), server.url, ports) as served:
                warm = range(10 * spans, 10 * spans + SPANS)
                for send in (over_otlp, over_json):
                    async with httpx.AsyncClient(base_url=f"http://{HOST}:{ports['http']}") as http:
                        await send(http, image, warm)
                    warm = range(warm.stop, warm.stop + SPANS)
                otlp = await one_way(over_otlp, ports["http"], range(1, spans + 1), image, bus, served)
                plain = await one_way(
                    over_json, ports["http"], range(spans + 1, 2 * spans + 1), image, bus, served
                )
        finally:
            await bus.close()
            await server.stop()
    ratio = otlp["per_second"] / plain["per_second"]
    return {
        "spans": spans,
        "image_bytes": len(image) + 8,
        "cores": psutil.cpu_count(),
        "load": round(psutil.getloadavg()[0], 1),
        "otlp": otlp,
        "responses": plain,
        "ratio": round(ratio, 2),
        "goal": GOAL,
        "ok": ratio >= GOAL and otlp["lost"] == 0 and otlp["acknowledged"] == spans,
    }
