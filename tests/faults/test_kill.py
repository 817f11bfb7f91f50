"""Kill −9 anything, at any moment: nothing is lost, nothing is doubled, no score changes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.faults.conftest import COUNT
from tests.faults.harness import NATS, SERVICES, System, responses, sending

from groundwatch.topology import EXTRACTED, JUDGED, OUTCOMES, RESPONSES

pytestmark = pytest.mark.xdist_group("faults")

KILLS = 2

Outcomes = dict[str, dict[str, Any]]


def check(system: System, tenant: str, undisturbed: Outcomes) -> None:
    """The ledger balances, and everything is as if nothing had happened."""
    ledger = system.settle()
    assert ledger.in_flight == 0, ledger
    assert ledger.balanced, ledger
    assert ledger.lost == ledger.orphans == 0
    found = system.outcomes(tenant)
    assert found.keys() == undisturbed.keys()
    different = [name for name in found if found[name] != undisturbed[name]]
    assert not different, (found[different[0]], undisturbed[different[0]])
    only_once(system)


def only_once(system: System) -> None:
    """No stream has two messages on a subject, and no outcome ever took another's place."""

    async def look(bus: Any) -> list[tuple[str, int, int, int]]:
        found = []
        for name in (RESPONSES, EXTRACTED, JUDGED, OUTCOMES):
            state = (await bus.js.stream_info(name)).state
            subjects = (await bus.js.stream_info(name, subjects_filter=">")).state.subjects
            found.append((name, state.messages, state.last_seq, len(subjects)))
        return found

    for name, messages, last, subjects in system.ask(look):
        assert messages == last == subjects, f"{name}: {messages} messages, {last} ever, {subjects} subjects"


def test_each_is_killed_once_while_responses_stream(running: System, undisturbed: Outcomes) -> None:
    with sending(running, responses("kill", COUNT)) as sender:
        for place, victim in enumerate((*SERVICES, NATS)):
            sender.at(200 + place * (COUNT - 400) // len(SERVICES))
            running.kill_and_restart(victim)
        running.wait_ready(*SERVICES)
    check(running, "kill", undisturbed)
    assert len(undisturbed) == COUNT


@pytest.mark.slow
@pytest.mark.parametrize("victim", (*SERVICES, NATS))
def test_killed_while_responses_stream(running: System, undisturbed: Outcomes, victim: str) -> None:
    moments = sorted(random.Random(victim).sample(range(200, COUNT - 200), KILLS))
    before = running.delivered_again(victim)
    with sending(running, responses(f"kill-{victim}", COUNT)) as sender:
        for moment in moments:
            sender.at(moment)
            running.kill_and_restart(victim)
            running.wait_ready(*SERVICES)
    check(running, f"kill-{victim}", undisturbed)
    if victim in ("extraction", "verification", "scoring"):
        # It died with work in its hands, or this test proves nothing.
        assert running.delivered_again(victim) > before
