"""Outcomes to report on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from groundwatch.events import Decision, Judge, JudgedClaim, OutcomeKind, ResponseScored, Usage

EXTRACTOR, JUDGE, OTHER = (
    Judge(engine="reader"),
    Judge(engine="reference"),
    Judge(engine="llm", model="x"),
)
BOTH = {"extraction": EXTRACTOR, "verification": JUDGE}


def scored(number: int, refuted: int, supported: int, *, model: str = "m", **changes) -> ResponseScored:
    claims = tuple(
        JudgedClaim(text="a", category="entity", unit=0, decision=decision)
        for decision in [Decision.REFUTED] * refuted + [Decision.SUPPORTED] * supported
    )
    score = supported / (refuted + supported)
    return ResponseScored(
        **{
            "id": str(number),
            "model": model,
            "protocol": "faithscore",
            "outcome": OutcomeKind.SCORED,
            "score": score,
            "values": {"faithscore.entity": score, "sentence_level": float(not refuted), "entities": 3.0},
            "judges": BOTH,
            "claims": claims,
            "eligible": len(claims) + 1,
            "decided": len(claims),
            "answer_words": 20,
            "recorded_at": float(number),
            "usage": Usage(cost=0.5),
        }
        | changes
    )


def ended(outcome: OutcomeKind, reason: str, number: int = 0, **changes) -> ResponseScored:
    return ResponseScored(
        **{
            "id": f"x{number}",
            "model": "m",
            "protocol": "faithscore",
            "outcome": outcome,
            "reason": reason,
            "recorded_at": float(number),
        }
        | changes
    )


@pytest.fixture
def make() -> SimpleNamespace:
    """`scored` and `ended` make outcomes; the judges they use stand beside."""
    return SimpleNamespace(
        scored=scored,
        ended=ended,
        both=BOTH,
        early={"extraction": EXTRACTOR},
        other={"extraction": EXTRACTOR, "verification": OTHER},
    )
