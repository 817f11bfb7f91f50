"""SIGTERM at a gateway while NATS does not answer: whoever waits is told the truth before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import grpc
import httpx
import pytest
from tests.support.frozen import frozen

from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceStub
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.services.run import DRAIN_SECONDS
from groundwatch.runtime.settings import NatsSettings

pytestmark = pytest.mark.slow

LINES = 40


async def ready(http: httpx.AsyncClient, gateway: Process) -> None:
    for _ in range(600):
        assert gateway.returncode is None
        try:
            if (await http.get("/readyz")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)
    raise AssertionError("never ready")


async def test_a_gateway_that_is_told_to_stop_answers_all_who_wait(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    await server.start()
    bus = Bus(NatsSettings(url=server.url), name="provision")
    await bus.connect()
    await provision(bus.js)
    await bus.close()
    port, grpc_port = free_port(), free_port()
    environment = dict(
        os.environ,
        GROUNDWATCH_NATS__URL=server.url,
        GROUNDWATCH_GATEWAY__PORT=str(port),
        GROUNDWATCH_GATEWAY__GRPC_PORT=str(grpc_port),
    )
    command = ("-m", "groundwatch", "serve", "gateway", "--metrics-port", str(free_port()))
    gateway = await asyncio.create_subprocess_exec(sys.executable, *command, env=environment, stderr=PIPE)
    try:
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
            grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}") as channel,
        ):
            await ready(http, gateway)
            # It knows how many partitions there are, so that the next ones are sent.
            first = await http.post("/v1/responses", json={"id": "first", "model": "m", "answer": "A dog."})
            assert first.status_code == 202, first.text
            with frozen(server.pid):
                lines = [json.dumps({"id": f"r{n}", "model": "m", "answer": "A dog."}) for n in range(LINES)]
                bulk = asyncio.create_task(
                    http.post(
                        "/v1/responses",
                        content="\n".join(lines),
                        headers={"Content-Type": "application/x-ndjson"},
                    )
                )
                single = asyncio.create_task(
                    http.post("/v1/responses", json={"id": "single", "model": "m", "answer": "A dog."})
                )
                submit = MonitorServiceStub(channel).Submit(
                    pb.SubmitRequest(response=pb.Response(id="grpc", model="m", answer="A dog.")), timeout=60
                )
                await asyncio.sleep(1)
                assert not bulk.done() and not single.done() and not submit.done()
                began = time.monotonic()
                gateway.send_signal(signal.SIGTERM)
                told, reply = await bulk, await single
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await submit
                async with asyncio.timeout(60):
                    _, log = await gateway.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            gateway.kill()
        await server.stop()
    assert (reply.status_code, reply.json()["reason"]) == (503, "unconfirmed")
    assert reply.headers["retry-after"]
    summary = told.json()
    assert (summary["accepted"], summary["refused"], summary["retry_from"]) == (0, LINES, 1)
    assert {error["reason"] for error in summary["errors"]} <= {"unconfirmed", "unavailable"}
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert time.monotonic() - began < DRAIN_SECONDS + 15
    assert gateway.returncode == 0
    assert b"Traceback" not in log
