"""FaithScore as services see it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from groundwatch.errors import InputError
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
from groundwatch.protocols.faithscore.settings import FaithScoreSettings

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
    (weighted,) = FaithScoreSettings(weights={"color": 3.0}).protocols()
    assert weighted.score(VERIFIED).score == 1.5


@pytest.mark.parametrize("weights", [{"colour": 1.0}, {"color": -1.0}, {"color": float("nan")}])
def test_wrong_weights_are_refused(weights: dict[str, float]):
    with pytest.raises(ValidationError, match=r"weights\.colou?r"):
        FaithScoreSettings(weights=weights)


def test_matches_are_not_verdicts():
    with pytest.raises(InputError):
        FaithScore().score(ClaimsMatched(extracted=EXTRACTED, judge=JUDGE))


def test_every_llm_stage_has_a_prompt_digest():
    protocol = FaithScore()
    digests = {protocol.prompt_digest(stage) for stage in (Stage.EXTRACTION, Stage.VERIFICATION)}
    assert len(digests) == 2 and all(digests)


def test_the_questions_are_asked_in_order():
    protocol = FaithScore()
    assert protocol.extraction_steps == 2
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
