"""A gateway takes nothing again that was erased."""

from __future__ import annotations

import asyncio
import hashlib

from groundwatch.erasure.erasing import Eraser, Stores
from groundwatch.erasure.subject import subject
from groundwatch.events import response_key
from groundwatch.runtime import tombstones

PNG = {"Content-Type": "image/png"}


async def until_known(gateway, kind: str, *what: str) -> None:
    """Wait until the gateway has heard of a tombstone, or of its end."""
    name = tombstones.tombstone_name(kind, *what)
    there = name in await tombstones.names(gateway.bus.js)
    while (name in gateway.service._erased._names) is not there:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_what_was_erased_is_refused_until_it_is_lifted(gateway, response, bus):
    body = response(id="r1", tenant="acme")
    assert (await gateway.post(body)).status_code == 202
    wanted = subject("r1", "acme", None)
    await Eraser(bus.js, wanted, Stores(), wait=0).erase()
    await until_known(gateway, "response", response_key("acme", "r1"))
    for bulk in (False, True):
        sent = await gateway.post(body, bulk=bulk)
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
    data = pictures.encoded("PNG")
    sha256 = hashlib.sha256(data).hexdigest()
    assert (await gateway.http.post("/v1/images", content=data, headers=PNG)).status_code == 201
    await Eraser(bus.js, subject(None, None, sha256), Stores(), wait=0).erase()
    await until_known(gateway, "image", sha256)
    sent = await gateway.http.post("/v1/images", content=data, headers=PNG)
    assert (sent.status_code, "was erased" in sent.text) == (422, True)
    assert (await gateway.post(response(id="r1", images=[sha256]))).status_code in (410, 422)
