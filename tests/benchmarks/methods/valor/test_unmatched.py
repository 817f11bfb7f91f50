"""VALOR's claims as people see them agree with equation 6: no match is a hallucination, broader is not."""

from __future__ import annotations

import pytest

from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    Decision,
    Judge,
    Match,
    Reference,
    ResponseRecorded,
)
from groundwatch.protocols import registry
from groundwatch.runtime.delivery.outcomes import outcome_of


def test_unmatched_is_refuted_and_broader_is_not():
    response = ResponseRecorded(id="1", model="m", answer="", reference=Reference(objects=("man", "sofa")))
    extracted = ClaimsExtracted(
        response=response,
        protocol="valor-object-existence",
        judge=Judge(engine="test"),
        claims=tuple(Claim(text=text, category="object") for text in ("couch", "people", "dragon")),
    )
    matches = (Match(claim=0, reference="sofa"), Match(claim=1, reference="man", kind="broader"))
    judged = ClaimsMatched(extracted=extracted, judge=Judge(engine="test"), matches=matches)
    outcome = outcome_of(judged, registry.get("valor-object-existence"))
    assert [claim.decision for claim in outcome.claims] == [
        Decision.SUPPORTED,
        Decision.SUPPORTED,
        Decision.REFUTED,
    ]
    refuted = sum(one.decision is Decision.REFUTED for one in outcome.claims)
    assert outcome.score == pytest.approx(1 - refuted / 3)
    assert (outcome.decided, outcome.eligible) == (3, 3)
