"""Stopping on purpose, for long, together, and at the worst moment: the ledger does not notice."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.faults.harness import ACK_WAIT, NATS, SERVICES, System, responses, sending
from tests.faults.test_kill import Outcomes, check

from groundwatch.runtime.local.servers import free_port
from groundwatch.topology import EXTRACTED, JUDGED, RESPONSES

pytestmark = pytest.mark.xdist_group("faults")
slow = pytest.mark.slow

STREAM_OF = {"extraction": RESPONSES, "verification": EXTRACTED, "scoring": JUDGED}


def few(undisturbed: Outcomes, count: int) -> Outcomes:
    return {name: undisturbed[name] for name in (f"r{number}" for number in range(count))}


@slow
@pytest.mark.parametrize("service", SERVICES)
def test_sigterm_drains_in_mid_stream(running: System, undisturbed: Outcomes, service: str) -> None:
    tenant = f"drain-{service}"
    with sending(running, responses(tenant, 2_000)) as sender:
        sender.at(300)
        assert running.children[service].end() == 0
        if service in STREAM_OF:
            # Whatever it had fetched is finished or handed back, not left to a timeout; the server counts
            # as held what was handed back with a delay, which only a troubled engine causes.
            assert running.held(service, STREAM_OF[service]) <= (20 if service == "extraction" else 0)
        running.children[service].start()
        running.wait_ready(service)
    check(running, tenant, few(undisturbed, 2_000))


@slow
def test_two_replicas_share_a_stage_and_one_dies(running: System, undisturbed: Outcomes) -> None:
    second = running.add("extraction-2", "extraction", free_port())
    second.start()
    try:
        running.wait_ready("extraction-2")
        with sending(running, responses("replicas", 2_000)) as sender:
            sender.at(1_000)
            assert 'groundwatch_stage_messages_total{result="done"' in running.metrics("extraction-2")
            running.kill("extraction-2")
        check(running, "replicas", few(undisturbed, 2_000))
    finally:
        second.end()


@slow
def test_server_restarted_in_good_order(running: System, undisturbed: Outcomes) -> None:
    with sending(running, responses("server-restart", 2_000)) as sender:
        sender.at(500)
        running.children[NATS].end()
        time.sleep(1)
        running.children[NATS].start()
        running.wait_ready(*SERVICES)
    check(running, "server-restart", few(undisturbed, 2_000))


@slow
def test_stage_stopped_for_longer_than_ack_wait(running: System, undisturbed: Outcomes) -> None:
    with sending(running, responses("long-stop", 1_000)) as sender:
        sender.at(300)
        running.kill("verification")
        sender.at(1_000)
        time.sleep(ACK_WAIT + 1)
        ledger = running.audit()
        assert ledger.unaccounted == 0
        assert ledger.in_flight_at.get("verification", 0) > 0
        running.children["verification"].start()
        running.wait_ready("verification")
    check(running, "long-stop", few(undisturbed, 1_000))


@pytest.mark.parametrize(
    "service", (pytest.param("extraction", marks=slow), "verification", pytest.param("scoring", marks=slow))
)
def test_killed_between_publishing_and_acknowledging(
    running: System, undisturbed: Outcomes, service: str
) -> None:
    tenant = f"unacknowledged-{service}"
    child = running.children[service]
    assert child.end() == 0
    child.start(FAULT_DIE_BEFORE_ACK="137")
    with sending(running, responses(tenant, 1_000)):
        assert child.wait() < 0
        child.start()
        running.wait_ready(service)
    check(running, tenant, few(undisturbed, 1_000))


@slow
def test_sigterm_while_the_server_is_away_ends_in_time(running: System, undisturbed: Outcomes) -> None:
    with sending(running, responses("away", 1_000)) as sender:
        sender.at(200)
        running.kill(NATS)
        began = time.monotonic()
        statuses = {name: running.children[name].end(patience=45) for name in ("extraction", "scoring")}
        assert time.monotonic() - began < 60
        running.children[NATS].start()
        for name in statuses:
            running.children[name].start()
        running.wait_ready(*SERVICES)
    check(running, "away", few(undisturbed, 1_000))
    assert set(statuses.values()) == {0}


@slow
def test_counts_a_redelivered_response_once(running: System, undisturbed: Outcomes) -> None:
    def counted(tenant: str) -> float:
        lines: list[str] = [
            line
            for line in running.metrics("scoring").splitlines()
            if line.startswith("groundwatch_outcomes_total") and f'tenant="{tenant}"' in line
        ]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    with sending(running, responses("counted", 500)):
        pass
    running.settle()
    outcomes: Any = running.outcomes("counted").values()
    expected = sum(outcome["outcome"] == "scored" for outcome in outcomes)
    before = counted("counted")
    assert before == expected
    with sending(running, responses("counted", 500)):
        pass
    running.settle()
    assert counted("counted") == before
