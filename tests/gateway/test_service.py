"""The gateway as a service and a web server: health, errors in one line, draining, the page."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import pytest

from groundwatch.errors import UsageError
from groundwatch.gateway.service import GatewayService
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.telemetry.metrics import Metrics


async def test_health_and_metrics(gateway, response):
    await gateway.post(response())
    assert (await gateway.http.get("/healthz")).status_code == 200
    assert (await gateway.http.get("/readyz")).status_code == 200
    metrics = await gateway.http.get("/metrics")
    assert 'groundwatch_responses_total{model="heron-7b",tenant="default"} 1.0' in metrics.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/responses", 405),
        ("PUT", "/v1/responses", 405),
        ("DELETE", "/v1/images/x", 405),
        ("POST", "/v1/scores", 405),
        ("POST", "/", 405),
        ("GET", "/v1/responses/", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/%0a%0d<script>", 404),
    ],
)
async def test_errors_are_one_line_of_json(gateway, method, path, status):
    reply = await gateway.http.request(method, path)
    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/json"
    assert "\n" not in reply.json()["error"]


async def test_not_ready_without_nats(gateway_factory, nats_server):
    gateway = await gateway_factory()
    await gateway.bus.client.close()
    reply = await gateway.http.get("/readyz")
    assert reply.status_code == 503
    assert "closed for good" in reply.text
    # Nothing but another process opens it again.
    assert (await gateway.http.get("/healthz")).status_code == 503


async def test_a_port_that_is_taken_is_told(gateway, bus, nats_server):
    settings = Settings(gateway=GatewaySettings(port=gateway.service.port))
    service = GatewayService(settings, bus, Metrics())
    with pytest.raises(UsageError, match=str(gateway.service.port)):
        await service.start()
    await service.drain(1)
    other = GatewayService(settings, bus, Metrics())
    other.any_port = True
    await other.start()
    assert other.port not in (0, gateway.service.port)
    await other.drain(1)


async def test_draining_finishes_open_requests_and_ends_watching(gateway, response):
    sent = asyncio.Event()

    async def slow_body():
        yield json.dumps(response()).encode() + b"\n"
        sent.set()
        await asyncio.sleep(0.5)
        yield json.dumps(response()).encode() + b"\n"

    async def watch() -> int:
        async with gateway.http.stream("GET", "/v1/scores") as reply:
            return len([line async for line in reply.aiter_lines()])

    posting = asyncio.create_task(
        gateway.http.post(
            "/v1/responses", content=slow_body(), headers={"Content-Type": "application/x-ndjson"}
        )
    )
    watching = asyncio.create_task(watch())
    await sent.wait()
    await asyncio.sleep(0.1)
    await gateway.service.drain(5)
    told = (await posting).json()
    assert (told["accepted"], told["refused"], told["retry_from"]) == (1, 1, 2)
    assert await watching > 0
    with pytest.raises(httpx.ConnectError):
        await gateway.http.get("/healthz")


async def test_draining_does_not_wait_longer_than_its_patience(gateway):
    async def endless():
        while True:
            yield b"\n"
            await asyncio.sleep(0.05)

    async def post() -> None:
        with pytest.raises(httpx.TransportError):
            await gateway.http.post(
                "/v1/responses", content=endless(), headers={"Content-Type": "application/x-ndjson"}
            )

    posting = asyncio.create_task(post())
    await asyncio.sleep(0.2)
    began = asyncio.get_running_loop().time()
    await gateway.service.drain(0.5)
    assert asyncio.get_running_loop().time() - began < 5
    posting.cancel()


async def test_pages_load_nothing_from_elsewhere_and_nothing_inline(gateway):
    reply = await gateway.http.get("/")
    assert reply.headers["content-type"].startswith("text/html")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe-inline" not in policy
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", reply.text)
    assert not re.findall(r"\son\w+=|style=|<style|<script>", reply.text)
