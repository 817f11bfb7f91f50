"""A gateway takes nothing again that was erased."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from tests.support.nats_proxy import nats_proxy

from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.gateway.intake import window
from groundwatch.keys import response_key
from groundwatch.runtime.delivery import streams
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.stores import tombstones

PNG = {"Content-Type": "image/png"}


async def until_known(gateway, kind: str, *what: str) -> None:
    """Wait until the gateway has heard of a tombstone, or of its end."""
    name = tombstones.tombstone_name(kind, *what)
    there = name in {stone.name async for stone in tombstones.tombstones(gateway.bus.js)}
    while (name in gateway.service.core.erased._names) is not there:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_what_was_erased_is_refused_until_it_is_lifted(gateway, response, bus):
    body = response(id="r1", tenant="acme")
    assert (await gateway.post(body)).status_code == 202
    wanted = subject("r1", "acme", None)
    await Eraser(bus.js, wanted, Stores(), wait=0).erase()
    await until_known(gateway, "response", response_key("acme", "r1"))
    for many in (False, True):
        sent = await gateway.post(body, bulk=many)
        assert "was erased" in sent.text
    assert (await gateway.post(body)).status_code == 410
    assert (await gateway.post(body)).json()["reason"] == "erased"
    assert await gateway.events() == []
    assert (await gateway.post(response(id="r1", tenant="other"))).status_code == 202
    await tombstones.lift(bus.js, wanted.kind, wanted.name)
    await until_known(gateway, "response", response_key("acme", "r1"))
    assert (await gateway.post(body)).status_code == 202


async def test_nothing_of_an_erased_tenant_is_taken(gateway, response, bus):
    assert (await gateway.post(response(id="r1", tenant="acme"))).status_code == 202
    await Eraser(bus.js, subject(None, "acme", None), Stores(), wait=0).erase()
    await until_known(gateway, "tenant", "acme")
    assert (await gateway.post(response(id="new", tenant="acme"))).status_code == 410


async def test_an_erased_image_is_not_stored_again(gateway, response, bus, pictures):
    data = pictures.encoded("PNG", (300, 200))
    sha256 = hashlib.sha256(data).hexdigest()
    assert (await gateway.http.post("/v1/images", content=data, headers=PNG)).status_code == 200
    assert (await gateway.http.get(f"/v1/images/{sha256}?width=224")).status_code == 200
    await Eraser(bus.js, subject(None, None, sha256), Stores(), wait=0).erase()
    await until_known(gateway, "image", sha256)
    assert (await gateway.http.get(f"/v1/images/{sha256}?width=224")).status_code == 404
    sent = await gateway.http.post("/v1/images", content=data, headers=PNG)
    assert (sent.status_code, "was erased" in sent.text) == (422, True)
    assert (await gateway.post(response(id="r1", images=[sha256]))).status_code in (410, 422)


@pytest.fixture
async def proxy(nats_server):
    async with nats_proxy(nats_server.url) as proxy:
        yield proxy


@pytest.fixture
def hasty(monkeypatch):
    """Timeouts of tenths of seconds."""
    monkeypatch.setattr(tombstones, "START_SECONDS", 0.3)
    monkeypatch.setattr(tombstones, "CURRENT_SECONDS", 0.6)
    monkeypatch.setattr(streams, "WAIT", 0.1)
    monkeypatch.setattr(streams, "PAUSE", 0.05)


async def until_noted(gateway, noted: bool) -> None:
    """Until the gateway says that it does not know what was erased, or says so no more."""
    while ("tombstones are not known" in (await gateway.http.get("/readyz")).text) != noted:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def refused_for_now(gateway, body, data) -> None:
    """Nothing is taken at any door, and everybody is told to come again."""
    one, many = await gateway.post(body), await gateway.post(body, bulk=True)
    image = await gateway.http.post("/v1/images", content=data, headers=PNG)
    for reply in (one, image):
        assert (reply.status_code, "Retry-After" in reply.headers) == (503, True)
        assert "tombstones are not known" in reply.text
    assert (one.json()["reason"], many.json()["retry_from"]) == ("unavailable", 1)
    ready = await gateway.http.get("/readyz")
    assert (ready.status_code, "tombstones are not known" in ready.json()["notes"][0]) == (200, True)
    assert await gateway.events() == []


async def test_while_tombstones_cannot_be_read_nothing_is_taken(
    gateway_factory, response, bus, pictures, proxy, hasty, monkeypatch
):
    monkeypatch.setattr(window, "TIMEOUT", 0.1)
    body, data = response(id="r1", tenant="acme"), pictures.encoded("PNG")
    stone = tombstones.begun("tenant", tombstones.tombstone_name("tenant", "acme"), "test")
    await tombstones.write(bus.js, stone)
    proxy.silent.add("KV_gw-tombstones")
    gateway = await gateway_factory(nats={"url": proxy.url, "publish_timeout": 0.3})
    assert proxy.dropped
    await refused_for_now(gateway, body, data)
    proxy.silent.clear()
    await until_noted(gateway, False)
    assert (await gateway.post(body)).status_code == 410
    assert (await gateway.post(response(tenant="other"))).status_code == 202


async def test_a_gateway_that_hears_of_no_erasures_any_more_takes_nothing(
    gateway_factory, response, bus, pictures, proxy, hasty, monkeypatch
):
    monkeypatch.setattr(window, "TIMEOUT", 0.1)
    gateway = await gateway_factory(nats={"url": proxy.url, "publish_timeout": 0.3})
    await until_noted(gateway, False)
    proxy.silent.add("KV_gw-tombstones")
    await until_noted(gateway, True)
    stone = tombstones.begun("tenant", tombstones.tombstone_name("tenant", "acme"), "test")
    await tombstones.write(bus.js, stone)
    body = response(id="r1", tenant="acme")
    await refused_for_now(gateway, body, pictures.encoded("PNG"))
    proxy.silent.clear()
    await until_noted(gateway, False)
    assert (await gateway.post(body)).status_code == 410


async def test_a_bulk_waits_until_tombstones_are_known(gateway_factory, response, proxy, hasty):
    proxy.silent.add("KV_gw-tombstones")
    gateway = await gateway_factory(nats={"url": proxy.url, "publish_timeout": 0.3})
    sending = asyncio.create_task(gateway.post(response(), bulk=True))
    await asyncio.sleep(0.3)
    assert not sending.done()
    proxy.silent.clear()
    assert (await sending).json()["accepted"] == 1


async def test_a_bucket_made_anew_is_read_anew(gateway_factory, response, bus, hasty):
    gateway = await gateway_factory()
    stone = tombstones.begun("tenant", tombstones.tombstone_name("tenant", "acme"), "test")
    await tombstones.write(bus.js, stone)
    await until_known(gateway, "tenant", "acme")
    await bus.js.delete_stream(tombstones.STREAM)
    await until_noted(gateway, True)
    assert (await gateway.post(response(tenant="acme"))).status_code == 503
    await provision(bus.js)
    other = tombstones.begun("tenant", tombstones.tombstone_name("tenant", "other"), "test")
    await tombstones.write(bus.js, other)
    await until_noted(gateway, False)
    assert (await gateway.post(response(tenant="acme"))).status_code == 202
    assert (await gateway.post(response(tenant="other"))).status_code == 410
