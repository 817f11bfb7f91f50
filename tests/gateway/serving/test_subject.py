"""Responses that are published over NATS: recorded once, or a dead letter with its reason."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import nats.errors
import pytest
from tests.gateway.conftest import Running
from tests.runtime.conftest import eventually

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.dead_letters import DeadLetter, dead_letters, send_again
from groundwatch.topology import DEAD, INTAKE, RETRY


async def send(bus: Bus, body: object, tenant: str = "acme", headers: dict[str, str] | None = None) -> None:
    """Publish as anybody does who may: with nothing but a NATS client."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    await bus.js.publish(f"gw.intake.{tenant}", data, headers=headers)


async def taken(bus: Bus, *streams: str) -> None:
    """Wait until the work queues are empty: what left them was acknowledged."""

    async def empty() -> bool:
        return not any([(await bus.js.stream_info(one)).state.messages for one in streams or (INTAKE,)])

    await eventually(empty, within=30)


async def letters(bus: Bus) -> list[DeadLetter]:
    return [one async for one in dead_letters(bus)]


async def test_what_is_published_is_recorded_with_its_image(gateway: Running, bus, response, pictures):
    image = pictures.encoded("PNG")
    given = {"base64": base64.b64encode(image).decode()}
    await send(bus, response(id="r1", images=[given], tags={"from": "nats"}))
    await taken(bus)
    [event] = await gateway.events()
    assert (event.id, event.tenant, event.tags["from"]) == ("r1", "acme", "nats")
    stored = await gateway.http.get(f"/v1/images/{event.images[0]}")
    assert stored.content == image
    assert not await letters(bus)


async def test_a_repeat_adds_nothing(gateway: Running, bus, response):
    body = response(id="again")
    for _ in range(3):
        await send(bus, body)
    await taken(bus)
    assert [one.id for one in await gateway.events()] == ["again"]


async def test_without_an_id_each_message_is_one_response(gateway: Running, bus, response):
    body = response()
    del body["id"]
    for _ in range(2):
        await send(bus, body)
    await taken(bus)
    assert len({one.id for one in await gateway.events()}) == 2


@pytest.mark.parametrize(
    "body, reason",
    [
        (b"no json", "undecodable: malformed"),
        (b"", "undecodable: malformed"),
        (b"[" * 100_000, "undecodable: malformed"),
        (b'{"id": "x"}', "bad_input: invalid: "),
        ({"id": "x", "model": "m", "answer": "a", "tenant": "other"}, "bad_input: other_tenant: tenant:"),
        ({"id": "x", "model": "m", "answer": "a", "protocols": ["none"]}, "bad_input: unknown_protocol"),
        (
            {"id": "x", "model": "m", "answer": "a", "images": ["0" * 64]},
            "bad_input: image_missing: images[0]",
        ),
        ({"id": "x", "model": "m", "answer": "a", "images": ["file:///etc/passwd"]}, "bad_input: image"),
        ({"id": "x", "model": "m", "answer": "a", "images": [{"base64": "AAAA"}]}, "bad_input: image"),
    ],
)
async def test_what_cannot_be_recorded_is_a_dead_letter(gateway: Running, bus, body, reason):
    await send(bus, body)
    await taken(bus)
    [letter] = await letters(bus)
    assert letter.reason.startswith(reason)
    assert (letter.stage, letter.subject) == ("gateway", "gw.intake.acme")
    assert letter.payload == (body if isinstance(body, bytes) else msgspec.json.encode(body))
    assert not await gateway.events()


async def test_a_dead_letter_that_is_sent_again_is_recorded_when_it_can_be(
    gateway: Running, bus, response, pictures
):
    image = pictures.encoded("PNG")
    kind = {"Content-Type": "image/png"}
    known = (await gateway.http.post("/v1/images", content=image, headers=kind)).json()["sha256"]
    await gateway.bus.js.purge_stream("OBJ_gw-images")
    gateway.service.core.store.forget(known)
    await send(bus, response(id="late", images=[known]))
    await taken(bus)
    [letter] = await letters(bus)
    assert "image_missing" in letter.reason
    await gateway.http.post("/v1/images", content=image, headers=kind)
    await send_again(bus, letter)
    await taken(bus, RETRY)
    assert [(one.id, one.tenant) for one in await gateway.events()] == [("late", "acme")]
    assert not await letters(bus)


async def test_headers_of_the_sender_say_nothing(gateway: Running, bus, response):
    """Else a tenant could speak for another, or make the list of dead letters unreadable."""
    forged = {
        "Gw-Origin": "gw.intake.victim",
        "Gw-Retry": "not a number",
        "Gw-Protocols": "faithscore",
        "Gw-Reason": "mine",
        "traceparent": "junk",
    }
    await send(bus, response(id="mine"), headers=forged)
    await send(bus, b"broken", headers=forged)
    await taken(bus)
    assert [one.tenant for one in await gateway.events()] == ["acme"]
    [letter] = await letters(bus)
    assert (letter.subject, letter.retries, letter.protocols) == ("gw.intake.acme", 0, ())


async def test_one_tenants_message_ids_do_not_swallow_anothers(gateway: Running, bus, response):
    same = {"Nats-Msg-Id": "42"}
    await send(bus, response(id="a"), "acme", same)
    await asyncio.sleep(0.2)  # the shortest window that a server keeps ids for is 0.1 s
    await send(bus, response(id="b"), "other", same)
    await taken(bus)
    assert {(one.id, one.tenant) for one in await gateway.events()} == {("a", "acme"), ("b", "other")}


async def test_what_is_too_large_is_refused_when_it_is_published(gateway: Running, bus):
    largest = bus.client.max_payload
    with pytest.raises(nats.js.errors.APIError, match="message size exceeds"):
        await send(bus, b"x" * (largest - 4_000))
    await send(bus, b"x" * (largest - 8_192))
    await taken(bus)
    [letter] = await letters(bus)
    assert len(letter.payload) == largest - 8_192


async def test_waits_while_the_backlog_is_full(gateway_factory, bus, response):
    gateway = await gateway_factory(intake={"max_backlog": 1})
    assert (await gateway.post(response())).status_code == 202
    assert (await gateway.post(response())).status_code == 202
    await gateway.service.core.backlog.look()
    await send(bus, response(id="waits"))

    async def fetched() -> bool:
        return bool((await bus.js.consumer_info(INTAKE, "gateway")).num_ack_pending)

    await eventually(fetched, within=30)
    assert "waits" not in {one.id for one in await gateway.events()}
    reading = await bus.js.pull_subscribe_bind("extraction", stream="GW_RESPONSES")
    for message in await reading.fetch(2, timeout=5):
        await message.ack()
    await taken(bus)
    assert "waits" in {one.id for one in await gateway.events()}
    assert not await letters(bus)


async def test_what_was_erased_is_kept_nowhere(gateway: Running, bus, response):
    from groundwatch.runtime.stores import tombstones
    from groundwatch.runtime.stores.tombstones import tombstone_name

    stone = tombstones.begun("tenant", tombstone_name("tenant", "gone"), "test")
    await tombstones.write(bus.js, stone)

    async def known() -> bool:
        return (await gateway.post(response(tenant="gone"))).status_code == 410

    await eventually(known)
    held = {one.id for one in await gateway.events()}
    await send(bus, response(id="never", answer="secret"), "gone")
    await taken(bus)
    assert {one.id for one in await gateway.events()} == held
    assert not (await bus.js.stream_info(DEAD)).state.messages


async def test_budgets_and_sampling_are_as_elsewhere(gateway_factory, bus, response):
    gateway = await gateway_factory(sampling=[{"tenant": "acme", "rate": 0.0}])
    await send(bus, response(id="drawn"))
    await taken(bus)
    [event] = await gateway.events()
    assert event.declined == {"faithscore": "sampled_out"}


async def test_two_gateways_record_each_once(gateway_factory, bus, response):
    first, second = await gateway_factory(), await gateway_factory()
    bodies = [response(id=f"n{number}") for number in range(60)]
    for body in bodies:
        await send(bus, body)
    await taken(bus)
    events = await first.events()
    assert sorted(one.id for one in events) == sorted(body["id"] for body in bodies)
    counted = [
        one.count("groundwatch_responses_total", tenant="acme", model="heron-7b") for one in (first, second)
    ]
    assert sum(counted) == 60


def test_nothing_else_is_a_subject_of_a_tenant() -> None:
    from groundwatch.topology import parse_subject

    for subject in ("gw.intake", "gw.intake.a.b", "gw.intake.*", "gw.intake.ä", "gw.intake."):
        found: Any = parse_subject(subject)
        assert found is None or found.kind != "intake"
