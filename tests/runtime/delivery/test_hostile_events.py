"""Events whose envelope or body nobody foresaw end in an outcome or a dead letter, and hold up none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.runtime.conftest import Running, done, eventually, record, response
from tests.runtime.delivery.test_stage import all_done, letters, reason_of

from groundwatch.errors import TransientError
from groundwatch.events import Reference, ResponseRecorded
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.bus import ENCODER
from groundwatch.runtime.delivery.dead_letters import dead_letters, send_again
from groundwatch.runtime.delivery.outcomes import named_in, superseded_by
from groundwatch.runtime.delivery.stage import BUG_ATTEMPTS
from groundwatch.runtime.delivery.work import InHand, Result, Work
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.system.up import prepare_folder, whole_system
from groundwatch.topology import (
    HEADER_EXPECT_SEQUENCE,
    HEADER_ORIGIN,
    HEADER_PROTOCOLS,
    HEADER_RETRY,
    HEADER_SUPERSEDES,
    HEADER_TRACE,
    OUTCOMES,
    subject_of,
)
from groundwatch.topology import (
    HEADERS as DECLARED,
)

HEADERS = (
    {HEADER_SUPERSEDES: "faithscore:²:x"},
    {HEADER_SUPERSEDES: f"faithscore:{'9' * 5_000}:x"},
    {HEADER_SUPERSEDES: "faithscore:٣:x,:1:,::,"},
    {HEADER_RETRY: "²"},
    {HEADER_RETRY: "9" * 5_000},
    {HEADER_RETRY: "once"},
    {HEADER_ORIGIN: "gw.recorded.live.é"},
    {HEADER_ORIGIN: "gw..recorded"},
    {HEADER_ORIGIN: "x" * 5_000},
    {HEADER_TRACE: "00-²-x-zz"},
    {HEADER_PROTOCOLS: "faithscore," * 2_000},
)


async def publish(running: Running, event: ResponseRecorded, payload: bytes = b"", **headers: str) -> None:
    named = {HEADER_PROTOCOLS: "faithscore"} | headers
    subject = subject_of("recorded", "live", event.key)
    await running.bus.client.publish(subject, payload or ENCODER.encode(event), headers=named)


async def never(works: Sequence[Work[ResponseRecorded]]) -> list[Result | TransientError]:
    return [TransientError("not now") if work.event.id == "bad" else done(work) for work in works]


@pytest.mark.parametrize("headers", HEADERS, ids=range(len(HEADERS)))
@pytest.mark.parametrize("handler", (all_done, never))
async def test_whatever_headers_say_an_event_comes_to_an_end(
    stage_factory, handler: Any, headers: dict[str, str]
) -> None:
    running = await stage_factory(handler)
    await publish(running, response("bad"), **headers)
    await record(running.bus, response("good"))
    await eventually(running.settled)
    assert await reason_of(running, response("good")) == ""
    found = [letter.reason for letter in await letters(running)]
    if handler is all_done:
        assert not found
        assert await reason_of(running, response("bad")) == ""
    else:
        assert found == ["gave_up: not now"]
    assert running.count("groundwatch_stage_seconds_count", stage="extraction") >= 2


@pytest.mark.parametrize("run", ("a b", "x.y", "", "r" * 5_000, "é", "other"), ids=range(6))
@pytest.mark.parametrize("handler", (all_done, never))
async def test_a_body_that_contradicts_its_subject_comes_to_an_end(
    stage_factory, handler: Any, run: str
) -> None:
    running = await stage_factory(handler)
    body = json.loads(ENCODER.encode(response("bad"))) | {"run": run}
    await publish(running, response("bad"), json.dumps(body).encode())
    await record(running.bus, response("good"))
    await eventually(running.settled)
    assert len(await letters(running)) == 1
    assert (await audit(running.bus.js)).balanced
    assert await reason_of(running, response("good")) == ""


class Breaking(ResponseRecorded, frozen=True, kw_only=True):
    """An event whose reading has a bug."""

    def __post_init__(self) -> None:
        if self.id == "bad":
            raise LookupError("nobody foresaw this")


async def test_a_bug_outside_of_the_handler_is_told_counted_and_buried_in_the_end(stage_factory) -> None:
    running = await stage_factory(all_done, event=Breaking)
    for name in ("good-1", "bad", "good-2"):
        await record(running.bus, response(name))
    await eventually(running.settled)
    (letter,) = await letters(running)
    assert letter.reason == "bug: nobody foresaw this"
    assert b'"bad"' in letter.payload
    assert running.count("groundwatch_stage_messages_total", stage="extraction", result="done") == 2
    assert (
        running.count("groundwatch_stage_messages_total", stage="extraction", result="retried")
        == BUG_ATTEMPTS - 1
    )
    assert (await audit(running.bus.js)).balanced


async def test_a_bug_before_anything_is_decoded_is_an_attempt_too(stage_factory, bus_factory) -> None:
    class Broken:
        def begin(self, name: str, subject: str, headers: Any) -> None:
            raise LookupError("no spans today")

    bus = await bus_factory("traced")
    bus.traces = Broken()
    running = await stage_factory(all_done, bus=bus)
    await record(running.bus, response("bad"))
    await eventually(running.settled)
    (letter,) = await letters(running)
    assert letter.reason == "bug: no spans today"


@pytest.mark.parametrize("text", ("²", "٣", "9" * 5_000, "", "-1", "x"), ids=range(6))
def test_numbers_in_headers_are_digits_that_fit(text: str) -> None:
    assert not named_in({HEADER_SUPERSEDES: f"faithscore:{text}:x"})
    assert superseded_by("gw.outcome.live.faithscore.k", {HEADER_EXPECT_SEQUENCE: text}) == 0
    assert named_in({HEADER_SUPERSEDES: f"faithscore:{text}:x,pope:7:y"})["pope"].sequence == 7


@pytest.mark.parametrize("text", ("²", "9" * 5_000, "once", "-3"), ids=range(4))
async def test_dead_letters_are_listed_and_sent_again_whatever_their_headers_say(
    stage_factory, text: str
) -> None:
    running = await stage_factory(all_done)
    await running.bus.client.publish(
        subject_of("dead", "extraction", "live", "k1"),
        ENCODER.encode(response("bad")),
        headers={HEADER_RETRY: text, HEADER_ORIGIN: "gw.recorded.live.k1"},
    )
    await eventually(lambda: letters(running))
    (letter,) = [letter async for letter in dead_letters(running.bus)]
    assert letter.retries == 0
    await send_again(running.bus, letter)
    assert not await letters(running)


@pytest.mark.slow
async def test_no_header_of_any_event_stops_a_service_or_the_audit(tmp_path: Path) -> None:
    """Every header that there is, on every kind of event, with the whole system reading on."""
    settings = prepare_folder(Settings(gateway=GatewaySettings(port=0), data_dir=str(tmp_path)))
    reference = Reference(objects=("dog",))
    async with (
        whole_system(settings, tmp_path) as system,
        httpx.AsyncClient(base_url=system.gateway_url) as http,
    ):
        js = system.bus.js
        keys = []
        for number, text in enumerate(("²", "9" * 5_000, "", "-1", "a,b:c", "faithscore:²:x")):
            headers = {name: text for name in DECLARED if not name.startswith("Nats-")} | {"Status": "404"}
            event = response(f"r{number}", reference=reference)
            keys.append(event.key)
            await js.publish(f"gw.recorded.live.{event.key}", ENCODER.encode(event), headers=headers)
            (judged,) = done(Work(response(f"o{number}"), InHand(()))).publications
            await js.publish(judged.subject, ENCODER.encode(judged.payload), headers=headers)
            for kind in ("alarm.live.faithscore", "opinion.live.faithscore.x", "dead.extraction.live"):
                await js.publish(f"gw.{kind}.k{number}", b"{}", headers=headers)
            await js.publish(f"gw.retry.extraction.live.k{number}", b"{}", headers=headers)
            await js.publish("gw.intake.acme", b"{}", headers=headers)

        async def ended() -> bool:
            found = [await system.bus.holds(OUTCOMES, f"gw.outcome.live.faithscore.{key}") for key in keys]
            return all(found)

        await eventually(ended, within=60)
        for page in ("/", "/health", "/answers", "/alarms", "/v1/report", "/v1/answers?model=heron-7b"):
            assert (await http.get(page)).status_code == 200, page
        # Nothing is put right by it: what has foreign headers is counted as foreign, or does not balance.
        assert not (await audit(js)).balanced

        async def ready() -> bool:
            found = (await http.get("/readyz")).json()
            unforeseen = [note for note in found.get("notes", ()) if "are no opinions" not in note]
            return found["ready"] and not found["problems"] and not unforeseen

        # A machine that stood still has notes of it, which go; what an event stops has them for good.
        await eventually(ready, within=60)
