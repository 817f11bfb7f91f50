"""SIGTERM at a gateway that load balancers still send to: nobody is refused, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import RESPONSES

DELAY = 3.0


async def test_connections_are_taken_until_the_delay_is_over(own_server: NatsServer) -> None:
    bus = Bus(NatsSettings(url=own_server.url), name="test")
    await bus.connect()
    await provision(bus.js)
    port, grpc_port, telemetry = free_port(), free_port(), free_port()
    environment = dict(
        os.environ,
        GROUNDWATCH_NATS__URL=own_server.url,
        GROUNDWATCH_GATEWAY__PORT=str(port),
        GROUNDWATCH_GATEWAY__GRPC_PORT=str(grpc_port),
        GROUNDWATCH_GATEWAY__DRAIN_DELAY=str(DELAY),
    )
    command = ("-m", "groundwatch", "serve", "gateway", "--metrics-port", str(telemetry))
    gateway = await asyncio.create_subprocess_exec(sys.executable, *command, env=environment, stderr=PIPE)
    reading = asyncio.create_task(gateway.communicate())
    url = f"http://127.0.0.1:{port}"
    recorded: set[str] = set()
    ended: Counter[object] = Counter()
    accepted_until = told = 0.0

    async def send(sender: int) -> None:
        """Each on a connection of its own, until the door is shut: not before the delay is over."""
        nonlocal accepted_until
        number = 0
        while True:
            name, number = f"{sender}-{number}", number + 1
            try:
                async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as http:
                    reply = await http.post(
                        "/v1/responses", json={"id": name, "model": "m", "answer": "A dog."}
                    )
            except httpx.TransportError:
                assert told and time.monotonic() >= told + DELAY
                return
            ended[reply.status_code] += 1
            accepted_until = time.monotonic()
            if reply.status_code == 202:
                recorded.add(name)

    async def ready(at: int) -> int:
        async with httpx.AsyncClient(timeout=10, trust_env=False) as http:
            return (await http.get(f"http://127.0.0.1:{at}/readyz")).status_code

    try:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if await ready(port) == 200:
                        break
                await asyncio.sleep(0.05)
        senders = [asyncio.create_task(send(sender)) for sender in range(4)]
        while len(recorded) < 20:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        told = time.monotonic()
        gateway.send_signal(signal.SIGTERM)
        while await ready(port) == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert await ready(telemetry) == 503
        async with grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            while True:
                found = await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
                if found.status == health_pb2.HealthCheckResponse.NOT_SERVING:
                    break
                await asyncio.sleep(0.02)
        await asyncio.gather(*senders)
        _, log = await reading
    finally:
        with contextlib.suppress(ProcessLookupError):
            gateway.kill()
        await reading
    # What came when the delay was over, before the door was shut, was refused by an answer.
    assert set(ended) <= {202, 503} and ended[202] == len(recorded)
    assert accepted_until >= told + DELAY - 1
    assert (gateway.returncode, b"Traceback" in log) == (0, False)
    assert len([read async for read in read_stream(bus.js, RESPONSES)]) == len(recorded)
    await bus.close()
