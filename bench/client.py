"""What recording costs the application that records: microseconds that each recorded call takes longer.

One thread calls, with a pause after each call, as an application does that waits for models; the client's
own thread sends meanwhile. Three gateways in turn: a real one beside its NATS server, one that takes half a
second for each request, and none. `record` is `Recorder.record` with an image of 200 kB; in turns with it the
same arguments are only copied, which is `copying`, and told is by how much the percentiles lie apart.
`wrap_openai` is a chat completion with such an image as a data URL, through OpenAI's client to a server in a
process of its own; wrapped and bare calls are made in turns. `added` is the time in the wrapped method less
that in the method it wraps, call by call, by how much its percentiles lie above those of a bare call measured
likewise, which is `measuring`; `paired` is how far the medians of whole calls lie apart. `cpu` is `added` of
the time that the calling thread worked itself: the rest it waited, for a core or the interpreter's lock.
`failures` counts calls that raised or returned something else. Exit status 1 above the goal, or with any.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import openai
from PIL import Image

from groundwatch.client import Recorder, wrap_openai
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.settings import NatsSettings
from ingest import HOST, gateway

GOAL_US = 100.0
SIDE = 258
"""Pixels of an image of noise, which takes 200 kB."""
PAUSE = 0.001
WARM_UP = 50
ANSWER = "A brown dog sits on a red mat beside a small ball. Behind it, a window lets in the light."
PROMPT = "Describe this image in detail."

SERVER = """
import asyncio, json, sys

async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            lower, body = head.lower(), b""
            if b"chunked" in lower:
                while size := int((await reader.readline()).strip() or b"0", 16):
                    await reader.readexactly(size + 2)
                await reader.readline()
            else:
                await reader.readexactly(int(lower.partition(b"content-length:")[2].split()[0]))
            await asyncio.sleep(float(sys.argv[2]))
            data = sys.argv[3].encode()
            about = f"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: {len(data)}"
            writer.write(about.encode() + b"\\r\\n\\r\\n" + data)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), limit=2**20)
    await server.serve_forever()

asyncio.run(main())
"""
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}}
COMPLETION = {
    "id": "chatcmpl-0123456789",
    "object": "chat.completion",
    "created": 1,
    "model": "heron-7b",
    "choices": [CHOICE],
}


class Times:
    """Of each call: wall time, and the calling thread's own, in microseconds."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def call(self, work: Callable[[], Any]) -> Any:
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        result = work()
        ended = time.perf_counter_ns()
        self.cpu.append((time.thread_time_ns() - cpu) / 1000)
        self.wall.append((ended - wall) / 1000)
        return result


class Nested:
    """Times of calls, and of a method within them: between them lie the wrapper and the measuring."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was measured."""
        self.inner, self.outer = Times(), Times()

    def inside(self, resource: Any) -> None:
        """Measure its `create`."""
        create = resource.create
        resource.create = lambda **named: self.inner.call(lambda: create(**named))

    @property
    def wall(self) -> list[float]:
        return [whole - own for whole, own in zip(self.outer.wall, self.inner.wall, strict=True)]

    @property
    def cpu(self) -> list[float]:
        return [whole - own for whole, own in zip(self.outer.cpu, self.inner.cpu, strict=True)]


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def apart(more: list[float], less: list[float], share: float) -> float:
    return round(quantile(more, share) - quantile(less, share), 1)


def noise() -> bytes:
    out = io.BytesIO()
    Image.frombytes("RGB", (SIDE, SIDE), os.urandom(3 * SIDE * SIDE)).save(out, "PNG")
    return out.getvalue()


def measure_record(url: str, calls: int) -> dict[str, Any]:
    recorder = Recorder(url, sender="bench")
    image = noise()
    recording, copying, failures = Times(), Times(), 0
    for number in range(calls + WARM_UP):
        given = {
            "model": "heron-7b",
            "prompt": PROMPT,
            "answer": ANSWER,
            "images": [image],
            "tags": {"a": "b"},
        }
        copying.call(
            lambda given=given: {**given, "images": list(given["images"]), "tags": dict(given["tags"])}
        )
        try:
            failures += not recording.call(lambda given=given: recorder.record(**given))
        except Exception:
            failures += 1
        time.sleep(PAUSE)
        if number == WARM_UP:
            recording, copying = Times(), Times()
    lost = dict(recorder.lost)
    recorder.close(0.0)
    return {
        "added_p50_us": apart(recording.wall, copying.wall, 0.50),
        "added_p99_us": apart(recording.wall, copying.wall, 0.99),
        "cpu_p99_us": apart(recording.cpu, copying.cpu, 0.99),
        "copying_p99_us": round(quantile(copying.wall, 0.99), 1),
        "failures": failures,
        "dropped": lost.get("full", 0),
    }


def measure_wrapped(url: str, models: str, calls: int) -> dict[str, Any]:
    recorder = Recorder(url, sender="bench")
    bare = openai.OpenAI(base_url=models, api_key="x", timeout=60)
    client = openai.OpenAI(base_url=models, api_key="x", timeout=60)
    plain, wrapped = Nested(), Nested()
    plain.inside(bare.chat.completions)
    wrapped.inside(client.chat.completions)
    wrap_openai(client, recorder)
    image = base64.b64encode(noise()).decode()
    content = [
        {"type": "text", "text": PROMPT},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
    ]
    asked: dict[str, Any] = {"model": "heron-7b", "messages": [{"role": "user", "content": content}]}
    failures = 0
    for number in range(calls + WARM_UP):
        expected = plain.outer.call(lambda: bare.chat.completions.create(**asked))
        time.sleep(PAUSE)
        try:
            answer = wrapped.outer.call(lambda: client.chat.completions.create(**asked))
            failures += answer != expected
        except Exception:
            failures += 1
        time.sleep(PAUSE)
        if number == WARM_UP:
            plain.begin()
            wrapped.begin()
    lost = dict(recorder.lost)
    recorder.close(0.0)
    return {
        "added_p50_us": apart(wrapped.wall, plain.wall, 0.50),
        "added_p99_us": apart(wrapped.wall, plain.wall, 0.99),
        "cpu_p99_us": apart(wrapped.cpu, plain.cpu, 0.99),
        "measuring_p99_us": round(quantile(plain.wall, 0.99), 1),
        "paired_p50_us": apart(wrapped.outer.wall, plain.outer.wall, 0.50),
        "bare_p50_us": round(statistics.median(plain.outer.wall), 1),
        "failures": failures,
        "dropped": lost.get("full", 0),
    }


@contextlib.asynccontextmanager
async def server(seconds: float, body: str) -> AsyncIterator[str]:
    """One in a process of its own, that answers every request with `body` after so many seconds."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(port), str(seconds), body
    )
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, port)
                writer.close()
                break
            await asyncio.sleep(0.05)
        yield f"http://{HOST}:{port}"
    finally:
        process.terminate()
        await process.wait()


async def measure(*, calls: int = 2_000) -> dict[str, Any]:
    """Every gateway in turn, `calls` recorded calls of each kind."""
    found: dict[str, Any] = {}
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="groundwatch-bench-")))
        models = f"{await stack.enter_async_context(server(0.0, json.dumps(COMPLETION)))}/v1"
        nats = NatsServer(folder / "nats")
        await nats.start()
        stack.push_async_callback(nats.stop)
        bus = Bus(NatsSettings(url=nats.url), name="bench")
        await bus.connect()
        await provision(bus.js)
        await bus.close()
        ports = {"http": free_port(), "grpc": free_port()}
        async with gateway(folder, nats.url, ports):
            found["there"] = await _both(f"http://{HOST}:{ports['http']}", models, calls)
        async with server(0.5, '{"accepted": 1}') as slow:
            found["slow"] = await _both(slow, models, calls)
        found["away"] = await _both(f"http://{HOST}:{free_port()}", models, calls)
    kinds = [kind for gateways in found.values() for kind in gateways.values()]
    found["goal_p99_us"] = GOAL_US
    found["worst_p99_us"] = max(kind["added_p99_us"] for kind in kinds)
    found["failures"] = sum(kind["failures"] for kind in kinds)
    found["ok"] = found["worst_p99_us"] <= GOAL_US and not found["failures"]
    return found


async def _both(url: str, models: str, calls: int) -> dict[str, Any]:
    return {
        "record": await asyncio.to_thread(measure_record, url, calls),
        "wrap_openai": await asyncio.to_thread(measure_wrapped, url, models, calls),
    }
