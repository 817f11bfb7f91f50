"""The scoring service: one outcome for each judged event, counted when the stream has taken it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.runtime.conftest import FAST, eventually

from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    ClaimsVerified,
    Decision,
    Judge,
    Label,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    SubSentence,
    Usage,
    Verdict,
)
from groundwatch.protocols.base import Stage
from groundwatch.runtime.delivery.bus import ENCODER, Bus, Outgoing
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import JUDGED, subject_of

SUPPORTED, REFUTED, UNDECIDED = Decision.SUPPORTED, Decision.REFUTED, Decision.UNDECIDED


def judged(name: str, *decisions: Decision, protocol: str = "faithscore") -> ClaimsVerified:
    """An answer with a claim for each of these verdicts."""
    extracted = ClaimsExtracted(
        response=ResponseRecorded(id=name, model="heron", answer="A red ball.", protocols=(protocol,)),
        protocol=protocol,
        judge=Judge(engine="rules"),
        units=(SubSentence(start=0, end=10, text="A red ball", label=Label.DESCRIPTIVE),),
        claims=tuple(Claim(text=f"There is thing {at}.", category="entity") for at in range(len(decisions))),
        usage=Usage(calls=1, cost=0.5),
    )
    verdicts = tuple(Verdict(decision=decision) for decision in decisions)
    return ClaimsVerified(
        extracted=extracted,
        judge=Judge(engine="reference"),
        verdicts=verdicts,
        usage=Usage(calls=2, cost=0.25),
    )


async def send(bus: Bus, event: ClaimsVerified) -> None:
    response = event.extracted.response
    subject = subject_of("judged", "live", Stage.SCORING.value, event.extracted.protocol, response.key)
    await bus.create(Outgoing(subject=subject, payload=ENCODER.encode(event)))


@pytest.fixture
async def bus(bus_factory, clean_streams: None) -> Bus:
    return await bus_factory("scoring")


@contextlib.asynccontextmanager
async def scoring(bus: Bus, metrics: Metrics) -> AsyncIterator[None]:
    service = ScoringService(Settings(retry=FAST), bus, metrics)
    await service.start()
    try:
        yield
    finally:
        await service.drain(1)


async def outcomes(bus: Bus, count: int) -> dict[str, ResponseScored]:
    """By id, once there are so many."""
    found: dict[str, ResponseScored] = {}

    async def there() -> bool:
        found.update({one.id: one async for one in read_outcomes(bus, "live", follow=False)})
        return len(found) >= count

    await eventually(there)
    return found


async def test_each_judged_event_has_its_outcome(bus: Bus) -> None:
    await send(bus, judged("half", SUPPORTED, REFUTED, UNDECIDED))
    await send(bus, judged("open", UNDECIDED, UNDECIDED))
    await send(bus, judged("silent"))
    metrics = Metrics()
    async with scoring(bus, metrics):
        found = await outcomes(bus, 3)
    half = found["half"]
    assert (half.outcome, half.score, half.eligible, half.decided) == (OutcomeKind.SCORED, 0.5, 3, 2)
    assert [claim.decision for claim in half.claims] == [SUPPORTED, REFUTED, UNDECIDED]
    assert {stage: judge.engine for stage, judge in half.judges.items()} == {
        "extraction": "rules",
        "verification": "reference",
    }
    assert (half.usage.calls, half.usage.cost) == (3, 0.75)
    assert {name: (one.score, one.reason) for name, one in found.items() if name != "half"} == {
        "open": (None, "nothing_decided"),
        "silent": (None, "nothing_to_verify"),
    }


async def test_what_comes_again_is_counted_once(bus: Bus) -> None:
    """As after a kill between publishing and acknowledging: another process is given the same event."""
    first, second = Metrics(), Metrics()
    await send(bus, judged("again", SUPPORTED))
    async with scoring(bus, first):
        found = await outcomes(bus, 1)
    await bus.js.delete_consumer(JUDGED, Stage.SCORING.value)
    await provision(bus.js)
    async with scoring(bus, second):

        async def answered() -> bool:
            info = await bus.js.consumer_info(JUDGED, Stage.SCORING.value)
            return info.ack_floor.stream_seq == 1

        await eventually(answered)
    assert await outcomes(bus, 1) == found
    assert (counted(first), counted(second)) == (1, 0)


def counted(metrics: Metrics) -> float:
    return sum(
        sample.value
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "groundwatch_outcomes_total"
    )


async def test_an_unknown_protocol_ends_as_a_dead_letter_with_its_outcome(bus: Bus) -> None:
    await send(bus, judged("odd", SUPPORTED, protocol="nonsense"))
    async with scoring(bus, Metrics()):
        odd = (await outcomes(bus, 1))["odd"]
    assert (odd.outcome, odd.reason, odd.score) == (OutcomeKind.UNSCORED, "dead_letter", None)
    assert "nonsense" in odd.detail
