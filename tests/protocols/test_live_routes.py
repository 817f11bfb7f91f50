"""Tri-HE, POPE and the VLM²-Bench metric through the running services, with a ledger that balances."""

from __future__ import annotations

import contextlib

import msgspec
from tests.runtime.conftest import FAST, eventually, record

from groundwatch.events import KnownFact, OutcomeKind, Reference, ResponseRecorded, ResponseScored
from groundwatch.extraction.engines.reader import ReaderEngine
from groundwatch.extraction.service import ExtractionService
from groundwatch.ledger.counting import Ledger
from groundwatch.ledger.ledger import audit
from groundwatch.matching.service import MatchingService
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
    asked("thinks", "<think>Let me look for a dog"),
    in_sequence("thought", "<think>Let me count. Three", level="coarse", questions="2"),
    asked("german", "<think>A dog?</think>Auf dem Bild liegt ein brauner Hund auf einem Sofa."),
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
    "thinks": "reasoning_only",
    "thought": "reasoning_only",
    "german": "another_language",
    "loose": "no_sequence",
    "blank": "no_triplets",
    "alone": "no_reference",
}


async def judged(bus, metrics, responses) -> tuple[Ledger, dict[tuple[str, str], ResponseScored]]:
    """The ledger, and the outcomes by response and protocol, once all services are done with these."""
    settings = Settings(retry=FAST)
    async with contextlib.AsyncExitStack() as stack:
        for service in (
            ExtractionService(settings, bus, metrics, ReaderEngine()),
            MatchingService(settings, bus, metrics),
            VerificationService(settings, bus, metrics),
            ScoringService(settings, bus, metrics),
        ):
            await service.start()
            stack.push_async_callback(service.drain, 0.05)
        for response in responses:
            await record(bus, response)

        async def done() -> bool:
            return (await audit(bus.js)).in_flight == 0

        await eventually(done, within=120)
        ledger = await audit(bus.js)
    assert ledger.balanced
    outcomes = [
        msgspec.json.decode(message.data, type=ResponseScored)
        async for message in read_stream(bus.js, OUTCOMES)
    ]
    return ledger, {(outcome.id, outcome.protocol): outcome for outcome in outcomes}


async def test_every_response_ends_with_its_outcome(bus_factory, clean_streams):
    ledger, outcomes = await judged(await bus_factory("services"), Metrics(), RESPONSES)
    assert (ledger.scored, ledger.unscored) == (len(SCORES), len(REASONS))
    found = {name: outcome for (name, _), outcome in outcomes.items()}
    assert {name: one.score for name, one in found.items() if one.outcome is OutcomeKind.SCORED} == SCORES
    assert {name: one.reason for name, one in found.items() if one.reason} == REASONS
    assert found["fp"].values["fp"] == 1
    # Who does not come to an answer is as wrong as who gives none; what is not read here says nothing of it.
    assert found["thinks"].values == found["unread"].values == {"accuracy": 0}
    assert found["thought"].values == {"coarse": 0, "part": 0.5}
    assert found["german"].values == {}
    assert [part.kind.value for part in found["german"].left_out] == ["reasoning", "language"]
    assert [part.kind.value for part in found["thinks"].left_out] == ["reasoning"]
    assert found["false"].values["hallu.object"] == 1
    assert found["true"].judges["verification"].engine == "calibrated"
    assert found["tp"].judges["verification"].engine == "reference"


def of_other_kinds(name: str, answer: str) -> ResponseRecorded:
    reference = Reference(objects=("dog", "sofa"), complete=True)
    prompt = "Describe the image."
    return ResponseRecorded(
        id=name,
        model="m",
        answer=answer,
        prompt=prompt,
        reference=reference,
        protocols=("faithscore", "chair"),
    )


async def test_what_cannot_be_read_is_unscored_and_never_a_hallucination(bus_factory, clean_streams):
    """A model that turns to German, and one whose reasoning and marks arrive, for protocols of two kinds."""
    answers = {
        "en": "A dog lies on a sofa.",
        "thought": "<think>\nA horse? No.\n</think>\nA dog lies on a sofa.",
        "boxed": "A <ref>dog</ref><box>[[1,2,3,4]]</box> lies on a sofa.",
        "de": "Ein brauner Hund liegt auf einem grünen Sofa, daneben steht ein schwarzes Pferd.",
        "zh": "图片中有一只棕色的狗躺在绿色的沙发上。",
        "cut": "<think>A horse stands on",
    }
    metrics = Metrics()
    responses = [of_other_kinds(name, answer) for name, answer in answers.items()]
    _, outcomes = await judged(await bus_factory("services"), metrics, responses)
    for protocol in ("faithscore", "chair"):
        scores = [outcomes[name, protocol].score for name in ("en", "thought", "boxed")]
        assert scores == [1, 1, 1] if protocol == "faithscore" else [scores[0]] * 3
        for name in ("de", "zh"):
            outcome = outcomes[name, protocol]
            assert (outcome.reason, outcome.detail, outcome.claims) == ("another_language", name, ())
        assert outcomes["cut", protocol].reason == "reasoning_only"
    read = {name: outcomes[name, "faithscore"] for name in ("en", "thought", "boxed")}
    assert len({tuple(claim.text for claim in outcome.claims) for outcome in read.values()}) == 1
    assert {claim.place for claim in read["boxed"].claims if claim.text == "There is a dog."} == {
        "1, 2, 3, 4"
    }
    kinds = {name: {part.kind.value for part in outcome.left_out} for name, outcome in read.items()}
    assert kinds == {"en": set(), "thought": {"reasoning"}, "boxed": {"mark"}}
    value = metrics.registry.get_sample_value
    assert value("groundwatch_left_out_total", {"kind": "reasoning", "language": ""}) == 2
    assert value("groundwatch_left_out_total", {"kind": "language", "language": "de"}) == 1
    assert value("groundwatch_unread_answers_total", {"reason": "another_language", "language": "de"}) == 1
