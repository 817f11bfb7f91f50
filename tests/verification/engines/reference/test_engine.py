"""The reference engine as the verification service sees it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import msgspec
import pytest

from groundwatch.errors import Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    Decision,
    Judge,
    KnownFact,
    Reference,
    ResponseRecorded,
)
from groundwatch.protocols import registry
from groundwatch.protocols.triplets import blamed, claim_of
from groundwatch.verification.engines import reference as engine
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.reference import ReferenceEngine

PROTOCOL = registry.get("faithscore")


def extracted(reference: Reference | None, *texts: str) -> ClaimsExtracted:
    return ClaimsExtracted(
        response=ResponseRecorded(id="1", model="m", answer=" ".join(texts), reference=reference),
        protocol="faithscore",
        judge=Judge(engine="test"),
        claims=tuple(Claim(text=text, category="entity") for text in texts),
    )


async def test_every_claim_has_a_verdict_in_order() -> None:
    reference = Reference(facts=(KnownFact(text="There is a dog.", holds=True),), complete=True)
    event = extracted(reference, "There is a dog.", "There is a cat.", "The mood is calm.")
    (result,) = await ReferenceEngine().verify([event], PROTOCOL)
    assert isinstance(result, Verification)
    assert [verdict.decision for verdict in result.verdicts] == [
        Decision.SUPPORTED,
        Decision.REFUTED,
        Decision.UNDECIDED,
    ]
    assert result.verdicts[0].evidence == "There is a dog."


async def test_without_a_reference_there_is_no_score() -> None:
    known = Reference(objects=("dog",))
    events = [
        extracted(None, "There is a dog."),
        extracted(Reference(), "There is a dog."),
        extracted(known, "There is a dog."),
    ]
    missing, empty, judged = await ReferenceEngine().verify(events, PROTOCOL)
    assert isinstance(missing, Unscorable)
    assert missing.reason == "no_reference"
    assert isinstance(empty, Unscorable)
    assert isinstance(judged, Verification)


async def test_a_response_without_claims_has_no_verdicts() -> None:
    (result,) = await ReferenceEngine().verify([extracted(Reference(objects=("dog",)))], PROTOCOL)
    assert result == Verification()


def test_the_judge_is_told_by_its_data() -> None:
    judge = ReferenceEngine().judge(PROTOCOL)
    assert judge.engine == "reference"
    assert judge.model == ""
    assert "-" in judge.version
    assert judge == ReferenceEngine().judge(PROTOCOL)


def test_the_engine_is_light() -> None:
    code = (
        "import sys; import groundwatch.verification.engines.reference;"
        "print([name for name in ('torch', 'numpy', 'transformers', 'nltk') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_many_claims_and_facts_take_a_time_that_is_short_and_leave_the_event_loop_free() -> None:
    """As many false facts of several atoms as a response may have, and as many claims."""
    things = ("dog", "cat", "car", "tree", "ball", "table", "chair", "cup", "hat", "man")
    facts = tuple(
        KnownFact(
            text=f"The {things[at % 10]} is on the {things[at // 10 % 10]} near thing{at}.", holds=False
        )
        for at in range(2_000)
    )
    claims = [f"The {things[at % 10]} holds a gadget{at}." for at in range(2_000)]
    event = extracted(Reference(facts=facts, complete=True), *claims, "The cat is on the dog near thing1.")
    longest, ended = 0.0, asyncio.Event()

    async def probe() -> None:
        nonlocal longest
        while not ended.is_set():
            begin = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - begin)

    probing = asyncio.create_task(probe())
    begin = time.process_time()
    (result,) = await ReferenceEngine().verify([event], PROTOCOL)
    taken = time.process_time() - begin
    ended.set()
    await probing
    assert isinstance(result, Verification)
    assert result.verdicts[-1].decision is Decision.REFUTED
    assert longest < 1.0 and taken < 8.0, (longest, taken)


async def test_claims_that_take_too_long_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SECONDS", 0.0)
    event = extracted(Reference(objects=("dog",)), "There is a dog.")
    (result,) = await ReferenceEngine().verify([event], PROTOCOL)
    assert isinstance(result, Unscorable) and result.reason == "took_too_long"


async def test_a_refuted_triplet_names_its_wrong_part() -> None:
    """Section 3.1: objects first; else the relation between two things that are there."""
    reference = Reference(
        complete=True, triplets=(("man", "riding", "horse"), ("horse", "is", "brown"), ("dog", "on", "grass"))
    )
    triplets = {
        ("zebra", "on", "grass"): "object1",
        ("man", "riding", "bicycle"): "object2",
        ("horse", "is", "white"): "object2",
        ("dog", "riding", "horse"): "relation",
        ("man", "riding", "horse"): None,
    }
    event = msgspec.structs.replace(
        extracted(reference), claims=tuple(claim_of(one) for one in triplets), protocol="tri-he"
    )
    (found,) = await ReferenceEngine().verify([event], registry.get("tri-he"))
    assert isinstance(found, Verification)
    assert [blamed(one) for one in found.verdicts] == list(triplets.values())
