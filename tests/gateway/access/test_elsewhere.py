"""A gateway that asks nobody answers its own machine alone, unless it was opened."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from groundwatch.gateway.auth import host_of
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceStub
from groundwatch.runtime.settings.login import is_loopback

ANSWER = {"id": "r1", "model": "m", "answer": "A dog."}


def own_address() -> str:
    """An address of this machine that is not loopback, so that who connects to it comes from there."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("needs a network besides loopback")
        return str(probe.getsockname()[0])


async def told(gateway: Any, host: str, **headers: str) -> tuple[int, str]:
    async with httpx.AsyncClient(base_url=f"http://{host}:{gateway.service.port}") as http:
        reply = await http.get("/v1/report", headers=headers)
        return reply.status_code, reply.json().get("reason", "")


async def test_who_comes_from_elsewhere_gets_nothing_where_nobody_is_asked(gateway_factory):
    elsewhere = own_address()
    gateway = await gateway_factory(host="0.0.0.0", grpc_port=0)
    assert await told(gateway, "127.0.0.1") == (200, "")
    assert await told(gateway, elsewhere) == (403, "elsewhere")
    # Only a proxy on this machine is believed whose requests it passes on.
    assert await told(gateway, elsewhere, **{"X-Forwarded-For": "127.0.0.1"}) == (403, "elsewhere")
    assert await told(gateway, "127.0.0.1", **{"X-Forwarded-For": "203.0.113.9"}) == (403, "elsewhere")
    async with httpx.AsyncClient(base_url=f"http://{elsewhere}:{gateway.service.port}") as http:
        assert (await http.post("/v1/responses", json=ANSWER)).status_code == 403
        page = await http.get("/", headers={"Accept": "text/html"})
        assert page.status_code == 403 and "gateway.open" in page.text
        assert (await http.get("/login")).headers["location"] == "/"
        for path in ("/nothing", "/metrics", "/v1/images/" + "0" * 64):
            assert (await http.get(path)).status_code == 403, path
        for path in ("/healthz", "/readyz"):
            assert (await http.get(path)).status_code == 200
        assert "gateway.open" in (await http.get("/readyz")).text
    async with grpc.aio.insecure_channel(f"{elsewhere}:{gateway.service.grpc_port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await MonitorServiceStub(channel).GetResponse(pb.GetResponseRequest(id="x"), timeout=10)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.service.grpc_port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await MonitorServiceStub(channel).GetResponse(pb.GetResponseRequest(id="x"), timeout=10)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert await gateway.events() == []


async def test_an_open_gateway_answers_everybody(gateway_factory):
    elsewhere = own_address()
    gateway = await gateway_factory(host="0.0.0.0", open=True)
    assert await told(gateway, elsewhere) == (200, "")
    assert "gateway.open" not in (await gateway.http.get("/readyz")).text


async def test_where_everybody_is_asked_it_matters_not_where_they_are(gateway_factory, tokens_file: Path):
    elsewhere = own_address()
    gateway = await gateway_factory(host="0.0.0.0", open=True, tokens_file=str(tokens_file))
    for host in (elsewhere, "127.0.0.1"):
        assert await told(gateway, host) == (401, "unauthenticated")
        bearer = {"Authorization": "Bearer every-token-0123456789"}
        assert await told(gateway, host, **bearer) == (200, "")


@pytest.mark.parametrize(
    ("peer", "own"),
    [
        ("ipv4:127.0.0.1:5000", True),
        ("ipv4:127.9.9.9:1", True),
        ("ipv6:[::1]:5000", True),
        ("ipv6:%5B::1%5D:5000", True),
        ("ipv6:[::ffff:127.0.0.1]:1", True),
        ("unix:", True),
        ("ipv4:10.0.0.1:5000", False),
        ("ipv6:[::ffff:10.0.0.1]:1", False),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", False),
        ("", False),
        ("ipv4:", False),
        ("other:127.0.0.1", False),
    ],
)
def test_where_a_call_comes_from(peer, own):
    assert is_loopback(host_of(peer)) is own
