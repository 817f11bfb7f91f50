"""Tri-HE's questions, replies and score."""

from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import pytest

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import (
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
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.triplets import blame, blamed, claim_of, triplet_of

PROTOCOL = TriHe()
RESPONSE = ResponseRecorded(
    id="1",
    model="m",
    answer="A man rides a horse. The horse is white.",
    prompt="What is going on?",
    reference=Reference(
        triplets=(("man", "riding", "horse"),),
        objects=("man", "horse"),
        facts=(KnownFact(text="The horse is brown.", holds=True),),
    ),
)
CLAIMS = (claim_of(("man", "riding", "horse")), claim_of(("horse", "is", "white"), unit=1))


def said(*triplets, piece=0):
    names = ("object1", "relation", "object2")
    return {
        "triplets": [
            {"piece": piece, **dict(zip(names, one, strict=True)), "hedged": False} for one in triplets
        ]
    }


def judged(*answers):
    return {"judgements": [{"index": at, "supported": a, "wrong": w} for at, (a, w) in enumerate(answers)]}


def verified(*verdicts, claims=CLAIMS):
    units, _ = PROTOCOL.read_extraction(0, said(), RESPONSE, ())
    event = ClaimsExtracted(
        response=RESPONSE, protocol="tri-he", judge=Judge(engine="t"), units=units, claims=claims
    )
    return ClaimsVerified(extracted=event, judge=Judge(engine="t"), verdicts=verdicts)


YES = Verdict(decision=Decision.SUPPORTED)
OPEN = Verdict(decision=Decision.UNDECIDED)


def no(part=None):
    return Verdict(decision=Decision.REFUTED, evidence=blame(part, "why"))


def test_it_is_registered():
    assert isinstance(registry.get("tri-he"), TriHe)


def test_extraction_is_asked_and_read():
    step = PROTOCOL.extraction_step(0, RESPONSE, ())
    assert "A man rides a horse" in step.user
    reply = said((" man", "riding", "horse"), ("Man", "riding", "horse"))
    jsonschema.validate(reply, step.schema)
    units, claims = PROTOCOL.read_extraction(0, reply, RESPONSE, ())
    assert [RESPONSE.answer[unit.start : unit.end] for unit in units] == [unit.text for unit in units]
    assert [claim.parts for claim in claims] == [("man", "riding", "horse")]
    assert claims[0].text == "man is riding horse"


def test_a_reply_says_what_the_answer_only_guesses_and_what_it_denies():
    answer = "The shop may be open. There is no queue, and the door is not red."
    response = msgspec.structs.replace(RESPONSE, answer=answer, prompt="What is the shop like?")
    step = PROTOCOL.extraction_step(0, response, ())
    assert "What is the shop like?" in step.user and "denial" in step.system and "hedged" in step.system
    reply = said(("shop", "is", "open"))
    reply["triplets"][0]["hedged"] = True
    jsonschema.validate(reply, step.schema)
    reply["triplets"] += said(("door", "is not", "red"), piece=2)["triplets"]
    _, claims = PROTOCOL.read_extraction(0, reply, response, ())
    assert [(claim.text, claim.hedged) for claim in claims] == [
        ("shop is open", True),
        ("door is not red", False),
    ]


def test_a_triplet_counts_as_often_as_it_is_said():
    again = {"triplets": [said(("man", "riding", "horse"), piece=at)["triplets"][0] for at in (1, 0)]}
    _, claims = PROTOCOL.read_extraction(0, again, RESPONSE, ())
    assert [(claim.unit, claim.parts) for claim in claims] == [
        (at, ("man", "riding", "horse")) for at in (0, 1)
    ]


def test_an_empty_answer_is_not_asked_about():
    empty = ResponseRecorded(id="1", model="m", answer=" …")
    assert PROTOCOL.extraction_step(0, empty, ()) is None


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (said(("man", "", "horse")), "empty part"),
        (said(("man", "on", "horse"), piece=9), "piece 9"),
        ({"triplets": [{"piece": 0}]}, "object1"),
        ([], "object"),
    ],
)
def test_a_wrong_extraction_says_what_is_wrong(reply, message):
    with pytest.raises(ValueError, match=message):
        PROTOCOL.read_extraction(0, reply, RESPONSE, ())


def test_the_judge_sees_the_graph_and_every_claim():
    step = PROTOCOL.verification_step(RESPONSE, CLAIMS)
    for text in ('triplet: "man" "riding" "horse"', 'object: "horse"', 'true: "The horse is brown."'):
        assert text in step.user
    assert "(horse, is, white)" in step.user
    jsonschema.validate(judged(("yes", "none")), step.schema)
    bare = ResponseRecorded(id="1", model="m", answer="x", images=("0" * 64,))
    assert "look at what is attached" in PROTOCOL.verification_step(bare, CLAIMS).user


def test_verdicts_name_the_wrong_part():
    verdicts = PROTOCOL.read_verification(judged(("yes", "none"), ("no", "object2")), CLAIMS)
    assert [one.decision for one in verdicts] == [Decision.SUPPORTED, Decision.REFUTED]
    assert [blamed(one) for one in verdicts] == [None, "object2"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (judged(("yes", "none")), "claim 1 is missing"),
        (judged(("yes", "none"), ("no", "none")), "no wrong part is named"),
        (judged(*[("yes", "none")] * 3), "claim 2 does not exist"),
        (judged(("maybe", "none"), ("no", "none")), "supported"),
    ],
)
def test_a_wrong_judgement_says_what_is_wrong(reply, message):
    with pytest.raises(ValueError, match=message):
        PROTOCOL.read_verification(reply, CLAIMS)


def test_the_score_is_the_share_of_triplets_that_are_not_hallucinated():
    score = PROTOCOL.score(verified(YES, no("relation")))
    assert score.score == score.values["hallu"] == 0.5
    assert (score.values["hallu.object"], score.values["hallu.relation"]) == (0, 0.5)
    assert "hallu.object" not in PROTOCOL.score(verified(YES, no())).values
    undecided = PROTOCOL.score(verified(OPEN, no("object1")))
    assert (undecided.score, undecided.values["hallu"], undecided.values["decided"]) == (0, 1, 1)


def test_a_wrong_pair_of_what_the_graph_has_is_a_prediction_error():
    reference = Reference(triplets=(("man", "riding", "horse"), ("dog", "behind", "cart")), objects=("tree",))
    response = msgspec.structs.replace(RESPONSE, reference=reference)
    cases = (
        (("Horse", "riding", "man"), no("relation"), 1),
        (("dog", "riding", "cart"), YES, 0),
        (("dog", "under", "cart"), no("relation"), 0),
        (("dog", "behind", "fox"), no("object2"), 0),
        (("dog", "behind", "tree"), no(), 1),
    )

    def share(*cases: Any, response=response) -> float | None:
        event = verified(claims=tuple(claim_of(triplet) for triplet, *_ in cases)).extracted
        verdicts = tuple(verdict for _, verdict, _ in cases)
        event = msgspec.structs.replace(event, response=response)
        judged = ClaimsVerified(extracted=event, judge=Judge(engine="t"), verdicts=verdicts)
        return PROTOCOL.score(judged).values.get("prediction_error")

    assert [share(case) for case in cases] == [wrong for *_, wrong in cases]
    assert share(*cases, (("horse", "behind", "man"), OPEN, 0)) == 2 / 5
    assert share(*cases, response=msgspec.structs.replace(response, reference=None)) is None


def test_what_cannot_be_scored():
    with pytest.raises(Unscorable, match="no_triplets"):
        PROTOCOL.score(verified(claims=()))
    with pytest.raises(Unscorable, match="nothing_decided"):
        PROTOCOL.score(verified(OPEN, OPEN))
    with pytest.raises(InputError, match="1 verdicts for 2"):
        PROTOCOL.score(verified(YES))
    with pytest.raises(InputError, match="not matched"):
        PROTOCOL.score(ClaimsMatched(extracted=verified(YES, YES).extracted, judge=Judge(engine="t")))


def test_prompts_have_digests():
    assert PROTOCOL.prompt_digest(Stage.EXTRACTION) != PROTOCOL.prompt_digest(Stage.VERIFICATION)
    assert PROTOCOL.prompt_digest(Stage.SCORING) == ""


@pytest.mark.parametrize(
    ("triplet", "text"),
    [
        (("cup", "on", "table"), "cup is on table"),
        (("man", "wears", "hat"), "man wears hat"),
        (("shirt", "is", "red"), "shirt is red"),
    ],
)
def test_claims_read_as_sentences(triplet, text):
    claim = claim_of(triplet)
    assert claim.text == text
    assert triplet_of(claim) == triplet


def test_only_refuted_verdicts_blame():
    assert blamed(Verdict(decision=Decision.SUPPORTED, evidence="wrong: object1")) is None
    assert blamed(Verdict(decision=Decision.REFUTED, evidence="it is wrong: object1")) is None
