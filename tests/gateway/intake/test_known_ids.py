"""Ids that were recorded long ago, sent again: a real NATS server whose streams no longer have them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.support.cooling import cool
from tests.support.provisioning import provision_again

from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, Subject
from groundwatch.gateway.intake import known_ids
from groundwatch.runtime.delivery.streams import LABEL, position_of
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores import repeats, tombstones
from groundwatch.topology import ASKED, RESPONSES

QUESTION = {"id": "q", "model": "m", "prompt": "What is it?"}


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_ids, "LOOK_SECONDS", 0.05)


@pytest.fixture
def place(tmp_path: Path) -> ArchiveSettings:
    (tmp_path / "archive").mkdir()
    return ArchiveSettings(url=str(tmp_path / "archive"))


@pytest.fixture
async def gateway(gateway_factory, place):
    return await gateway_factory(archive=place)


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


async def test_a_response_that_went_cold_is_a_repeat_everywhere(gateway_factory, response, place):
    first, second = await gateway_factory(archive=place), await gateway_factory(archive=place)
    old = response(id="old")
    assert told(await first.post(old)) == (202, "recorded")
    await cool(first.bus, place.url, RESPONSES)
    for gateway in (first, second, third := await gateway_factory(archive=place)):
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


async def test_a_question_that_went_cold_is_a_repeat(gateway, response, place):
    assert told(await ask(gateway)) == (202, "recorded")
    assert told(await gateway.post(response(id="r"))) == (202, "recorded")
    for stream in (ASKED, RESPONSES):
        await cool(gateway.bus, place.url, stream)
        await until(gateway, stream, 1)
    assert told(await ask(gateway)) == (200, "duplicate")
    assert told(await ask(gateway, prompt="What else?")) == (409, "conflict")
    # What was recorded without a question has nothing to be asked for.
    assert told(await ask(gateway, id="r")) == (409, "conflict")
    assert told(await ask(gateway, id="q2")) == (202, "recorded")


async def test_a_gateway_that_cannot_read_the_archive_takes_nothing_once_something_left(
    gateway, response, place, monkeypatch
):
    assert told(await gateway.post(response(id="old"))) == (202, "recorded")
    await cool(gateway.bus, place.url, RESPONSES)
    await until(gateway, RESPONSES, 1)
    assert told(await gateway.post(response(id="new"))) == (202, "recorded")
    log = Path(place.url) / "events" / "_delta_log"
    shutil.move(log, log.with_name("away"))
    log.write_text("no folder")
    monkeypatch.setattr(repeats, "CURRENT_SECONDS", 0.5)
    await asyncio.sleep(1.0)
    # Nothing has left since it was read.
    assert told(await gateway.post(response(id="old"))) in ((200, "duplicate"), (409, "conflict"))
    await gateway.bus.js.purge_stream(RESPONSES)
    async with asyncio.timeout(60):
        while not gateway.service.core.known.problem:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for body in (response(id="old"), response(id="newer")):
        reply = await gateway.post(body)
        assert told(reply) == (503, "unavailable") and reply.headers["Retry-After"]
        assert "ids of what has left the streams" in reply.json()["error"]
    assert told(await ask(gateway)) == (503, "unavailable")
    ready = await gateway.http.get("/readyz")
    assert ready.status_code == 200 and "ids of what has left" in ready.text
    log.unlink()
    shutil.move(log.with_name("away"), log)
    async with asyncio.timeout(60):
        while gateway.service.core.known.problem:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert told(await gateway.post(response(id="newest"))) == (202, "recorded")


async def test_without_an_archive_nothing_is_refused(gateway_factory, response, tmp_path):
    for place in (None, ArchiveSettings(url=str(tmp_path / "not" / "here"))):
        gateway = await gateway_factory(archive=place)
        assert told(await gateway.post(response())) == (202, "recorded")
        assert "ids of what has left" not in (await gateway.http.get("/readyz")).text


async def test_of_a_stream_that_was_made_anew_nothing_is_a_repeat(gateway, response, place):
    old = response(id="old")
    assert told(await gateway.post(old)) == (202, "recorded")
    await cool(gateway.bus, place.url, RESPONSES)
    await until(gateway, RESPONSES, 1)
    await gateway.bus.js.delete_stream(RESPONSES)
    await provision_again(gateway.bus.js)
    await until(gateway, RESPONSES, 0)
    assert told(await gateway.post(old)) == (202, "recorded")
    await cool(gateway.bus, place.url, RESPONSES)
    await until(gateway, RESPONSES, 1)
    assert told(await gateway.post(old)) == (200, "duplicate")


async def test_what_a_stream_lost_is_taken_again(gateway_factory, response, place):
    """As after a power failure that took the stream's last messages, and left what was archived of them."""
    gateway = await gateway_factory(archive=place)
    kept, lost = response(id="kept"), response(id="lost")
    for one in (kept, lost):
        assert told(await gateway.post(one)) == (202, "recorded")
    js = gateway.bus.js
    at = await position_of(js, RESPONSES)
    await cool(gateway.bus, place.url, RESPONSES)
    # As long as it has the messages that are archived, or none in their place, all of them are known.
    await until(gateway, RESPONSES, 2)
    config = (await js.stream_info(RESPONSES)).config
    await js.delete_stream(RESPONSES)
    await js.add_stream(config.evolve(metadata={LABEL: str(at.created)}))
    another = await gateway_factory(archive=place)
    await until(another, RESPONSES, 0)
    assert told(await another.post(lost)) == (202, "recorded")
    await js.delete_stream(RESPONSES)
    await provision_again(js)


async def test_an_erased_id_is_known_no_more_and_may_come_again_once_that_is_lifted(gateway, response, place):
    old, other = response(id="old"), response(id="other")
    for one in (old, other):
        assert told(await gateway.post(one)) == (202, "recorded")
    await cool(gateway.bus, place.url, RESPONSES)
    await until(gateway, RESPONSES, 2)
    subject = Subject(kind="response", response="old", tenant="default")
    await Eraser(gateway.bus.js, subject, Stores.of(place), wait=0.0).erase()
    await until(gateway, RESPONSES, 1)
    assert told(await gateway.post(old)) == (410, "erased")
    await tombstones.lift(gateway.bus.js, "response", subject.name)
    async with asyncio.timeout(60):
        while told(reply := await gateway.post(old)) == (410, "erased"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert told(reply) == (202, "recorded")
    assert told(await gateway.post(other)) == (200, "duplicate")
