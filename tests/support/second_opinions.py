"""People who know the truth and have looked at answers of live traffic."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from groundwatch.events import LIVE, Decision, FactOpinion, OpinionGiven, ResponseScored
from groundwatch.reviews.opinions import Opinions, opinion_on
from groundwatch.reviews.queues import Frame, Frames, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import read_outcomes


def opinion_about(
    event: ResponseScored,
    wrong: Sequence[bool],
    *,
    reviewer: str = "ann",
    queue: str = "q",
    probability: float = 1.0,
) -> OpinionGiven:
    """Which of its claims do not hold."""
    facts = tuple(
        FactOpinion(
            text=claim.text,
            category=claim.category,
            decision=Decision.REFUTED if one else Decision.SUPPORTED,
            claim=at,
        )
        for at, (claim, one) in enumerate(zip(event.claims, wrong, strict=True))
    )
    return opinion_on(
        event, reviewer=reviewer, facts=facts, given_at=time.time(), queue=queue, probability=probability
    )


async def review_all(
    bus: Bus, model: str, truth: Callable[[ResponseScored], Sequence[bool]], queue: str = "q"
) -> None:
    """A queue of every answer of this model so far, each of which has an opinion."""
    frame = Frame(queue=queue)
    made = await Queues(bus).create(QueueSpec(name=queue, protocol="faithscore", rule="all", since=1.0))
    async for event in read_outcomes(bus, LIVE, follow=False):
        if event.model == model:
            frame.add(event, event.tags.get("version", ""))
            frame.drawn += 1
            await Opinions(bus).give(opinion_about(event, truth(event), queue=made.name))
    assert await Frames(bus).save(frame, 0)
