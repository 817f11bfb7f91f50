"""The loop every stage runs: whatever a handler or a message does, nothing is lost and nothing stops."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.runtime.conftest import FAST, Running, done, eventually, record, response

from groundwatch.errors import InputError, RateLimited, TransientError
from groundwatch.events import ResponseRecorded
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.bus import Outgoing
from groundwatch.runtime.delivery.dead_letters import DeadLetter, dead_letters
from groundwatch.runtime.delivery.stage import BUG_ATTEMPTS
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.settings import RetrySettings
from groundwatch.topology import HEADER_PROTOCOLS, HEADER_REASON, OUTCOMES, subject_of

Works = Sequence[Work[ResponseRecorded]]


async def all_done(works: Works) -> list[Result]:
    return [done(work) for work in works]


async def letters(running: Running) -> list[DeadLetter]:
    return [letter async for letter in dead_letters(running.bus)]


async def reason_of(running: Running, event: ResponseRecorded) -> str | None:
    """The reason of its outcome; empty for one with a score."""
    found = await running.bus.js.get_last_msg(
        OUTCOMES, subject_of("outcome", "live", "faithscore", event.key)
    )
    return (found.headers or {}).get(HEADER_REASON, "")


async def test_results_are_stored_before_the_input_is_acknowledged(stage_factory) -> None:
    running = await stage_factory(all_done)
    events = [response(f"r{number}") for number in range(25)]
    for event in events:
        await record(running.bus, event)
    await eventually(running.settled)
    ledger = await audit(running.bus.js)
    assert (ledger.recorded, ledger.scored, ledger.balanced) == (25, 25, True)
    assert running.count("groundwatch_stage_messages_total", stage="extraction", result="done") == 25


async def test_bytes_that_do_not_decode_are_buried_and_stop_nothing(stage_factory) -> None:
    running = await stage_factory(all_done)
    bad, good = response("bad"), response("good")
    await record(running.bus, bad, payload=b'{"id": "bad", "model": 7, "answer": ""}')
    await record(running.bus, good)
    await eventually(running.settled)
    (letter,) = await letters(running)
    assert letter.reason == "undecodable: Expected `str`, got `int` - at `$.model`"
    assert letter.payload == b'{"id": "bad", "model": 7, "answer": ""}'
    assert letter.protocols == ("faithscore",)
    assert await reason_of(running, bad) == "undecodable"
    assert await reason_of(running, good) == ""
    assert (await audit(running.bus.js)).balanced
    assert running.count("groundwatch_dead_letters_total", stage="extraction", reason="undecodable") == 1


@pytest.mark.parametrize(
    "payload",
    (
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        b'{"id": "x"',
        '{"id": "\ud800"}'.encode("utf-8", "surrogatepass"),
    ),
)
async def test_any_bytes_at_all(stage_factory, payload: bytes) -> None:
    running = await stage_factory(all_done)
    await record(running.bus, response("bad"), payload=payload)
    await record(running.bus, response("good"))
    await eventually(running.settled)
    assert [letter.reason.partition(":")[0] for letter in await letters(running)] == ["undecodable"]
    assert (await audit(running.bus.js)).balanced


async def test_a_message_without_headers_on_a_strange_subject(stage_factory) -> None:
    running = await stage_factory(all_done)
    for subject, payload, headers in (
        ("gw.recorded.live.a.b.c", b"nonsense", {}),
        ("gw.recorded.live.x", b"nonsense", {HEADER_PROTOCOLS: "a b,x.y,ok,>"}),
        ("gw.recorded.live.y", b"", {HEADER_PROTOCOLS: "*"}),
    ):
        await running.bus.create(Outgoing(subject=subject, payload=payload, headers=headers))
    await eventually(running.settled)
    assert [letter.protocols for letter in await letters(running)] == [(), ("ok",), ()]
    ledger = await audit(running.bus.js)
    assert ledger.foreign == 3


async def test_headers_that_are_not_text_do_not_blind_the_service(stage_factory) -> None:
    running = await stage_factory(all_done)
    client = running.bus.client
    header = b"NATS/1.0\r\nGw-Protocols: \xff\xfe\r\nbroken\r\n\r\n"
    body = b"{}"
    command = f"HPUB gw.recorded.live.strange {len(header)} {len(header) + len(body)}\r\n".encode()
    await client._send_command(command + header + body + b"\r\n")
    await client._flush_pending()
    await record(running.bus, response("good"))
    await eventually(running.settled, within=5)
    assert await reason_of(running, response("good")) == ""


async def test_a_fault_that_passes_is_tried_again_after_a_delay(stage_factory) -> None:
    tries: list[float] = []

    async def troubled(works: Works) -> list[Result | TransientError]:
        tries.append(time.monotonic())
        return [done(works[0])] if len(tries) == 3 else [TransientError("not now")]

    running = await stage_factory(troubled, retries=RetrySettings(attempts=5, first_delay=0.2, max_delay=10))
    await record(running.bus, response("r"))
    await eventually(running.settled)
    assert len(tries) == 3
    assert tries[1] - tries[0] >= 0.1
    assert tries[2] - tries[1] >= 0.2
    assert not await letters(running)
    assert await reason_of(running, response("r")) == ""
    assert running.count("groundwatch_redeliveries_total", stage="extraction") == 2
    assert running.count("groundwatch_stage_messages_total", stage="extraction", result="retried") == 2


async def test_a_fault_that_does_not_pass_is_buried_in_the_end(stage_factory) -> None:
    tries = 0

    async def never(works: Works) -> list[TransientError]:
        nonlocal tries
        tries += len(works)
        return [TransientError("the judge is down") for _ in works]

    running = await stage_factory(never)
    await record(running.bus, response("r"))
    await eventually(running.settled)
    assert tries == FAST.attempts
    (letter,) = await letters(running)
    assert letter.reason == "gave_up: the judge is down"
    assert await reason_of(running, response("r")) == "dead_letter"
    assert (await audit(running.bus.js)).balanced


async def test_the_inputs_own_fault_is_buried_at_once(stage_factory) -> None:
    tries = 0

    async def hopeless(works: Works) -> list[InputError]:
        nonlocal tries
        tries += len(works)
        return [InputError("not a picture\nof anything") for _ in works]

    running = await stage_factory(hopeless)
    await record(running.bus, response("r"))
    await eventually(running.settled)
    assert tries == 1
    (letter,) = await letters(running)
    assert letter.reason == "bad_input: not a picture of anything"


async def test_an_exploding_message_does_not_take_its_batch_along(stage_factory) -> None:
    tries: Counter[str] = Counter()

    async def explosive(works: Works) -> list[Result]:
        for work in works:
            tries[work.event.id] += 1
        if any(work.event.id == "bomb" for work in works):
            raise ZeroDivisionError("boom")
        return [done(work) for work in works]

    running = await stage_factory(explosive, start=False, batch=20)
    events = [response(f"r{number}") for number in range(10)]
    for event in (*events[:5], response("bomb"), *events[5:]):
        await record(running.bus, event)
    await running.stage.start()
    try:
        await eventually(running.settled)
        (letter,) = await letters(running)
        assert letter.reason == "bug: boom"
        assert all([await reason_of(running, event) == "" for event in events])
        assert await reason_of(running, response("bomb")) == "dead_letter"
        # Once with its batch and once alone on each delivery; alone only once it is the only one left.
        assert BUG_ATTEMPTS <= tries["bomb"] <= 2 * BUG_ATTEMPTS
        assert running.count("groundwatch_dead_letters_total", stage="extraction", reason="bug") == 1
    finally:
        await running.stage.drain(1)


async def test_a_handler_that_miscounts_loses_nothing(stage_factory) -> None:
    async def forgetful(works: Works) -> list[Result]:
        return []

    running = await stage_factory(forgetful)
    await record(running.bus, response("r"))
    await eventually(running.settled)
    assert await reason_of(running, response("r")) == "dead_letter"


async def test_what_killed_everybody_before_is_not_tried_again(stage_factory) -> None:
    handled: list[str] = []

    async def noting(works: Works) -> list[Result]:
        handled.extend(work.event.id for work in works)
        return [done(work) for work in works]

    running = await stage_factory(noting, start=False)
    await record(running.bus, response("killer"))
    subscription = await running.bus.js.pull_subscribe_bind(
        consumer=running.spec.name, stream=running.spec.stream
    )
    for _ in range(FAST.attempts + 1):
        (message,) = await subscription.fetch(1, timeout=2)
        await message.nak()
    await subscription.unsubscribe()
    await running.stage.start()
    try:
        await eventually(running.settled)
    finally:
        await running.stage.drain(1)
    assert handled == []
    (letter,) = await letters(running)
    assert letter.reason == f"bad_input: gave up after {FAST.attempts + 1} deliveries without an answer"
    assert await reason_of(running, response("killer")) == "dead_letter"


async def test_one_protocol_fails_and_the_others_do_not(stage_factory) -> None:
    async def partial(works: Works) -> list[Result]:
        results = []
        for work in works:
            kept = msgspec.structs.replace(work.event, protocols=("good",))
            publications = done(Work(kept, work.arrived)).publications
            results.append(Result(publications=publications, failures={"bad": InputError("not for me")}))
        return results

    running = await stage_factory(partial)
    await record(running.bus, response("r", protocols=("good", "bad")))
    await eventually(running.settled)
    (letter,) = await letters(running)
    assert letter.protocols == ("bad",)
    ledger = await audit(running.bus.js)
    assert (ledger.recorded, ledger.scored, ledger.unscored) == (2, 1, 1)
    assert ledger.balanced


async def test_a_result_too_large_for_the_server_is_the_inputs_fault(stage_factory) -> None:
    async def verbose(works: Works) -> list[Result]:
        huge = b"x" * (works[0].arrived.message._client.max_payload + 1)
        subject = subject_of("outcome", "live", "faithscore", works[0].event.key)
        return [Result(publications=(Outgoing(subject=subject, payload=huge),)) for _ in works]

    running = await stage_factory(verbose)
    await record(running.bus, response("r"))
    await eventually(running.settled)
    (letter,) = await letters(running)
    assert "max_payload" in letter.reason
    assert (await audit(running.bus.js)).balanced


async def test_a_dead_letter_that_does_not_fit_says_where_its_bytes_are(stage_factory) -> None:
    running = await stage_factory(all_done)
    limit = running.bus.client.max_payload
    subject = subject_of("recorded", "live", "huge")
    # Only somebody who writes beside the gateway can fill a message to the last byte.
    await running.bus.js.publish(subject, b"x" * (limit - 10))
    await eventually(running.settled)
    (letter,) = await letters(running)
    assert letter.payload == b""
    assert "its bytes stay in GW_RESPONSES at sequence 1" in letter.reason


async def test_slow_work_is_not_delivered_again(stage_factory) -> None:
    handled: list[str] = []

    async def slow(works: Works) -> list[Result]:
        handled.extend(work.event.id for work in works)
        await asyncio.sleep(2.5)
        return [done(work) for work in works]

    running = await stage_factory(slow, ack_wait=1.0, concurrency=2)
    await record(running.bus, response("r"))
    await eventually(running.settled)
    await asyncio.sleep(1.2)
    assert handled == ["r"]
    assert running.count("groundwatch_redeliveries_total", stage="extraction") == 0


async def test_slow_messages_do_not_hold_up_others(stage_factory) -> None:
    finished: list[str] = []
    release = asyncio.Event()

    async def uneven(works: Works) -> list[Result]:
        if works[0].event.id.startswith("slow"):
            await release.wait()
        finished.extend(work.event.id for work in works)
        return [done(work) for work in works]

    running = await stage_factory(uneven, batch=1, concurrency=4)
    for name in ("slow-1", "slow-2", "slow-3", *(f"quick-{number}" for number in range(20))):
        await record(running.bus, response(name))
    await eventually(lambda: len(finished) == 20)
    assert not any(name.startswith("slow") for name in finished)
    release.set()
    await eventually(running.settled)
    assert Counter(finished).most_common(1)[0][1] == 1


async def test_a_rate_limited_judge_is_waited_for(stage_factory) -> None:
    tries: list[float] = []

    async def limited(works: Works) -> list[Any]:
        tries.append(time.monotonic())
        return [done(works[0])] if len(tries) > 1 else [RateLimited("slow down", retry_after=0.8)]

    running = await stage_factory(limited, retries=RetrySettings(attempts=5, first_delay=0.01, max_delay=5))
    await record(running.bus, response("r"))
    await eventually(running.settled)
    assert tries[1] - tries[0] >= 0.8


async def test_drain_finishes_what_it_holds_and_leaves_the_rest(stage_factory) -> None:
    began = asyncio.Event()

    async def handler(works: Works) -> list[Result]:
        began.set()
        await asyncio.sleep(0.3)
        return [done(work) for work in works]

    running = await stage_factory(handler, batch=5, concurrency=2)
    for number in range(100):
        await record(running.bus, response(f"r{number}"))
    await began.wait()
    await running.stage.drain(10)

    async def none_held() -> bool:
        return await running.held() == 0

    # The server reads acknowledgements in its own time, but far sooner than ack_wait.
    await eventually(none_held, within=5)
    assert running.stage.in_flight == 0
    left = await running.pending()
    ledger = await audit(running.bus.js)
    assert ledger.scored == 100 - left > 0


async def test_drain_hands_back_what_takes_too_long(stage_factory) -> None:
    async def stuck(works: Works) -> list[Result]:
        await asyncio.sleep(3600)
        raise AssertionError

    running = await stage_factory(stuck, batch=5, ack_wait=30.0, name="handed", start=False)
    for number in range(5):
        await record(running.bus, response(f"r{number}"))
    await running.stage.start()
    await eventually(lambda: running.stage.in_flight == 5)
    began = time.monotonic()
    await running.stage.drain(0.3)
    assert time.monotonic() - began < 5
    # Another replica gets them at once, not after ack_wait.
    other = await stage_factory(all_done, ack_wait=30.0, name="handed")
    await eventually(other.settled, within=8)
    assert (await audit(running.bus.js)).scored == 5


async def test_a_fault_in_storing_hands_the_message_back(stage_factory, monkeypatch) -> None:
    running = await stage_factory(all_done, start=False)
    original, failed = running.bus.start_create, []

    async def flaky(outgoing: Outgoing) -> Any:
        if len(failed) < 2:
            failed.append(outgoing.subject)
            raise TransientError("the wire is cut")
        return await original(outgoing)

    await record(running.bus, response("r"))
    monkeypatch.setattr(running.bus, "start_create", flaky)
    await running.stage.start()
    try:
        await eventually(running.settled)
    finally:
        await running.stage.drain(1)
    assert len(failed) == 2
    assert await reason_of(running, response("r")) == ""
    assert not await letters(running)
