"""FaithScore as services see it."""

from __future__ import annotations

import pytest

from groundwatch.errors import InputError, SettingsError
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    ClaimsVerified,
    Decision,
    Judge,
    Label,
    ResponseRecorded,
    SubSentence,
    Verdict,
)
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.protocols.faithscore.protocol import FaithScore

ANSWER = "A red cat sleeps."
JUDGE = Judge(engine="test")
EXTRACTED = ClaimsExtracted(
    response=ResponseRecorded(id="1", model="m", answer=ANSWER),
    protocol="faithscore",
    judge=JUDGE,
    units=(SubSentence(start=0, end=16, text=ANSWER[:16], label=Label.DESCRIPTIVE),),
    claims=(
        Claim(text="There is a cat.", category="entity"),
        Claim(text="The cat is red.", category="color"),
    ),
)
VERIFIED = ClaimsVerified(
    extracted=EXTRACTED,
    judge=JUDGE,
    verdicts=(Verdict(decision=Decision.REFUTED), Verdict(decision=Decision.SUPPORTED)),
)


def test_it_is_an_evaluation_protocol():
    protocol: EvaluationProtocol = FaithScore()
    assert protocol.name == "faithscore"
    assert protocol.route == (Stage.EXTRACTION, Stage.VERIFICATION, Stage.SCORING)


def test_weights_enter_equation_1():
    assert FaithScore().score(VERIFIED).score == 0.5
    assert FaithScore(weights={"color": 3.0}).score(VERIFIED).score == 1.5
    with pytest.raises(SettingsError, match="colour"):
        FaithScore(weights={"colour": 3.0})


def test_matches_are_not_verdicts():
    with pytest.raises(InputError):
        FaithScore().score(ClaimsMatched(extracted=EXTRACTED, judge=JUDGE))


def test_every_llm_stage_has_a_prompt_digest():
    protocol = FaithScore()
    digests = {protocol.prompt_digest(stage) for stage in (Stage.EXTRACTION, Stage.VERIFICATION)}
    assert len(digests) == 2 and all(digests)


def test_the_questions_are_asked_in_order():
    protocol = FaithScore()
    assert protocol.extraction_steps() == 2
    first = protocol.extraction_step(0, EXTRACTED.response, ())
    assert first is not None and ANSWER[:16] in first.user
    reply = {"labels": [{"index": 0, "label": "descriptive"}]}
    units, claims = protocol.read_extraction(0, reply, EXTRACTED.response, ())
    assert [unit.label for unit in units] == [Label.DESCRIPTIVE] and claims == ()
    assert protocol.extraction_step(1, EXTRACTED.response, units) is not None
    step = protocol.verification_step(EXTRACTED.response, EXTRACTED.claims)
    assert "The cat is red." in step.user
    reply = {"verdicts": [{"index": 0, "verdict": "refuted"}, {"index": 1, "verdict": "supported"}]}
    assert protocol.read_verification(reply, EXTRACTED.claims) == VERIFIED.verdicts
