"""NATS dies, freezes and comes back while callers send: they are told what is so, and soon."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.runtime.conftest import eventually
from tests.support.frozen import frozen

from groundwatch.gateway import refusals
from groundwatch.gateway.intake import window
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.services.run import DRAIN_SECONDS
from groundwatch.runtime.settings import NatsSettings
from groundwatch.topology import RESPONSES

WAIT = 1.0


@pytest.fixture
async def server(tmp_path) -> AsyncIterator[NatsServer]:
    server = NatsServer(tmp_path / "nats")
    await server.start()
    bus = Bus(NatsSettings(url=server.url), name="provision")
    await bus.connect()
    await provision(bus.js)
    await bus.close()
    yield server
    await server.stop()


@pytest.fixture
async def gateway(server, gateway_factory, monkeypatch) -> Any:
    monkeypatch.setattr(refusals, "ANSWER_SECONDS", WAIT)
    monkeypatch.setattr(window, "TIMEOUT", WAIT)
    return await gateway_factory(nats={"url": server.url, "publish_timeout": WAIT / 2})


async def killed(gateway, server: NatsServer) -> None:
    server.kill()
    await server.wait()
    await eventually(lambda: not gateway.bus.connected)


async def back(gateway, server: NatsServer) -> None:
    await server.restart()
    await eventually(lambda: gateway.bus.connected)


async def sent(gateway, body) -> Any:
    """Sent again until NATS, which was away, takes it."""
    for _ in range(100):
        reply = await gateway.post(body)
        if reply.status_code != 503:
            return reply
        await asyncio.sleep(0.1)
    raise AssertionError(reply.text)


async def ids(gateway) -> list[str]:
    return sorted(event.id for event in await gateway.events())


def anonymous(response) -> dict[str, Any]:
    return {name: value for name, value in response().items() if name != "id"}


async def test_what_was_refused_while_nats_was_away_is_not_recorded_later(gateway, server, response):
    await killed(gateway, server)
    for body in (anonymous(response), response(id="named")):
        reply = await gateway.post(body)
        assert (reply.status_code, reply.json()["reason"]) == (503, "unavailable")
        assert reply.headers["retry-after"]
    await back(gateway, server)
    assert (await sent(gateway, response(id="later"))).status_code == 202
    assert await ids(gateway) == ["later"]
    assert (await sent(gateway, response(id="named", answer="Corrected."))).status_code == 202


async def test_a_gateway_stays_among_those_that_traffic_is_sent_to(gateway, server, response):
    """NATS is away for all gateways: taken out, senders would be refused a connection, and told nothing."""
    await killed(gateway, server)
    reply = await gateway.http.get("/readyz")
    assert (reply.status_code, reply.json()["ready"]) == (200, True)
    assert "gateway: not connected to NATS" in reply.json()["notes"]
    refused = await gateway.post(response())
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
    assert (await gateway.http.get("/healthz")).status_code == 200
    await back(gateway, server)
    # A consumer may say so for a moment longer: it hears of it at its next fetch.
    notes = (await gateway.http.get("/readyz")).json().get("notes", [])
    assert "gateway: not connected to NATS" not in notes


async def test_of_what_was_sent_and_not_answered_the_truth_is_told(gateway, server, response):
    await sent(gateway, response(id="before"))
    with frozen(server.pid):
        told = (reply := await gateway.post(anonymous(response))).json()
    assert (reply.status_code, told["reason"]) == (503, "unconfirmed")
    assert reply.headers["retry-after"]
    again = await sent(gateway, anonymous(response) | {"id": told["id"]})
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")
    assert await ids(gateway) == sorted(["before", told["id"]])


@pytest.mark.slow
async def test_many_are_answered_soon_and_each_with_the_truth(gateway, server, response):
    lines = [anonymous(response) | {"answer": f"A dog, {number}."} for number in range(150)]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    await sent(gateway, response(id="before"))
    with frozen(server.pid):
        async with asyncio.timeout(8 * WAIT):
            reply = await gateway.post(body, bulk=True)
    summary = reply.json()
    assert (summary["accepted"], summary["refused"], summary["retry_from"]) == (0, 150, 1)
    unsure = {error["line"]: error["id"] for error in summary["errors"] if error["reason"] == "unconfirmed"}
    assert unsure
    for number, name in unsure.items():
        await sent(gateway, lines[number - 1] | {"id": name})
    assert await ids(gateway) == sorted(["before", *unsure.values()])


async def test_many_are_refused_soon_while_nats_is_away_and_not_recorded_later(gateway, server, response):
    await killed(gateway, server)
    body = b"".join(json.dumps(response(id=f"r{number}")).encode() + b"\n" for number in range(50))
    async with asyncio.timeout(8 * WAIT):
        summary = (await gateway.post(body, bulk=True)).json()
    assert (summary["refused"], summary["retry_from"]) == (50, 1)
    assert {error["reason"] for error in summary["errors"]} == {"unavailable"}
    await back(gateway, server)
    await sent(gateway, response(id="later"))
    assert await ids(gateway) == ["later"]


@pytest.mark.parametrize("away", ["killed", "frozen"])
async def test_every_question_is_answered_while_nats_is_away(gateway, server, response, pictures, away):
    picture = pictures.encoded("JPEG")
    if away == "killed":
        await killed(gateway, server)
    with frozen(server.pid) if away == "frozen" else contextlib.nullcontext():
        for asking in (
            gateway.http.get("/v1/responses/any"),
            gateway.http.get(f"/v1/images/{'0' * 64}"),
            gateway.http.post("/v1/images", content=picture, headers={"Content-Type": "image/jpeg"}),
            gateway.post(response(images=["0" * 64])),
            gateway.http.post("/v1/questions", json={"model": "m", "prompt": "What?", "images": ["0" * 64]}),
        ):
            async with asyncio.timeout(8 * WAIT):
                reply = await asking
            assert reply.status_code == 503, reply.text
            assert reply.json()["error"]
            assert reply.headers["retry-after"]


def test_no_wait_is_cut_by_a_drain():
    assert 2 * refusals.ANSWER_SECONDS < DRAIN_SECONDS
    assert refusals.ANSWER_SECONDS + window.TIMEOUT < DRAIN_SECONDS


async def test_of_a_stream_at_its_limit_all_lines_are_told_at_once(
    gateway_factory, server, response, monkeypatch
):
    monkeypatch.setattr(window, "TIMEOUT", 60.0)
    gateway = await gateway_factory(nats={"url": server.url})
    config = (await gateway.bus.js.stream_info(RESPONSES)).config
    config.max_bytes = 1
    await gateway.bus.js.update_stream(config)
    body = b"".join(json.dumps(response(id=f"r{number}")).encode() + b"\n" for number in range(20))
    async with asyncio.timeout(20):
        summary = (await gateway.post(body, bulk=True)).json()
    assert (summary["refused"], summary["retry_from"]) == (20, 1)
    assert {error["reason"] for error in summary["errors"]} == {"unavailable"}
    assert "maximum bytes exceeded" in summary["errors"][0]["error"]
    ready = await gateway.http.get("/readyz")
    assert ready.status_code == 200
    assert any("is at its limit" in why for why in ready.json()["notes"])
    config.max_bytes = -1
    await gateway.bus.js.update_stream(config)
    assert (await gateway.post(body, bulk=True)).json()["accepted"] == 20
    assert "is at its limit" not in (await gateway.http.get("/readyz")).text
