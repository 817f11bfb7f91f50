"""Tri-HE, POPE and the VLM²-Bench metric through the running services, with a ledger that balances."""

from __future__ import annotations

import contextlib

import msgspec
from tests.runtime.conftest import FAST, eventually, record

from groundwatch.events import KnownFact, OutcomeKind, Reference, ResponseRecorded, ResponseScored
from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine
from groundwatch.extraction.service import ExtractionService
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.scoring.service import ScoringService
from groundwatch.topology import OUTCOMES
from groundwatch.verification.service import VerificationService

DOG = "Is there a dog in the image?"
SHIRTS = {"sequence": "s1", "task": "count", "truth": "3"}


def asked(name: str, answer: str, *, holds: bool | None = True) -> ResponseRecorded:
    reference = None if holds is None else Reference(facts=(KnownFact(text=DOG, holds=holds),))
    return ResponseRecorded(
        id=name, model="m", answer=answer, prompt=DOG, reference=reference, protocols=("pope",)
    )


def in_sequence(name: str, answer: str, **tags: str) -> ResponseRecorded:
    return ResponseRecorded(
        id=name, model="m", answer=answer, prompt="?", tags=SHIRTS | tags, protocols=("vlm2",)
    )


def described(name: str, answer: str, *triplets: tuple[str, str, str]) -> ResponseRecorded:
    reference = Reference(triplets=triplets) if triplets else None
    return ResponseRecorded(id=name, model="m", answer=answer, reference=reference, protocols=("tri-he",))


RIDER = (("man", "riding", "horse"), ("horse", "is", "brown"), ("man", "wearing", "hat"))
RESPONSES = [
    asked("tp", "Yes, on the left."),
    asked("fp", "Yes", holds=False),
    asked("tn", "There is no dog.", holds=False),
    asked("unread", "Hard to say."),
    asked("untold", "Yes", holds=None),
    in_sequence("right", "There are three shirts.", level="coarse"),
    in_sequence("wrong", "Yes", level="fine", truth="no"),
    in_sequence("loose", "Yes", level="", truth="no"),
    described("true", "A man is riding a brown horse.", *RIDER),
    described("false", "A giraffe is eating a pizza.", *RIDER),
    described("blank", "I cannot say.", *RIDER),
    described("alone", "A man is riding a brown horse."),
]
SCORES = {"tp": 1, "fp": 0, "tn": 1, "right": 1, "wrong": 0, "true": 1, "false": 0}
REASONS = {
    "unread": "unsure_reply",
    "untold": "no_reference",
    "loose": "no_sequence",
    "blank": "no_triplets",
    "alone": "no_reference",
}


async def test_every_response_ends_with_its_outcome(bus_factory, clean_streams):
    settings, bus, metrics = Settings(retry=FAST), await bus_factory("services"), Metrics()
    async with contextlib.AsyncExitStack() as stack:
        for service in (
            ExtractionService(settings, bus, metrics, LinguisticEngine()),
            VerificationService(settings, bus, metrics),
            ScoringService(settings, bus, metrics),
        ):
            await service.start()
            stack.push_async_callback(service.drain, 0.05)
        for response in RESPONSES:
            await record(bus, response)

        async def done() -> bool:
            return (await audit(bus.js)).in_flight == 0

        await eventually(done, within=120)
        ledger = await audit(bus.js)
    assert ledger.balanced
    assert (ledger.scored, ledger.unscored) == (len(SCORES), len(REASONS))
    found = {
        outcome.id: outcome
        async for read in read_stream(bus.js, OUTCOMES)
        for outcome in [msgspec.json.decode(read.data, type=ResponseScored)]
    }
    assert {name: one.score for name, one in found.items() if one.outcome is OutcomeKind.SCORED} == SCORES
    assert {name: one.reason for name, one in found.items() if one.reason} == REASONS
    assert found["fp"].values["fp"] == 1
    assert found["false"].values["hallu.object"] == 1
    assert found["true"].judges["verification"].engine == "similarity"
    assert found["tp"].judges["verification"].engine == "reference"
