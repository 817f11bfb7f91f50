"""Audits that go on from the one before, against a real server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time

import msgspec
import pytest
from tests.runtime.conftest import record, response

from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.events import OutcomeKind, ResponseRecorded
from groundwatch.ledger import store as stored
from groundwatch.ledger.ledger import Auditor, audit
from groundwatch.ledger.proof import prove
from groundwatch.ledger.state import RECORDED, State, pair_hash
from groundwatch.ledger.store import LedgerStore
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import without_score
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.topology import LEDGER_BUCKET, OUTCOMES, RESPONSES, subject_of

KILLED = """
import asyncio, sys
from groundwatch.ledger.ledger import Auditor
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import NatsSettings

async def main():
    bus = Bus(NatsSettings(url=sys.argv[1]), name="audit")
    await bus.connect()
    auditor = await Auditor.open(bus.js)
    await auditor.settle(0.0)
    print("read", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def judged(
    bus: Bus, event: ResponseRecorded, kind: OutcomeKind, reason: str = "", *, protocol: str = "faithscore"
) -> None:
    outcome = msgspec.structs.replace(without_score(event, protocol, kind, reason), scored_at=time.time())
    message = outcomes.outgoing(outcome)
    if await bus.create(message) is not outcomes.Stored.NEW:
        assert await outcomes.replace_dead(bus, message) is outcomes.Stored.NEW


async def several(bus: Bus, number: int, first: int = 0) -> list[ResponseRecorded]:
    events = [response(f"r{at}") for at in range(first, first + number)]
    for event in events:
        await record(bus, event)
        await judged(bus, event, OutcomeKind.SCORED)
    return events


async def state_of(bus: Bus) -> State:
    store = await LedgerStore.open(bus.js)
    assert store is not None
    state = await store.load()
    assert isinstance(state, State)
    return state


async def test_it_reads_only_what_is_new(bus: Bus, clean_streams: None) -> None:
    await several(bus, 5)
    assert (await audit(bus.js)).scored == 5
    # What has been counted is not looked for again.
    await bus.js.purge_stream(RESPONSES, seq=5)
    await bus.js.purge_stream(OUTCOMES, seq=5)
    await several(bus, 2, first=5)
    ledger = await audit(bus.js)
    assert (ledger.recorded, ledger.scored, ledger.balanced) == (7, 7, True)
    assert not (await state_of(bus)).waiting


async def test_an_outcome_comes_after_the_audit_that_saw_its_response(bus: Bus, clean_streams: None) -> None:
    event = response("r")
    await record(bus, event)
    ledger = await audit(bus.js)
    assert (ledger.in_flight, ledger.balanced) == (1, True)
    assert list((await state_of(bus)).waiting) == [pair_hash("faithscore", event.key)]
    await judged(bus, event, OutcomeKind.SCORED)
    ledger = await audit(bus.js)
    assert (ledger.recorded, ledger.scored, ledger.in_flight, ledger.balanced) == (1, 1, 0, True)


async def test_a_retried_dead_letter_moves_and_counts_once(bus: Bus, clean_streams: None) -> None:
    event = response("r")
    await record(bus, event)
    await judged(bus, event, OutcomeKind.UNSCORED, "dead_letter")
    ledger = await audit(bus.js)
    assert ledger.reasons == {"unscored: dead_letter": 1}
    await judged(bus, event, OutcomeKind.SCORED)
    ledger = await audit(bus.js)
    assert (ledger.recorded, ledger.scored, ledger.unscored, ledger.balanced) == (1, 1, 0, True)
    assert ledger.reasons == {}
    assert (await prove(bus.js)).differences == ()


async def test_an_auditor_killed_before_it_saves_counts_nothing_twice(
    bus: Bus, clean_streams: None, nats_server: NatsServer
) -> None:
    await several(bus, 3)
    await audit(bus.js)
    await several(bus, 4, first=3)
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", KILLED, nats_server.url], stdout=subprocess.PIPE, text=True
    ) as auditor:
        assert auditor.stdout is not None
        assert (await asyncio.to_thread(auditor.stdout.readline)).strip() == "read"
        auditor.send_signal(signal.SIGKILL)
    assert (await state_of(bus)).position(RECORDED) == 3
    ledger = await audit(bus.js)
    assert (ledger.recorded, ledger.scored, ledger.balanced) == (7, 7, True)
    assert (await prove(bus.js)).differences == ()


async def test_of_two_at_a_time_one_saves(bus: Bus, clean_streams: None) -> None:
    await several(bus, 2)
    await audit(bus.js)
    one, other = await Auditor.open(bus.js), await Auditor.open(bus.js)
    await several(bus, 2, first=2)
    assert (await one.settle(0.0)).scored == 4
    await several(bus, 1, first=4)
    assert (await other.settle(0.0)).scored == 5
    await other.close()
    await one.close()
    assert (await state_of(bus)).position(RECORDED) == 5
    assert (await audit(bus.js)).scored == 5


async def test_a_stream_made_anew_begins_the_ledger_anew(bus: Bus, clean_streams: None) -> None:
    await several(bus, 2)
    assert (await audit(bus.js)).begun_anew == ""
    config = (await bus.js.stream_info(OUTCOMES)).config
    await bus.js.delete_stream(OUTCOMES)
    await bus.js.add_stream(config.evolve(metadata=None))
    ledger = await audit(bus.js)
    assert (ledger.recorded, ledger.scored) == (2, 0)
    assert ledger.begun_anew == "GW_OUTCOMES was made anew since the last audit"


async def test_a_state_of_another_format_begins_the_ledger_anew(bus: Bus, clean_streams: None) -> None:
    await several(bus, 2)
    await audit(bus.js)
    bucket = await bus.js.key_value(LEDGER_BUCKET)
    await bucket.put("state", msgspec.msgpack.encode({"format": 99}))
    ledger = await audit(bus.js)
    assert (ledger.scored, ledger.balanced) == (2, True)
    assert "format" in ledger.begun_anew
    assert (await audit(bus.js)).begun_anew == ""


async def test_a_large_state_lies_in_parts(
    bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_PART_BYTES", 100)
    for number in range(30):
        await record(bus, response(f"r{number}"))
    for _ in range(3):
        assert (await audit(bus.js)).in_flight == 30
    assert len((await state_of(bus)).waiting) == 30
    info = await bus.js.stream_info(stored.STREAM, subjects_filter=f"$KV.{LEDGER_BUCKET}.part.>")
    assert len({name.split(".")[3] for name in info.state.subjects or ()}) == 1


@pytest.mark.parametrize("seen", ["outcome", "response", "nothing"])
async def test_an_erasure_takes_a_pair_out_of_its_line(bus: Bus, clean_streams: None, seen: str) -> None:
    await several(bus, 2)
    event = response("gone", tenant="acme")
    await record(bus, event)
    if seen == "response":
        await audit(bus.js)
    await judged(bus, event, OutcomeKind.SCORED)
    if seen == "outcome":
        await audit(bus.js)
    await Eraser(bus.js, subject("gone", "acme", None), Stores(), wait=0).erase()
    for _ in range(2):
        ledger = await audit(bus.js)
        assert (ledger.responses, ledger.recorded, ledger.scored, ledger.erased) == (2, 2, 2, 1)
        assert (ledger.balanced, ledger.expired, ledger.orphans) == (True, 0, 0)
    (line,) = (await state_of(bus)).lines.values()
    assert (line.erased, line.balanced) == (1, True)
    assert (await prove(bus.js)).differences == ()
    store = await LedgerStore.open(bus.js)
    assert store is not None and await store.erased() == {}


async def test_what_is_erased_after_an_audit_has_counted_is_left_to_the_next(
    bus: Bus, clean_streams: None
) -> None:
    (event, _) = await several(bus, 2)
    auditor = await Auditor.open(bus.js)
    assert (await auditor.count()).scored == 2
    await Eraser(bus.js, subject(event.id, event.tenant, None), Stores(), wait=0).erase()
    # Looked at for what is missing, and counted in no line yet.
    await auditor.erasures()
    await auditor.close()
    ledger = await audit(bus.js)
    assert (ledger.responses, ledger.recorded, ledger.scored, ledger.erased) == (1, 1, 1, 1)
    assert (await prove(bus.js)).differences == ()


async def test_a_message_that_went_without_a_word_makes_its_day_differ(bus: Bus, clean_streams: None) -> None:
    await several(bus, 3)
    proof = await prove(bus.js)
    assert (proof.proven, proof.differences) == (1, ())
    await bus.js.delete_msg(OUTCOMES, 2)
    proof = await prove(bus.js)
    assert proof.ledger.balanced
    (difference,) = proof.differences
    assert difference.describe().endswith("scored 2 instead of 3")


async def test_a_message_in_the_place_of_another_makes_its_day_differ(bus: Bus, clean_streams: None) -> None:
    """As many as before, and not the same."""
    first, second = response("first"), response("second")
    await record(bus, first)
    await audit(bus.js)
    state = await state_of(bus)
    (line,) = state.lines.values()
    line.record(pair_hash("faithscore", first.key), -1)
    line.record(pair_hash("faithscore", second.key))
    store = await LedgerStore.open(bus.js)
    assert store is not None
    await store.load()
    assert await store.save(state)
    (difference,) = (await prove(bus.js)).differences
    assert difference.describe().endswith("as many as in its line, but not the same")


async def test_it_is_known_since_when_no_audit_was_complete(bus: Bus, clean_streams: None) -> None:
    before = time.time()
    await Auditor.open(bus.js)
    state = await state_of(bus)
    assert (state.ended, before <= state.began <= time.time()) == (0.0, True)
    told: list[float] = []
    await audit(bus.js, on_begin=told.append)
    assert told == [state.began]
    await audit(bus.js, on_begin=told.append)
    assert told[1] == (await state_of(bus)).ended or told[1] > state.began


async def test_an_outcome_of_a_response_that_is_gone_from_the_streams_stays_counted(
    bus: Bus, clean_streams: None
) -> None:
    (event,) = await several(bus, 1)
    await audit(bus.js)
    await bus.js.purge_stream(RESPONSES, subject=subject_of("recorded", "live", event.key))
    ledger = await audit(bus.js)
    assert (ledger.recorded, ledger.scored, ledger.expired, ledger.balanced) == (1, 1, 0, True)
