"""The ledger, counted from the streams: it balances, and it knows when it does not."""

from __future__ import annotations

import asyncio
import io
import re
import time
from typing import Any

import msgspec
import pytest
from tests.runtime.conftest import eventually, record, response

from groundwatch.cli.ledger import show_ledger
from groundwatch.errors import UsageError
from groundwatch.events import LIVE, OutcomeKind, ResponseRecorded
from groundwatch.extraction.engines.base import NoopExtractionEngine
from groundwatch.extraction.service import ExtractionService
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.runtime.delivery.outcomes import without_score
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings, Settings
from groundwatch.runtime.stores import tombstones
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.terminal import Console
from groundwatch.topology import ASKED, HEADER_ORIGIN, INTAKE, RESPONSES, subject_of
from groundwatch.verification.engines.base import NoopVerificationEngine
from groundwatch.verification.service import VerificationService

NOOP: dict[str, Any] = {"extraction": NoopExtractionEngine, "verification": NoopVerificationEngine}
MAKE: dict[str, Any] = {
    "extraction": lambda bus: ExtractionService(Settings(), bus, Metrics(), NoopExtractionEngine()),
    "verification": lambda bus: VerificationService(Settings(), bus, Metrics(), NoopVerificationEngine()),
    "scoring": lambda bus: ScoringService(Settings(), bus, Metrics()),
}


@pytest.fixture
async def stages(bus: Bus, clean_streams: None):
    """Starts stages by name; each is stopped at the end, if it was not before."""
    running: dict[str, Any] = {}

    async def start(*names: str) -> None:
        for name in names:
            running[name] = MAKE[name](bus)
            await running[name].start()

    async def stop(name: str) -> None:
        await running.pop(name).drain(5)

    start.stop = stop
    yield start
    for service in running.values():
        await service.drain(0.05)


async def put_outcome(bus: Bus, event: ResponseRecorded, kind: OutcomeKind, reason: str = "") -> None:
    outcome = msgspec.structs.replace(without_score(event, "faithscore", kind, reason), scored_at=time.time())
    await bus.create(outcomes.outgoing(outcome))


async def test_nothing_provisioned(own_server: NatsServer) -> None:
    bus = Bus(NatsSettings(url=own_server.url), name="test")
    await bus.connect()
    with pytest.raises(UsageError, match="groundwatch admin provision"):
        await audit(bus.js)
    await bus.close()


async def test_nothing_recorded(bus: Bus, clean_streams: None) -> None:
    ledger = await audit(bus.js)
    assert ledger.balanced
    assert ledger.recorded == 0


async def test_balances_while_traffic_flows_and_after(bus: Bus, stages) -> None:
    await stages("extraction", "verification", "scoring")

    async def traffic() -> None:
        for number in range(600):
            declined = {"faithscore": "sampled_out"} if number % 5 == 0 else {}
            await record(bus, response(f"r{number}", declined=declined))

    flowing = asyncio.create_task(traffic())
    seen = 0
    while not flowing.done():
        ledger = await audit(bus.js)
        assert ledger.unaccounted == 0, ledger
        seen = max(seen, ledger.in_flight)
    await flowing
    await eventually(lambda: _idle(bus))
    ledger = await audit(bus.js)
    assert (ledger.recorded, ledger.scored, ledger.declined, ledger.in_flight) == (600, 480, 120, 0)
    assert ledger.reasons == {"declined: sampled_out": 120}
    assert ledger.balanced


async def _idle(bus: Bus) -> bool:
    return not (await audit(bus.js)).in_flight


@pytest.mark.parametrize("stopped", ("extraction", "verification", "scoring"))
async def test_what_waits_for_a_stopped_stage_is_in_flight_there(bus: Bus, stages, stopped: str) -> None:
    await stages(*(name for name in MAKE if name != stopped))
    for number in range(20):
        await record(bus, response(f"r{number}"))

    async def waiting() -> bool:
        return (await audit(bus.js)).in_flight_at == {stopped: 20}

    await eventually(waiting, within=60)
    assert (await audit(bus.js)).balanced
    await stages(stopped)
    await eventually(lambda: _idle(bus))
    assert (await audit(bus.js)).scored == 20


async def test_an_input_acknowledged_without_a_result_is_lost(bus: Bus, clean_streams: None) -> None:
    for number in range(3):
        await record(bus, response(f"r{number}"))
    subscription = await bus.js.pull_subscribe_bind(consumer="extraction", stream=RESPONSES)
    first, second = await subscription.fetch(2, timeout=60)
    assert (await audit(bus.js)).in_flight == 3
    await second.ack_sync()
    # Behind one that is still held, the server does not say which is done, but that one is.
    ledger = await audit(bus.js)
    assert (ledger.lost, ledger.in_flight, ledger.unsettled) == (1, 2, 0)
    assert not ledger.balanced
    await first.ack_sync()
    ledger = await audit(bus.js)
    assert (ledger.lost, ledger.in_flight) == (2, 1)
    assert not ledger.balanced


@pytest.mark.parametrize("retried", [0, 1, 2])
async def test_a_loss_beside_one_that_is_retried_is_no_flight(
    bus: Bus, clean_streams: None, retried: int
) -> None:
    """The retried one keeps the floor of what is acknowledged below both, or the other way round."""
    for number in range(3):
        await record(bus, response(f"r{number}"))
    subscription = await bus.js.pull_subscribe_bind(consumer="extraction", stream=RESPONSES)
    for number, message in enumerate(await subscription.fetch(3)):
        await (message.nak(delay=60) if number == retried else message.ack())
    await eventually_pending(bus, 1)
    ledger = await audit(bus.js)
    assert not ledger.balanced
    assert (ledger.recorded, ledger.lost, ledger.in_flight) == (3, 2, 1)


async def test_what_may_be_lost_beside_one_retried_is_unsettled(bus: Bus, clean_streams: None) -> None:
    """One has its result and is held still, another was let go of without one: nobody can tell them apart."""
    sent = [response(f"r{number}") for number in range(2)]
    for event in sent:
        await record(bus, event)
    await put_outcome(bus, sent[0], OutcomeKind.UNSCORED, "refused")
    subscription = await bus.js.pull_subscribe_bind(consumer="extraction", stream=RESPONSES)
    held, lost = await subscription.fetch(2)
    await held.nak(delay=2)
    await lost.ack()
    await eventually_pending(bus, 1)
    ledger = await audit(bus.js)
    assert (ledger.in_flight, ledger.lost, ledger.unsettled) == (1, 0, 1)
    assert not ledger.balanced and ledger.unaccounted == 0
    assert ledger.standing == "not settled yet: 1 at most of those in flight may be lost"
    settling = asyncio.create_task(audit(bus.js, settle=30.0))
    (again,) = await subscription.fetch(1, timeout=30)
    assert again.data == held.data
    await again.ack_sync()
    ledger = await settling
    assert (ledger.recorded, ledger.lost, ledger.unsettled) == (2, 1, 0), "of what was recorded by then"


async def test_what_is_held_for_certain_is_not_unsettled(bus: Bus, clean_streams: None) -> None:
    for number in range(3):
        await record(bus, response(f"r{number}"))
    subscription = await bus.js.pull_subscribe_bind(consumer="extraction", stream=RESPONSES)
    await subscription.fetch(2)
    ledger = await audit(bus.js)
    assert ledger.balanced
    assert (ledger.in_flight, ledger.unsettled) == (3, 0)


async def eventually_pending(bus: Bus, number: int) -> None:
    for _ in range(100):
        info = await bus.js.consumer_info(RESPONSES, "extraction")
        if info.num_ack_pending == number:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(info)


async def test_what_waits_at_intake_is_shown_apart(bus: Bus, clean_streams: None) -> None:
    for _ in range(3):
        await bus.js.publish("gw.intake.acme", b"{}")
    ledger = await audit(bus.js)
    assert (ledger.waiting_at_intake, ledger.recorded, ledger.balanced) == (3, 0, True)
    shown = io.StringIO()
    show_ledger(ledger, Console(file=shown, width=200))
    assert re.search(r"\b3\W+waiting at intake", shown.getvalue())
    subscription = await bus.js.pull_subscribe_bind(consumer="gateway", stream=INTAKE)
    first, _ = await subscription.fetch(2)
    await first.ack_sync()
    # What a gateway holds waits like what it has not fetched.
    assert (await audit(bus.js)).waiting_at_intake == 2


async def test_a_question_that_is_sent_again_waits_in_the_work_queue(bus: Bus, clean_streams: None) -> None:
    """The server takes no second consumer of a work queue: it is read without one."""
    asked = subject_of("asked", LIVE, "captioning", "0" * 32)
    await bus.js.publish(asked, b"{}")
    subscription = await bus.js.pull_subscribe_bind(consumer="captioning", stream=ASKED)
    [message] = await subscription.fetch(1)
    await message.ack_sync()
    ledger = await audit(bus.js)
    assert (ledger.questions, ledger.questions_lost) == (0, 1)
    again = subject_of("retry", "captioning", LIVE, "0" * 32)
    await bus.js.publish(again, b"{}", headers={HEADER_ORIGIN: asked})
    ledger = await audit(bus.js)
    assert (ledger.questions, ledger.questions_lost) == (1, 0)


async def test_an_outcome_of_no_response_is_an_orphan(bus: Bus, clean_streams: None) -> None:
    await record(bus, response("r"))
    await put_outcome(bus, response("stranger"), OutcomeKind.SCORED)
    ledger = await audit(bus.js)
    assert ledger.orphans == 1
    assert not ledger.balanced


async def test_an_outcome_of_a_protocol_nobody_asked_for_is_an_orphan(bus: Bus, clean_streams: None) -> None:
    event = response("r", protocols=("other",))
    await record(bus, event)
    await put_outcome(bus, event, OutcomeKind.SCORED)
    assert (await audit(bus.js)).orphans == 1


async def retained(bus: Bus, before: int | None = None) -> None:
    """Remove what is older, as a round of retention does."""
    name = tombstones.tombstone_name("retention", "")
    cut = tombstones.Tombstone(kind="retention", name=name, at=time.time(), settled=True)
    await tombstones.write(bus.js, cut)
    await bus.js.purge_stream(RESPONSES, seq=before)


async def test_outcomes_of_responses_that_retention_removed_are_expired(
    bus: Bus, clean_streams: None
) -> None:
    old = [response(f"old-{number}") for number in range(3)]
    for event in old:
        await record(bus, event)
        await put_outcome(bus, event, OutcomeKind.SCORED)
    await asyncio.sleep(0.05)
    new = response("new")
    await record(bus, new)
    await retained(bus, 3)
    # Judged late: its outcome is younger than the oldest response kept.
    await put_outcome(bus, new, OutcomeKind.SCORED)
    await retained(bus, 4)
    ledger = await audit(bus.js)
    assert (ledger.expired, ledger.orphans, ledger.recorded) == (3, 0, 1)
    assert ledger.balanced


async def test_an_outcome_judged_late_may_outlive_its_response(bus: Bus, clean_streams: None) -> None:
    old = response("old")
    await record(bus, old)
    await asyncio.sleep(0.02)
    await record(bus, response("new"))
    await retained(bus, 2)
    await put_outcome(bus, old, OutcomeKind.SCORED)
    ledger = await audit(bus.js)
    assert (ledger.expired, ledger.orphans) == (1, 0)
    assert ledger.balanced


async def test_retention_may_remove_every_response(bus: Bus, clean_streams: None) -> None:
    event = response("old")
    await record(bus, event)
    await put_outcome(bus, event, OutcomeKind.SCORED)
    await retained(bus)
    ledger = await audit(bus.js)
    assert (ledger.recorded, ledger.expired, ledger.orphans) == (0, 1, 0)
    assert ledger.balanced


async def test_what_no_gateway_wrote_is_foreign(bus: Bus, clean_streams: None) -> None:
    await bus.create(Outgoing(subject="gw.recorded.live.x", payload=b"hello"))
    await bus.create(Outgoing(subject="gw.recorded.live.x.y", payload=b"hello"))
    ledger = await audit(bus.js)
    assert (ledger.foreign, ledger.recorded) == (2, 0)
    assert ledger.balanced


async def test_other_runs_are_no_part_of_live_traffic(bus: Bus, clean_streams: None) -> None:
    await record(bus, response("r"))
    await record(bus, response("r", run="replay-1"))
    await put_outcome(bus, response("r", run="replay-1"), OutcomeKind.SCORED)
    ledger = await audit(bus.js)
    assert (ledger.run, ledger.recorded, ledger.scored, ledger.orphans) == ("live", 1, 0, 0)


async def test_an_outcome_replaced_while_we_read_is_found(
    bus: Bus, clean_streams: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from groundwatch.ledger import ledger as auditing

    event = response("r")
    await record(bus, event)
    subscription = await bus.js.pull_subscribe_bind(consumer="extraction", stream=RESPONSES)
    (message,) = await subscription.fetch(1, timeout=2)
    await message.ack_sync()
    await put_outcome(bus, event, OutcomeKind.UNSCORED, "dead_letter")
    original = auditing.last_sequences

    async def moving(js: Any) -> dict[str, int]:
        last = await original(js)
        score = without_score(event, "faithscore", OutcomeKind.SCORED, "")
        await outcomes.replace_dead(bus, outcomes.outgoing(score))
        return last

    monkeypatch.setattr(auditing, "last_sequences", moving)
    ledger = await audit(bus.js)
    assert (ledger.scored, ledger.unscored, ledger.lost) == (1, 0, 0)
    assert ledger.balanced
    monkeypatch.undo()
    ledger = await audit(bus.js)
    assert (ledger.recorded, ledger.scored, ledger.unscored, ledger.balanced) == (1, 1, 0, True)
