"""Dynamo's request trace, on a NATS server of its own."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from tests.gateway.serving.test_kserve import answered, asked
from tests.runtime.conftest import eventually

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings
from groundwatch.runtime.telemetry.logs import outage

STREAM = "DYNAMO_TRACE"
SUBJECT = "dynamo.request_trace.v1"


def record(name: str, **payload: Any) -> bytes:
    """A record as Dynamo 1.5 writes it."""
    said = {
        "request_id": name,
        "endpoint": "openai.chat_completion",
        "model": "heron-7b",
        "request": asked(),
        "response": answered(f"An answer to {name}."),
        "payload_complete": True,
    } | payload
    return msgspec.json.encode(
        {
            "schema": "dynamo.request.trace.v1",
            "event_type": "request_payload",
            "event_time_unix_ms": 1_764_000_000_000,
            "event_source": "dynamo",
            "payload": {key: value for key, value in said.items() if value is not None},
        }
    )


async def theirs(server: NatsServer) -> Bus:
    bus = Bus(NatsSettings(url=server.url), name="test")
    await bus.connect()
    return bus


async def noted(gateway: Any, words: str) -> bool:
    ready = await gateway.http.get("/readyz")
    return ready.status_code == 200 and any(words in note for note in ready.json().get("notes", []))


async def done(bus: Bus, number: int) -> None:
    """Wait until everything up to the message of this number is acknowledged."""

    async def floor() -> bool:
        try:
            info = await bus.js.consumer_info(STREAM, "groundwatch")
        except Exception:
            return False
        return bool(info.ack_floor and info.ack_floor.stream_seq >= number)

    await eventually(floor, within=60)


@pytest.fixture
async def dynamo(own_server: NatsServer):
    bus = await theirs(own_server)
    await bus.js.add_stream(name=STREAM, subjects=[SUBJECT])
    yield own_server, bus
    await bus.close()


async def test_calls_are_recorded_and_what_is_left_out_is_counted(gateway_factory, dynamo, pictures):
    server, bus = dynamo
    gateway = await gateway_factory(dynamo={"url": server.url, "stream": STREAM, "tenant": "acme"})
    image = pictures.encoded("PNG")
    records = [
        record("d1", request=asked(image)),
        record("d1", request=asked(image)),
        record("cancelled", response=None),
        record("dropped", request=None, response=None, payload_complete=False, payload_drop_reason="too big"),
        msgspec.json.encode({"event_type": "request_end", "request": {"request_id": "d1"}}),
        b"\xff",
        b"[]",
        b"[" * 50_000,
        record("odd", request=[], response=5),
        msgspec.json.encode({"event_type": "request_payload", "payload": {"request_id": 7}}),
        record("d2"),
    ]
    for one in records:
        await bus.js.publish(SUBJECT, one)
    await done(bus, len(records))
    events = {one.id: one for one in await gateway.events()}
    assert set(events) == {"d1", "d2", "dropped", "odd"}
    declined = [(events[name].model, events[name].declined["faithscore"]) for name in ("dropped", "odd")]
    assert declined == [("heron-7b", "no_response"), ("heron-7b", "unreadable")]
    assert events["d1"].tenant == "acme" and events["d1"].answer == "An answer to d1."
    assert (await gateway.http.get(f"/v1/images/{events['d1'].images[0]}")).content == image
    name = "groundwatch_logged_calls_total"
    counted = {
        result: gateway.count(name, source="dynamo", result=result)
        for result in ("recorded", "duplicate", "incomplete", "ignored", "unreadable")
    }
    assert counted == {"recorded": 2, "duplicate": 1, "incomplete": 2, "ignored": 1, "unreadable": 5}
    notes = (await gateway.http.get("/readyz")).json()["notes"]
    assert sorted(notes) == [
        "Dynamo left out what some calls were about: too big",
        "dynamo: calls come that are not read (unreadable); the log says what they are",
    ]


async def test_a_server_that_is_away_is_told_and_tried_again(gateway_factory, dynamo, response):
    server, bus = dynamo
    await bus.js.publish(SUBJECT, record("before"))
    await bus.close()
    await server.stop()
    gateway = await gateway_factory(dynamo={"url": server.url, "stream": STREAM})
    await eventually(partial(noted, gateway, "no NATS server answers"), within=30)
    assert (await gateway.post(response())).status_code == 202
    await server.start()
    again = await theirs(server)
    await again.js.publish(SUBJECT, record("after"))
    await again.close()

    async def recorded() -> bool:
        return {"before", "after"} <= {one.id for one in await gateway.events()}

    await eventually(recorded, within=60)
    await server.stop()
    await eventually(partial(noted, gateway, "Dynamo's calls are not read"), within=30)
    assert not outage.lasts


async def test_without_its_stream_it_says_which(gateway_factory, own_server):
    gateway = await gateway_factory(dynamo={"url": own_server.url, "stream": "NONE"})
    await eventually(partial(noted, gateway, "there is no stream NONE"), within=30)
