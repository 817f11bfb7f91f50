"""What the gateway adds to a call that it passes on: one caller, one call after the other.

Four processes share the machine: the API of a model that answers at once, a NATS server, `groundwatch serve
gateway` and a client, which calls the API itself and through the gateway in turns. A call carries an image of
`image` bytes. Every call that passed must be recorded.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from groundwatch.errors import CheckFailed
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import RESPONSES
from ingest import HOST, gateway

PATH = "/v1/chat/completions"
WARM_UP = 20
READY_SECONDS = 30.0
NUMBERS = itertools.count(1)


async def measure(calls: int = 400, image: int = 200_000) -> dict[str, Any]:
    """Milliseconds: `direct` and `passed` are medians, `added` is of the pairs of calls."""
    port, ports = free_port(), {"http": free_port(), "grpc": free_port()}
    upstream = f"http://{HOST}:{port}"
    os.environ["GROUNDWATCH_GATEWAY__PROXY__UPSTREAMS"] = json.dumps({"openai": upstream})
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, str(port))
    with tempfile.TemporaryDirectory(prefix="groundwatch-bench-") as name:
        server = NatsServer(Path(name) / "nats")
        await server.start()
        bus = Bus(NatsSettings(url=server.url), name="bench")
        try:
            await bus.connect()
            await provision(bus.js)
            async with gateway(Path(name), server.url, ports), httpx.AsyncClient(timeout=60) as http:
                through = f"http://{HOST}:{ports['http']}/openai"
                await _until_ready(http, upstream)
                seconds = {base: list[float]() for base in (upstream, through)}
                for number in range(WARM_UP + calls):
                    body = _call(number, image)
                    for base, taken in seconds.items():
                        began = time.perf_counter()
                        (await http.post(base + PATH, content=body)).raise_for_status()
                        taken.append(time.perf_counter() - began)
                recorded = await _recorded(bus, WARM_UP + calls)
        finally:
            await bus.close()
            await server.stop()
            process.terminate()
            await process.wait()
    direct, passed = (taken[WARM_UP:] for taken in seconds.values())
    added = statistics.median(later - first for first, later in zip(direct, passed, strict=True))
    return {
        "calls": calls,
        "image_bytes": image,
        "direct_p50": round(statistics.median(direct) * 1e3, 2),
        "passed_p50": round(statistics.median(passed) * 1e3, 2),
        "added_p50": round(added * 1e3, 2),
        "recorded": recorded,
        "ok": added <= 2e-3,
    }


def _call(number: int, image: int) -> bytes:
    # Another image each time, that nobody can decode: what becomes of it is no part of this.
    url = "data:image/png;base64," + base64.b64encode(number.to_bytes(8, "big") + bytes(image)).decode()
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    return json.dumps({"model": "heron", "messages": [{"role": "user", "content": content}]}).encode()


async def _until_ready(http: httpx.AsyncClient, upstream: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            await http.post(upstream + PATH, content=_call(0, 0))
        except httpx.TransportError as error:
            if time.monotonic() > deadline:
                raise CheckFailed("the API of the model did not come up") from error
            await asyncio.sleep(0.1)
        else:
            return


async def _recorded(bus: Bus, calls: int) -> int:
    deadline = time.monotonic() + READY_SECONDS
    while (found := (await bus.js.stream_info(RESPONSES)).state.messages) < calls:
        if time.monotonic() > deadline:
            raise CheckFailed(f"{calls} calls passed and {found} are recorded")
        await asyncio.sleep(0.1)
    return found


async def _answer(request: Request) -> JSONResponse:
    await request.body()
    message = {"role": "assistant", "content": "A brown dog sits on a red mat."}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return JSONResponse({"id": f"chatcmpl-{next(NUMBERS)}", "model": "heron-7b", "choices": choices})


if __name__ == "__main__":
    application = Starlette(routes=[Route(PATH, _answer, methods=["POST"])])
    uvicorn.run(application, host=HOST, port=int(sys.argv[1]), log_level="error")
