"""How many of the product's functions run for a response: in the gateway for a POST, and in three stages.

A gateway takes responses one a POST; then extraction, verification and scoring, with the embedded engines or
with `--noop 1` those that do nothing, work off what is there. Counted is each call of a function whose file
is the product's, in any thread; a generator or coroutine that goes on is no new call, and comprehensions are
none. Counted is what a warm system does; the stages have their responses from a gateway in another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx
import msgspec

import groundwatch
import hop
import ingest
from groundwatch.runtime.delivery.bus import ENCODER, Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.services.run import running
from groundwatch.runtime.settings import ExtractionSettings, NatsSettings, Settings, StageSettings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system.services import make_service
from groundwatch.topology import OUTCOMES

PRODUCT = str(Path(groundwatch.__file__).parent)
STAGES = ("extraction", "verification", "scoring")
WARM_UP = 50
"""Responses that come before any is counted."""

TOP = 15
"""Files that are named."""


_counts: list[Counter[CodeType]] = []


@contextlib.contextmanager
def counted() -> Iterator[Counter[CodeType]]:
    """Calls by the function's code, while the block runs."""
    codes: Counter[CodeType] = Counter()
    _counts.append(codes)
    try:
        yield codes
    finally:
        _counts.clear()


def _on_event(frame: FrameType, event: str, _: object) -> None:
    if _counts and event == "call" and _starts(frame.f_code, frame.f_lasti):
        _counts[0][frame.f_code] += 1


@functools.cache
def _starts(code: CodeType, at: int) -> bool:
    """Whether a frame begins; one that goes on after a `yield` or `await` is told of as a call too."""
    return code.co_code[at + 1] == 0  # the argument of RESUME


def figures(codes: Counter[CodeType], responses: int) -> dict[str, Any]:
    """For a response: its calls, in how many files they are, and the files with most of them."""
    files: Counter[str] = Counter()
    for code, number in codes.items():
        if code.co_filename.startswith(PRODUCT) and not code.co_name.endswith("comp>"):
            files[str(Path(code.co_filename).relative_to(PRODUCT))] += number
    return {
        "calls": round(files.total() / responses, 1),
        "files": sum(number >= responses for number in files.values()),
        "top": {name: round(number / responses, 1) for name, number in files.most_common(TOP)},
    }


async def measure(*, responses: int = 200, noop: int = 0) -> dict[str, Any]:
    """Calls of the product's functions for each response."""
    threading.setprofile(_on_event)
    sys.setprofile(_on_event)
    engine = "noop" if noop else ""
    settings = Settings(
        gateway=GatewaySettings(port=0),
        extraction=ExtractionSettings(engine=engine),
        verification=StageSettings(engine=engine),
    )
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as name:
        folder = Path(name)
        server = NatsServer(folder / "nats")
        await server.start()
        settings = settings.model_copy(update={"nats": NatsSettings(url=server.url)})
        bus = Bus(settings.nats, name="bench")
        try:
            await bus.connect()
            await provision(bus.js)
            async with services(settings, "gateway") as (gateway,), client_of(gateway.port) as client:
                await post(client, 0, WARM_UP)
                with counted() as posts:
                    await post(client, WARM_UP, responses)
            ports = {door: free_port() for door in ingest.DOORS}
            async with (
                ingest.gateway(folder, server.url, ports),
                client_of(ports["http"]) as client,
                services(settings, *STAGES),
            ):
                before = WARM_UP + responses
                await all_judged(bus, before)
                with counted() as stages:
                    await post(client, before, responses)
                    await all_judged(bus, before + responses)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            await bus.close()
            await server.stop()
    return {
        "responses": responses,
        "post": figures(posts, responses),
        "stages": figures(stages, responses),
    }


@contextlib.asynccontextmanager
async def services(settings: Settings, *names: str) -> AsyncIterator[list[Any]]:
    """They run in this process, each on a connection of its own."""
    async with contextlib.AsyncExitStack() as stack:
        started = []
        for name in names:
            bus = Bus(settings.nats, name=name)
            await bus.connect()
            stack.push_async_callback(bus.close)
            service = make_service(name, settings, bus, Metrics())
            await stack.enter_async_context(running([service], bus))
            started.append(service)
        yield started


def client_of(port: int) -> httpx.AsyncClient:
    headers = {"Content-Type": "application/json"}
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, headers=headers)


async def post(client: httpx.AsyncClient, first: int, count: int) -> None:
    """Responses that all say something else, so that no cache knows them."""
    for number in range(first, first + count):
        event = msgspec.structs.replace(hop.recorded(number), answer=f"{hop.ANSWER}A sign says {number}.")
        reply = await client.post("/v1/responses", content=ENCODER.encode(event))
        reply.raise_for_status()


async def all_judged(bus: Bus, count: int) -> None:
    async with asyncio.timeout(240):
        while (await bus.js.stream_info(OUTCOMES)).state.messages < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
