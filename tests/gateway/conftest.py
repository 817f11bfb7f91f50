"""A gateway on a real port, over a real NATS server."""

from __future__ import annotations

import contextlib
import io
import itertools
import struct
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from PIL import Image
from tests.support.image_server import Server, image_servers

from groundwatch.archive.cold import cold_events
from groundwatch.archive.images import archived_images
from groundwatch.events import (
    Decision,
    Judge,
    JudgedClaim,
    Label,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    SubSentence,
)
from groundwatch.gateway.replays import Replays
from groundwatch.gateway.service import GatewayService
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import AlarmSettings, ArchiveSettings, Settings, TelemetrySettings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system.services import answer_index
from groundwatch.topology import RESPONSES


class Running:
    """A started gateway with a client for it."""

    def __init__(self, service: GatewayService, http: httpx.AsyncClient, metrics: Metrics, bus: Any) -> None:
        self.service = service
        self.http = http
        self.metrics = metrics
        self.bus = bus

    async def post(self, body: object, *, bulk: bool = False) -> httpx.Response:
        """Send one response, or bytes as they are."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        kind = "application/x-ndjson" if bulk else "application/json"
        return await self.http.post("/v1/responses", content=content, headers={"Content-Type": kind})

    async def events(self) -> list[ResponseRecorded]:
        """What the stream of responses holds."""
        return [
            msgspec.json.decode(read.data, type=ResponseRecorded)
            async for read in read_stream(self.bus.js, RESPONSES)
        ]

    def count(self, name: str, **labels: str) -> float:
        """A metric's value, 0 when it was never counted."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


GatewayFactory = Callable[..., Awaitable[Running]]


@pytest.fixture
async def gateway_factory(bus_factory, clean_streams) -> AsyncIterator[GatewayFactory]:
    """Starts gateways; keyword arguments are settings of `[gateway]`."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(
            nats: dict[str, Any] | None = None,
            alarm: AlarmSettings | None = None,
            replays: Replays | None = None,
            telemetry: TelemetrySettings | None = None,
            archive: ArchiveSettings | None = None,
            **gateway: Any,
        ) -> Running:
            bus = await bus_factory("gateway", **(nats or {}))
            bus.cold = cold_events(archive or ArchiveSettings())
            bus.cold_images = archived_images(archive or ArchiveSettings())
            metrics = Metrics()
            settings = Settings(
                gateway=GatewaySettings(**{"port": 0} | gateway),
                alarm=alarm or AlarmSettings(),
                telemetry=telemetry or TelemetrySettings(),
                archive=archive or ArchiveSettings(),
            )
            service = GatewayService(settings, bus, metrics, replays, answers=answer_index(settings))
            await service.start()
            stack.push_async_callback(service.drain, 0.1)
            http = await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{service.port}", timeout=30)
            )
            return Running(service, http, metrics, bus)

        yield make


@pytest.fixture
async def gateway(gateway_factory) -> Running:
    """A gateway with default settings."""
    return await gateway_factory()


@pytest.fixture
def response() -> Callable[..., dict[str, Any]]:
    """A valid response with a new id."""
    numbers = itertools.count(1)

    def make(**changes: Any) -> dict[str, Any]:
        return {"id": f"r{next(numbers)}", "model": "heron-7b", "answer": "A dog sits on a mat."} | changes

    return make


@pytest.fixture
async def publish(bus) -> Callable[..., Awaitable[None]]:
    """Puts an outcome into the stream, as the scoring service does."""
    return publisher(bus)


def publisher(bus: Any) -> Callable[..., Awaitable[None]]:
    async def put(
        name: str, *, refuted: int = 0, supported: int = 3, replace: bool = False, **changes: Any
    ) -> None:
        claims = tuple(
            JudgedClaim(text=text, category="entity", unit=0, decision=decision)
            for text, decision in [("There is a dog.", Decision.REFUTED)] * refuted
            + [("There is a mat.", Decision.SUPPORTED)] * supported
        )
        outcome = ResponseScored(
            **{
                "id": name,
                "model": "heron-7b",
                "protocol": "faithscore",
                "outcome": OutcomeKind.SCORED,
                "score": supported / max(1, supported + refuted),
                "judges": {"extraction": Judge(engine="rules"), "verification": Judge(engine="reference")},
                "units": (
                    SubSentence(start=0, end=20, text="A dog sits on a mat.", label=Label.DESCRIPTIVE),
                ),
                "claims": claims,
                "eligible": len(claims),
                "decided": len(claims),
                "answer_words": 6,
                "recorded_at": time.time(),
                "scored_at": time.time(),
            }
            | changes
        )
        message = outcomes.outgoing(outcome)
        if replace:
            message = msgspec.structs.replace(message, expect=None)
        await bus.create(message)

    return put


def _encoded(kind: str, size: tuple[int, int] = (32, 24), **options: Any) -> bytes:
    picture = Image.new("RGB", size)
    picture.putdata(
        [(x * 7 % 256, y * 11 % 256, (x ^ y) % 256) for y in range(size[1]) for x in range(size[0])]
    )
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def _animated(kind: str) -> bytes:
    frames = [Image.new("RGB", (16, 16), color) for color in ("red", "green", "blue")]
    out = io.BytesIO()
    frames[0].save(out, kind, save_all=True, append_images=frames[1:], duration=100)
    return out.getvalue()


def _bomb(side: int = 50_000) -> bytes:
    """A PNG of a few hundred bytes that declares side × side pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 100_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.fixture
def pictures() -> SimpleNamespace:
    """Image files, good and bad, as bytes."""
    return SimpleNamespace(encoded=_encoded, animated=_animated, bomb=_bomb)


@pytest.fixture
async def image_server() -> AsyncIterator[Server]:
    """A server of images elsewhere."""
    async with image_servers() as server:
        yield server
