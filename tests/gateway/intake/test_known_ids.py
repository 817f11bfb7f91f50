"""Ids that were recorded long ago, sent again: a real NATS server whose streams no longer have them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.support.provisioning import provision_again

from groundwatch.archive.repeats import IdIndex
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, Subject
from groundwatch.gateway.intake import known_ids
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores import repeats, tombstones
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ASKED, REPEATS_BUCKET, RESPONSES

QUESTION = {"id": "q", "model": "m", "prompt": "What is it?"}


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_ids, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(repeats, "HOLD_SECONDS", 0.0)


async def cooled(bus, *streams: str) -> IdIndex:
    """Index what there is, and purge it as soon as that is settled, as cooling does."""
    index = IdIndex(Settings(), bus, Metrics())
    await index.round()
    for stream in streams:
        at = await position_of(bus.js, stream)
        assert await index.settled(stream, at) == at.last > 0
        await bus.js.purge_stream(stream, seq=at.last + 1)
    return index


async def until(gateway, stream: str, entries: int) -> None:
    """Wait until this gateway has so many ids of the stream."""
    async with asyncio.timeout(60):
        while gateway.count("groundwatch_indexed_ids", stream=stream) != entries:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def ask(gateway, **changes):
    return await gateway.http.post("/v1/questions", json=QUESTION | changes)


def told(reply) -> tuple[int, str]:
    said = reply.json()
    return reply.status_code, said.get("status") or said["reason"]


async def test_a_response_that_went_cold_is_a_repeat_everywhere(gateway_factory, response):
    first, second = await gateway_factory(), await gateway_factory()
    old = response(id="old")
    assert told(await first.post(old)) == (202, "recorded")
    await cooled(first.bus, RESPONSES)
    for gateway in (first, second, third := await gateway_factory()):
        await until(gateway, RESPONSES, 1)
        assert told(await gateway.post(old)) == (200, "duplicate")
        assert told(await gateway.post(response(id="old", answer="Another one."))) == (409, "conflict")
        assert gateway.count("groundwatch_refused_responses_total", reason="conflict") == 1
        lines = [old, response(id="old", model="another"), response(id=f"new {gateway.service.port}")]
        summary = (await gateway.post(b"\n".join(map(msgspec.json.encode, lines)), bulk=True)).json()
        assert (summary["accepted"], summary["duplicates"], summary["refused"]) == (1, 1, 1)
        assert summary["errors"][0]["reason"] == "conflict"
        assert gateway.count("groundwatch_refused_responses_total", reason="conflict") == 2
    assert len(await third.events()) == 3
    # Another tenant's is another one.
    assert told(await first.post(response(id="old", tenant="t"))) == (202, "recorded")


async def test_a_question_that_went_cold_is_a_repeat(gateway, response):
    assert told(await ask(gateway)) == (202, "recorded")
    assert told(await gateway.post(response(id="r"))) == (202, "recorded")
    await cooled(gateway.bus, ASKED, RESPONSES)
    await until(gateway, ASKED, 1)
    await until(gateway, RESPONSES, 1)
    assert told(await ask(gateway)) == (200, "duplicate")
    assert told(await ask(gateway, prompt="What else?")) == (409, "conflict")
    # What was recorded without a question has nothing to be asked for.
    assert told(await ask(gateway, id="r")) == (409, "conflict")
    assert told(await ask(gateway, id="q2")) == (202, "recorded")


async def test_a_gateway_that_cannot_follow_the_index_takes_nothing(gateway_factory, response, monkeypatch):
    gateway = await gateway_factory()
    assert told(await gateway.post(response(id="old"))) == (202, "recorded")
    index = IdIndex(Settings(), gateway.bus, Metrics())
    await index.round()
    await until(gateway, RESPONSES, 1)
    monkeypatch.setattr(repeats, "CURRENT_SECONDS", 0.5)
    # Its bucket is gone, which it may not take for an index in which nothing is.
    await gateway.bus.js.delete_stream(repeats.STREAM)
    async with asyncio.timeout(60):
        while not gateway.service.core.known.problem:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for body in (response(id="old"), response(id="new")):
        reply = await gateway.post(body)
        assert told(reply) == (503, "unavailable") and reply.headers["Retry-After"]
        assert f"bucket {REPEATS_BUCKET}" in reply.json()["error"]
    assert told(await ask(gateway)) == (503, "unavailable")
    ready = await gateway.http.get("/readyz")
    assert ready.status_code == 200 and "the index of ids" in ready.text
    await gateway.bus.js.create_object_store(REPEATS_BUCKET)
    await index.round()
    await until(gateway, RESPONSES, 1)
    async with asyncio.timeout(60):
        while gateway.service.core.known.problem:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert told(await gateway.post(response(id="new"))) == (202, "recorded")


async def test_without_a_bucket_nothing_is_refused(gateway_factory, response, bus):
    await bus.js.delete_stream(repeats.STREAM)
    gateway = await gateway_factory()
    assert told(await gateway.post(response())) == (202, "recorded")
    assert "index of ids" not in (await gateway.http.get("/readyz")).text


async def test_of_a_stream_that_was_made_anew_nothing_is_a_repeat(gateway, response):
    old = response(id="old")
    assert told(await gateway.post(old)) == (202, "recorded")
    index = await cooled(gateway.bus, RESPONSES)
    await until(gateway, RESPONSES, 1)
    before = await position_of(gateway.bus.js, RESPONSES)
    await gateway.bus.js.delete_stream(RESPONSES)
    await provision_again(gateway.bus.js)
    await until(gateway, RESPONSES, 0)
    assert told(await gateway.post(old)) == (202, "recorded")
    await index.round()
    await until(gateway, RESPONSES, 1)
    assert told(await gateway.post(old)) == (200, "duplicate")
    # What was indexed of the former one is there, should that be restored, until it is old.
    after = await position_of(gateway.bus.js, RESPONSES)
    assert {name.created for name in await repeats.parts(gateway.bus.js)} == {before.created, after.created}


async def test_an_erased_id_leaves_the_index_and_may_come_again_once_that_is_lifted(gateway, response):
    old, other = response(id="old"), response(id="other")
    for one in (old, other):
        assert told(await gateway.post(one)) == (202, "recorded")
    index = IdIndex(Settings(), gateway.bus, Metrics())
    await index.round()
    await until(gateway, RESPONSES, 2)
    subject = Subject(kind="response", response="old", tenant="default")
    erasure = await Eraser(gateway.bus.js, subject, Stores(), wait=0.0).erase()
    assert erasure.counts["ids"] == 1
    await until(gateway, RESPONSES, 1)
    assert told(await gateway.post(old)) == (410, "erased")
    await tombstones.lift(gateway.bus.js, "response", subject.name)
    async with asyncio.timeout(60):
        while told(reply := await gateway.post(old)) == (410, "erased"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert told(reply) == (202, "recorded")
    assert told(await gateway.post(other)) == (200, "duplicate")
