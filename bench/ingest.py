"""How many responses each door takes, acknowledged once the stream has them, and whether memory grows.

Three processes share the machine: a NATS server, `groundwatch serve gateway` and a client. The client sends
over HTTP in requests of many lines, and over gRPC in one stream with its acknowledgements. Nothing consumes
the responses. Memory is the gateway's, resident, read while responses come in. Afterwards the stream is
counted: everything that was acknowledged must be in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil

import groundwatch
from groundwatch.errors import CheckFailed
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import RESPONSES

DOORS = ("http", "grpc")
ANSWER = "A brown dog sits on a red mat beside a small ball. Behind it, a window lets in the light. " * 8
PROMPT = "Describe this image in detail."
LINES = 2_000
"""Responses in a bulk request."""

REQUESTS = 2
"""Bulk requests at once."""

MESSAGE = 50
"""Responses in a message of the stream."""

WARM_UP = 2_000
MIB = 2**20
LOOK_SECONDS = 0.25
HOST = "127.0.0.1"


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What the client saw: `seconds` from the first byte to the last acknowledgement."""

    recorded: int
    seconds: float
    cpu: float


async def over_http(port: int, prefix: str, count: int) -> int:
    """How many were acknowledged as recorded."""
    encoder = msgspec.json.Encoder()
    starts = iter(range(0, count, LINES))

    async def sender(http: httpx.AsyncClient) -> int:
        recorded = 0
        for start in starts:
            lines = [
                encoder.encode(
                    {"id": f"{prefix}{number}", "model": "heron-7b", "answer": ANSWER, "prompt": PROMPT}
                )
                for number in range(start, min(start + LINES, count))
            ]
            reply = await http.post("/v1/responses", content=b"\n".join(lines))
            reply.raise_for_status()
            recorded += reply.json()["accepted"]
        return recorded

    headers = {"Content-Type": "application/x-ndjson"}
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}", timeout=120, headers=headers) as http:
        return sum(await asyncio.gather(*(sender(http) for _ in range(REQUESTS))))


async def over_grpc(port: int, prefix: str, count: int) -> int:
    """How many were acknowledged as recorded."""
    import grpc

    from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
    from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceStub

    async def requests() -> AsyncIterator[pb.SubmitStreamRequest]:
        for start in range(0, count, MESSAGE):
            yield pb.SubmitStreamRequest(
                responses=[
                    pb.Response(id=f"{prefix}{number}", model="heron-7b", answer=ANSWER, prompt=PROMPT)
                    for number in range(start, min(start + MESSAGE, count))
                ]
            )

    recorded = 0
    async with grpc.aio.insecure_channel(f"{HOST}:{port}") as channel:
        async for told in MonitorServiceStub(channel).SubmitStream(requests(), wait_for_ready=True):
            recorded += sum(result.status == pb.SUBMIT_STATUS_RECORDED for result in told.results)
    return recorded


async def send(door: str, port: int, prefix: str, count: int) -> Sent:
    """The client's part."""
    work = over_http if door == "http" else over_grpc
    await work(port, f"{prefix}w", WARM_UP)
    began, before = time.monotonic(), time.process_time()
    recorded = await work(port, prefix, count)
    return Sent(recorded=recorded, seconds=time.monotonic() - began, cpu=time.process_time() - before)


@contextlib.asynccontextmanager
async def gateway(folder: Path, url: str, ports: dict[str, int]) -> AsyncIterator[psutil.Process]:
    """The gateway, as it is served."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(groundwatch.__file__).parents[1]),
        "GROUNDWATCH_NATS__URL": url,
        "GROUNDWATCH_GATEWAY__PORT": str(ports["http"]),
        "GROUNDWATCH_GATEWAY__GRPC_PORT": str(ports["grpc"]),
        "GROUNDWATCH_GATEWAY__INTAKE__MAX_BACKLOG": "100000000",
        "GROUNDWATCH_TELEMETRY__PORT": "0",
    }
    with (folder / "gateway.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "groundwatch", "serve", "gateway", env=environment, stdout=log, stderr=log
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://{HOST}:{ports['http']}") as http:
            for _ in range(600):
                with contextlib.suppress(httpx.TransportError):
                    if (await http.get("/readyz")).status_code == 200:
                        break
                if process.returncode is not None:
                    raise CheckFailed(f"the gateway ended: {(folder / 'gateway.log').read_text()[-2000:]}")
                await asyncio.sleep(0.1)
        yield psutil.Process(process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def one_door(door: str, port: int, count: int, bus: Bus, served: psutil.Process) -> dict[str, Any]:
    """Send from a process of its own; what came of it."""
    before = (await bus.js.stream_info(RESPONSES)).state.messages
    cpu = sum(served.cpu_times()[:2])
    client = await asyncio.create_subprocess_exec(
        sys.executable, __file__, door, str(port), f"{door}-", str(count), stdout=asyncio.subprocess.PIPE
    )
    held: list[tuple[int, float]] = []

    async def look() -> None:
        while True:
            have = (await bus.js.stream_info(RESPONSES)).state.messages - before
            held.append((have, served.memory_info().rss / MIB))
            await asyncio.sleep(LOOK_SECONDS)

    looking = asyncio.create_task(look())
    try:
        out, _ = await client.communicate()
    finally:
        looking.cancel()
        if client.returncode is None:
            client.kill()
    if client.returncode != 0:
        raise CheckFailed(f"the client over {door} ended with {client.returncode}")
    sent = msgspec.json.decode(out, type=Sent)
    total = count + WARM_UP
    stored = (await bus.js.stream_info(RESPONSES)).state.messages - before
    marks = {
        mark: _held(held, int(total * share)) for mark, share in (("25%", 0.25), ("50%", 0.5), ("100%", 1))
    }
    return {
        "per_second": round(count / sent.seconds),
        "seconds": round(sent.seconds, 2),
        "acknowledged": sent.recorded,
        "lost": total - stored,
        "gateway_cpu_us": round((sum(served.cpu_times()[:2]) - cpu) / total * 1e6),
        "client_cpu_us": round(sent.cpu / count * 1e6),
        "rss_mib": marks,
        "growth_mib": round(marks["100%"] - marks["25%"], 1),
    }


def _held(held: list[tuple[int, float]], have: int) -> float:
    """MiB when the stream had so many; at the end where it never was seen so."""
    return round(next((rss for seen, rss in held if seen >= have), held[-1][1]), 1)


async def measure(*, responses: int = 100_000) -> dict[str, Any]:
    """Responses per second through each door, in one run; processor time in µs for each response."""
    with tempfile.TemporaryDirectory(prefix="groundwatch-ingest-") as folder:
        server = NatsServer(Path(folder) / "nats")
        await server.start()
        bus = Bus(NatsSettings(url=server.url), name="ingest")
        ports = {door: free_port() for door in DOORS}
        try:
            await bus.connect()
            await provision(bus.js)
            async with gateway(Path(folder), server.url, ports) as served:
                found = {door: await one_door(door, ports[door], responses, bus, served) for door in DOORS}
        finally:
            await bus.close()
            await server.stop()
    return {
        "responses": responses,
        "answer_bytes": len(ANSWER),
        "cores": psutil.cpu_count(),
        "load": round(psutil.getloadavg()[0], 1),
        **found,
        "per_second": min(found[door]["per_second"] for door in DOORS),
        "lost": sum(found[door]["lost"] for door in DOORS),
        "growth_mib": max(found[door]["growth_mib"] for door in DOORS),
    }


def main() -> None:
    """The client's process."""
    from groundwatch.system.connecting import run

    door, port, prefix, count = sys.argv[1:]
    sys.stdout.buffer.write(msgspec.json.encode(run(send(door, int(port), prefix, int(count)))))


if __name__ == "__main__":
    main()
