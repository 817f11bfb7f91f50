"""Attempts are what failed at an event, not how often NATS delivered it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.runtime.conftest import FAST, done, eventually, record, response

from groundwatch.errors import TransientError, Unavailable
from groundwatch.events import ResponseRecorded
from groundwatch.runtime.delivery.dead_letters import dead_letters
from groundwatch.runtime.delivery.stage import BUG_ATTEMPTS
from groundwatch.runtime.delivery.work import Attempts, Work

Works = Sequence[Work[ResponseRecorded]]


def test_what_was_answered_for_is_no_silence():
    known = Attempts(faults=2, bugs=1, released=4)
    assert known.failed == 3
    assert known.unanswered(8) == 0
    assert known.unanswered(11) == 3
    assert known.plus("released").unanswered(11) == 2


async def test_an_outage_however_long_uses_up_no_attempt(stage_factory) -> None:
    tries = 0

    async def away(works: Works) -> list[Any]:
        nonlocal tries
        tries += 1
        if tries < 4 * FAST.attempts:
            # `trial` hands the event back each time, which NATS counts.
            return [Unavailable("nobody there", judge="j", retry_after=0.01, trial=True)]
        return [done(works[0])]

    running = await stage_factory(away)
    await record(running.bus, response("r"))
    await eventually(running.settled)
    assert tries == 4 * FAST.attempts
    assert [letter async for letter in dead_letters(running.bus)] == []


@pytest.mark.parametrize(
    ("error", "allowed"), [(ValueError("boom"), BUG_ATTEMPTS), (TransientError("not now"), FAST.attempts)]
)
async def test_attempts_are_counted_over_restarts_and_apart_from_outages(
    stage_factory, error: Exception, allowed: int
) -> None:
    """Each attempt is made by another process, with an outage and a hand-over between them."""
    failed = 0
    outage = True

    async def troubled(works: Works) -> list[Any]:
        nonlocal failed, outage
        outage = not outage
        if outage:
            return [Unavailable("nobody there", judge="j", retry_after=0.01, trial=True)]
        failed += 1
        raise error

    running = await stage_factory(troubled, start=False, name=f"counted-{allowed}")
    await record(running.bus, response("r"))
    for number in range(1, allowed + 1):
        replica = await stage_factory(troubled, name=f"counted-{allowed}")
        await eventually(lambda number=number: failed >= number)
        await replica.stage.drain(5)
    await eventually(running.settled)
    assert failed == allowed
    assert len([letter async for letter in dead_letters(running.bus)]) == 1
