"""Outcomes of live traffic in the stream, as scoring puts them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from tests.conftest import BusFactory

from groundwatch.events import (
    Decision,
    Judge,
    JudgedClaim,
    Label,
    OutcomeKind,
    ResponseScored,
    SubSentence,
)
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing

JUDGE = Judge(engine="fake", model="judge")


def outcome(name: str, probabilities: Sequence[float] = (0.9, 0.2), **changes: Any) -> ResponseScored:
    """An outcome with a fact for each probability that it holds; two categories in turn."""
    claims = tuple(
        JudgedClaim(
            text=f"fact {number}",
            category=("entity", "color")[number % 2],
            unit=0,
            decision=Decision.SUPPORTED if p >= 0.5 else Decision.REFUTED,
            probability=p,
        )
        for number, p in enumerate(probabilities)
    )
    whole = ResponseScored(
        id=name,
        model="lvlm",
        protocol="faithscore",
        outcome=OutcomeKind.SCORED,
        score=1.0,
        judges={"verification": JUDGE},
        units=(SubSentence(start=0, end=6, text="a ball", label=Label.DESCRIPTIVE),),
        claims=claims,
        eligible=len(claims),
        decided=len(claims),
        recorded_at=1_000.0,
    )
    return msgspec.structs.replace(whole, **changes)


def several(number: int, seed: int = 0, **changes: Any) -> list[ResponseScored]:
    random = Random(seed)
    return [
        outcome(f"r{one}", [random.random() for _ in range(random.randint(1, 5))], **changes)
        for one in range(number)
    ]


Publish = Callable[[Sequence[ResponseScored]], Any]


@pytest.fixture
async def publish(bus_factory: BusFactory, clean_streams: None) -> Publish:
    """Puts outcomes into their stream."""
    bus: Bus = await bus_factory("scoring")

    async def put(outcomes: Sequence[ResponseScored]) -> None:
        for one in outcomes:
            await bus.create(outgoing(one))

    return put
