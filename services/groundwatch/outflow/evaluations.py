"""An outcome as an evaluation of the call that was judged, in the terms that all receivers share."""

import math
import re
from collections.abc import Mapping

import msgspec

from groundwatch.conversations.conversation import RESPONSE_TAG, SPAN_TAG, TRACE_TAG
from groundwatch.events import Decision, OutcomeKind, ResponseScored
from groundwatch.keys import digest

FAITHFUL, UNFAITHFUL = "faithful", "unfaithful"
"""Labels of what has a score and claims: whether one of them does not hold."""

MAX_EXPLANATION = 1_000

_TRACE = re.compile(r"(?!0{32})[0-9a-f]{32}\Z")
_SPAN = re.compile(r"(?!0{16})[0-9a-f]{16}\Z")


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What a protocol made of one response.

    `response` is the id that the model's server gave the answer, or the one it is recorded under. `id` stays
    the same when it is told again, also when the outcome replaces one that stood for a dead letter. `error`
    says why there is no score, as a bounded slug. `trace_id` and `span_id` are those of the judged span, in
    hex; empty where the response came in another way.
    """

    id: str
    name: str
    response: str
    model: str
    tenant: str
    at: float
    score: float | None = None
    label: str = ""
    explanation: str = ""
    error: str = ""
    trace_id: str = ""
    span_id: str = ""
    details: dict[str, str | float] = {}


def evaluation_of(outcome: ResponseScored, *, explanation: bool = True) -> Evaluation:
    """With `explanation` the reasons go along, which quote the answer."""
    score = outcome.score if outcome.score is not None and math.isfinite(outcome.score) else None
    scored = outcome.outcome is OutcomeKind.SCORED
    trace_id, span_id = span_of(outcome.tags)
    return Evaluation(
        id=digest("evaluation", outcome.run, outcome.protocol, outcome.key)[:32],
        name=outcome.protocol,
        response=outcome.tags.get(RESPONSE_TAG) or outcome.id,
        model=outcome.model,
        tenant=outcome.tenant,
        at=outcome.scored_at or outcome.recorded_at,
        score=score,
        label=_label(outcome) if scored else outcome.outcome.value,
        explanation=_explanation(outcome)[:MAX_EXPLANATION] if explanation else "",
        error="" if scored else outcome.reason or outcome.outcome.value,
        trace_id=trace_id,
        span_id=span_id,
        details=_details(outcome),
    )


def span_of(tags: Mapping[str, str]) -> tuple[str, str]:
    """Trace and span id; both empty unless they are ids, since anybody may write tags."""
    trace_id, span_id = tags.get(TRACE_TAG, "").lower(), tags.get(SPAN_TAG, "").lower()
    return (trace_id, span_id) if _TRACE.match(trace_id) and _SPAN.match(span_id) else ("", "")


def _label(outcome: ResponseScored) -> str:
    decisions = {claim.decision for claim in outcome.claims}
    if Decision.REFUTED in decisions:
        return UNFAITHFUL
    return FAITHFUL if Decision.SUPPORTED in decisions else ""


def _explanation(outcome: ResponseScored) -> str:
    if outcome.outcome is not OutcomeKind.SCORED:
        return f"{outcome.reason}: {outcome.detail}" if outcome.detail else outcome.reason
    if not outcome.claims:
        return ""
    counts = dict.fromkeys(Decision, 0)
    for claim in outcome.claims:
        counts[claim.decision] += 1
    decided = counts[Decision.SUPPORTED] + counts[Decision.REFUTED]
    told = f"{counts[Decision.SUPPORTED]} of {decided} decided claims hold"
    if undecided := counts[Decision.UNDECIDED]:
        told += f", {undecided} undecided"
    refuted = [claim.text for claim in outcome.claims if claim.decision is Decision.REFUTED]
    return f"{told}. Not in the image: {'; '.join(refuted)}" if refuted else f"{told}."


def _details(outcome: ResponseScored) -> dict[str, str | float]:
    """What else a receiver may keep beside the score; of a judge its name and fingerprint."""
    found: dict[str, str | float] = {
        "tenant": outcome.tenant,
        "model": outcome.model,
        "response": outcome.id,
        "outcome": outcome.outcome.value,
    }
    if outcome.eligible:
        found["coverage"] = outcome.decided / outcome.eligible
    for stage, judge in sorted(outcome.judges.items()):
        found[f"judge.{stage}"] = " ".join(filter(None, (judge.engine, judge.model, judge.fingerprint)))
    return found
