"""POPE's claims, questions to an LLM, and score."""

from __future__ import annotations

import jsonschema
import pytest

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    Judge,
    KnownFact,
    Reference,
    ResponseRecorded,
    Verdict,
)
from groundwatch.protocols import registry
from groundwatch.protocols.base import Stage
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.questions import claim_of, read_claim
from groundwatch.verification.engines.reference import ReferenceEngine

PROTOCOL = Pope()
QUESTION = "Is there a dog in the image?"


def response(answer="Yes.", prompt=QUESTION, reference=None, images=()):
    return ResponseRecorded(
        id="1", model="m", answer=answer, prompt=prompt, reference=reference, images=images
    )


def truth(holds, text=QUESTION):
    return Reference(facts=(KnownFact(text=text, holds=holds),))


def verified(said, *decisions):
    claims = tuple(Claim(text="x", category=one, parts=(QUESTION, one)) for one in said)
    event = ClaimsExtracted(response=response(), protocol="pope", judge=Judge(engine="t"), claims=claims)
    verdicts = tuple(Verdict(decision=decision) for decision in decisions)
    return ClaimsVerified(extracted=event, judge=Judge(engine="t"), verdicts=verdicts)


def test_it_is_registered():
    assert isinstance(registry.get("pope"), Pope)


@pytest.mark.parametrize(
    ("answer", "prompt", "reference", "text"),
    [
        ("Yes", QUESTION, None, "There is a dog in the image."),
        ("No", QUESTION, None, "There is no dog in the image."),
        ("Yes", "Are there any eggs?", None, "There are eggs."),
        ("Yes", "Is there an egg?", None, "There is an egg."),
        ("Yes", QUESTION, truth(True), QUESTION),
        ("No", QUESTION, truth(True, "is there a DOG in the  image?"), f"{QUESTION} No."),
        ("No", "Is the dog brown?", None, "Is the dog brown? No."),
    ],
)
def test_what_a_reply_claims(answer, prompt, reference, text):
    claim = read_claim(response(answer, prompt, reference))
    assert claim.text == text
    assert claim.parts == (prompt, answer.casefold())


def test_an_unreadable_reply_has_no_claim():
    with pytest.raises(Unscorable, match="unsure_reply"):
        read_claim(response("Not sure"))


@pytest.mark.parametrize("question", [QUESTION, "In image 2, is the shirt not red?", "Is it 3 o'clock?"])
@pytest.mark.parametrize("said", ["yes", "no"])
@pytest.mark.parametrize("holds", [True, False])
async def test_the_reference_judge_decides_by_the_known_truth(question, said, holds):
    asked = response(said, question, truth(holds, question))
    event = ClaimsExtracted(
        response=asked, protocol="pope", judge=Judge(engine="t"), claims=(claim_of(asked, said),)
    )
    (found,) = await ReferenceEngine().verify([event], PROTOCOL)
    assert found.verdicts[0].decision is (
        Decision.SUPPORTED if (said == "yes") == holds else Decision.REFUTED
    )


@pytest.mark.parametrize(
    ("said", "decision", "cell"),
    [
        ("yes", Decision.SUPPORTED, "tp"),
        ("yes", Decision.REFUTED, "fp"),
        ("no", Decision.SUPPORTED, "tn"),
        ("no", Decision.REFUTED, "fn"),
    ],
)
def test_the_score_counts_one_cell(said, decision, cell):
    found = PROTOCOL.score(verified([said], decision))
    assert found.score == found.values["accuracy"] == float(cell[0] == "t")
    assert {name for name in ("tp", "fp", "tn", "fn") if found.values[name]} == {cell}
    assert found.values["yes"] == float(said == "yes")


def test_what_cannot_be_scored():
    with pytest.raises(Unscorable, match="unreadable_reply"):
        PROTOCOL.score(verified([]))
    with pytest.raises(Unscorable, match="no_truth"):
        PROTOCOL.score(verified(["yes"], Decision.UNDECIDED))
    for judged in (
        verified(["yes"]),
        verified(["yes", "no"], *[Decision.SUPPORTED] * 2),
        verified(["a"], "b"),
    ):
        with pytest.raises(InputError):
            PROTOCOL.score(judged)
    matched = ClaimsMatched(extracted=verified(["yes"]).extracted, judge=Judge(engine="t"))
    with pytest.raises(InputError, match="not matched"):
        PROTOCOL.score(matched)


def test_an_llm_reads_replies():
    step = PROTOCOL.extraction_step(0, response("A hound sleeps there."), ())
    assert "A hound sleeps there." in step.user
    jsonschema.validate({"answer": "yes"}, step.schema)
    (claim,) = PROTOCOL.read_extraction(0, {"answer": "no"}, response(), ())[1]
    assert claim.category == "no"
    assert PROTOCOL.read_extraction(0, {"answer": "neither"}, response(), ()) == ((), ())
    assert PROTOCOL.extraction_step(0, response(" "), ()) is None
    with pytest.raises(ValueError, match="answer"):
        PROTOCOL.read_extraction(0, {"answer": "maybe"}, response(), ())


def test_an_llm_that_sees_checks_answers():
    claims = (claim_of(response(), "yes"),)
    step = PROTOCOL.verification_step(response(reference=truth(True)), claims)
    assert f'true: "{QUESTION}"' in step.user
    assert f"{QUESTION} Answer: yes" in step.user
    jsonschema.validate({"verdict": "refuted"}, step.schema)
    seen = PROTOCOL.verification_step(response(reference=truth(True), images=("0" * 64,)), claims)
    assert "look at what is attached" in seen.user
    assert PROTOCOL.read_verification({"verdict": "refuted"}, claims)[0].decision is Decision.REFUTED
    assert PROTOCOL.prompt_digest(Stage.EXTRACTION) != PROTOCOL.prompt_digest(Stage.VERIFICATION)
    assert PROTOCOL.prompt_digest(Stage.SCORING) == ""
