"""Two people who review what a running system judged, for the dashboards."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from groundwatch.events import Decision, FactOpinion, ResponseScored
from groundwatch.reviews.agreement import read_agreement
from groundwatch.reviews.corrected import read_corrected
from groundwatch.reviews.opinions import Opinions, opinion_on
from groundwatch.reviews.queues import Items, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.topology import OUTCOMES, subject_of

QUEUE: Final = "reviewed"
PROTOCOL: Final = "faithscore"
DIFFERS: Final = {"ann": 3, "ben": 4}
"""In which fact of how many each sees it otherwise than the judge."""


async def make_queue(bus: Bus) -> None:
    """Of every answer that comes from now on."""
    await Queues(bus).create(QueueSpec(name=QUEUE, protocol=PROTOCOL, rule="all"))


async def review(bus: Bus) -> None:
    """Everything that was drawn by now, by both; until rates and agreement are written down."""
    given = 0
    for item in await Items(bus).all(QUEUE):
        found = await bus.history.last(OUTCOMES, subject_of("outcome", "live", PROTOCOL, item.key))
        assert found is not None
        outcome = msgspec.json.decode(found.data, type=ResponseScored)
        for reviewer, differs in DIFFERS.items():
            facts = []
            for at, claim in enumerate(outcome.claims):
                wrong = (claim.decision is Decision.REFUTED) != ((given + at) % differs == 0)
                decision = Decision.REFUTED if wrong else Decision.SUPPORTED
                facts.append(
                    FactOpinion(text=claim.text, category=claim.category, decision=decision, claim=at)
                )
            opinion = opinion_on(
                outcome,
                reviewer=reviewer,
                facts=tuple(facts),
                given_at=time.time(),
                queue=QUEUE,
                probability=item.probability,
            )
            await Opinions(bus).give(opinion)
        given += 1
    assert given >= 20
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        drift = (await read_agreement(bus)).drift
        rated = any(row.corrected is not None for row in (await read_corrected(bus)).rows)
        if rated and any(one.before is not None and one.latest is not None for one in drift):
            return
        await asyncio.sleep(0.2)
    raise TimeoutError(f"{given} reviewed answers have no rates")
