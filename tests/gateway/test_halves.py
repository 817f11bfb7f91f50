"""The bucket of halves is everybody's: what one tenant keeps there takes nothing from the others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.otlp.made import PROTOBUF, span, traces
from tests.gateway.otlp.test_joining import CALL, messages
from tests.gateway.serving.test_kserve import answered, asked, log
from tests.runtime.conftest import eventually

from groundwatch.gateway.receivers.joining import STREAM
from groundwatch.runtime.stores.tombstones import Tombstone, tombstone_name, write

TOKENS = {tenant: f"a-token-of-{tenant}-long" for tenant in ("acme", "brook", "cedar")}


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    file = tmp_path / "tokens"
    file.write_text("".join(f"{tenant} {token}\n" for tenant, token in TOKENS.items()))
    return str(file)


def of(tenant: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[tenant]}"}


@pytest.fixture
async def small(bus, clean_streams) -> Any:
    """A bucket that is full soon."""
    config = (await bus.js.stream_info(STREAM)).config
    whole = config.max_bytes
    config.max_bytes = 16_000_000
    await bus.js.update_stream(config)
    yield
    config.max_bytes = whole
    await bus.js.update_stream(config)


async def test_each_tenant_finds_room_however_much_others_keep(gateway_factory, tokens, small):
    first, second = [await gateway_factory(tokens_file=tokens) for _ in range(2)]
    filler = {"metadata": {"filler": "x" * 200_000}}
    refused: dict[str, int] = {}
    for tenant in ("acme", "brook"):
        for number in range(50):
            gateway = (first, second)[number % 2]
            reply = await log(gateway, "request", asked(**filler), f"{tenant} {number}", **of(tenant))
            if reply.status_code != 200:
                refused[tenant] = refused.get(tenant, 0) + 1
                assert (reply.status_code, reply.json()["reason"]) == (429, "rate_limited")
                assert "Retry-After" in reply.headers
    assert refused.keys() == {"acme", "brook"}
    for gateway, name in ((first, "one"), (second, "another")):
        assert (await log(gateway, "request", asked(**filler), name, **of("cedar"))).status_code == 200
        assert (await log(gateway, "response", answered(), name, **of("cedar"))).status_code == 200
    assert len(await first.events()) == 2


async def test_who_sends_spans_and_logs_is_told_to_come_again(gateway_factory, tokens, small):
    gateway = await gateway_factory(tokens_file=tokens)
    large = messages()
    large.resource_logs[0].scope_logs[0].log_records[0].body.kvlist_value.values[0].value.string_value = (
        "x" * 2_000_000
    )
    taken = []
    for number in range(8):
        for one in large.resource_logs[0].scope_logs[0].log_records:
            one.trace_id = bytes([number + 1]) * 16
        body = large.SerializeToString()
        reply = await gateway.http.post("/v1/logs", content=body, headers=PROTOBUF | of("acme"))
        taken.append(reply.status_code)
    assert taken[0] == 200 and taken[-1] == 429 and set(taken) == {200, 429}
    reply = await gateway.http.post(
        "/v1/logs", content=messages().SerializeToString(), headers=PROTOBUF | of("brook")
    )
    assert (reply.status_code, reply.content) == (200, b"")


async def test_calls_in_halves_count_for_the_rate_once(gateway_factory, tokens):
    rates = {"tenants": {"acme": {"rate": 0.01, "burst": 2}}}
    gateway = await gateway_factory(tokens_file=tokens, admission=rates, logged_calls={"join_wait": 3600.0})

    async def send(tenant: str, number: int) -> tuple[int, int]:
        ids = {"trace_id": bytes([number]) * 16}
        parts = messages()
        for one in parts.resource_logs[0].scope_logs[0].log_records:
            one.trace_id = ids["trace_id"]
        replies = [
            await gateway.http.post(path, content=request.SerializeToString(), headers=PROTOBUF | of(tenant))
            for path, request in (("/v1/traces", traces(span(CALL, **ids))), ("/v1/logs", parts))
        ]
        return replies[0].status_code, replies[1].status_code

    assert [await send("acme", number) for number in (1, 2, 3, 1)] == [(200, 200)] * 2 + [
        (429, 429),
        (200, 200),
    ]
    assert [await send("brook", number) for number in (1, 2, 3)] == [(200, 200)] * 3


async def test_images_count_for_a_rate_of_their_own(gateway_factory, tokens, pictures, response):
    rates = {"tenants": {"acme": {"rate": 0.01, "burst": 1}}}
    gateway = await gateway_factory(tokens_file=tokens, admission=rates, intake={"max_images": 3})
    image = pictures.encoded("PNG")

    async def store(tenant: str) -> int:
        headers = {"content-type": "image/png"} | of(tenant)
        return int((await gateway.http.post("/v1/images", content=image, headers=headers)).status_code)

    assert [await store("acme") for _ in range(4)] == [200] * 3 + [429]
    assert [await store("brook") for _ in range(5)] == [200] * 5
    reply = await gateway.http.post("/v1/responses", json=response(), headers=of("acme"))
    assert reply.status_code == 202


async def test_halves_of_an_erased_tenant_are_not_taken(gateway_factory, tokens, bus):
    gateway = await gateway_factory(tokens_file=tokens)
    await write(bus.js, Tombstone(kind="tenant", name=tombstone_name("tenant", "acme"), at=1.0))
    await eventually(lambda: gateway.service.core.erased.number == 1)
    for path, request in (("/v1/traces", traces(span(CALL))), ("/v1/logs", messages())):
        body = request.SerializeToString()
        reply = await gateway.http.post(path, content=body, headers=PROTOBUF | of("acme"))
        assert reply.status_code == 200 and b"erased" in reply.content
    assert (await log(gateway, "request", asked(), **of("acme"))).status_code == 410
    assert (await bus.js.stream_info(STREAM)).state.messages == 0


async def test_what_other_gateways_removed_is_room_again(gateway_factory, tokens, small, monkeypatch):
    """A gateway only counts what came; what others joined it must look for."""
    first, second = [await gateway_factory(tokens_file=tokens) for _ in range(2)]
    filler = {"metadata": {"filler": "x" * 800_000}}
    for number in range(12):
        name = f"call {number}"
        reply = await log(first, "request", asked(**filler), name, **of("acme"))
        assert reply.status_code == 200, (number, reply.text)
        assert (await log(second, "response", answered(), name, **of("acme"))).status_code == 200
        await asyncio.sleep(0.2)
    assert len(await first.events()) == 12
