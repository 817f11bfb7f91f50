"""What the monitor says of answers against what is true of them."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import msgspec

from groundwatch.evaluation.miniature.answers import Judged
from groundwatch.miniature.world import missing_partners
from groundwatch.statistics import agreement
from groundwatch.statistics.intervals import bootstrap


def faithscore_agreement(models: Sequence[Judged]) -> dict[str, Any]:
    """Per response and per model: FaithScore against the true share of facts that hold."""
    pairs = {
        model.name: [
            (outcome.score, 1.0 - one.truth.rate)
            for one, outcome in model.judged("faithscore")
            if outcome.score is not None and one.truth.rate is not None
        ]
        for model in models
    }
    return {
        "per_response": _correlations([pair for found in pairs.values() for pair in found]),
        "by_model": {
            model.name: {"pearson": _correlations(pairs[model.name])["pearson"], **rate_errors(model)}
            for model in models
        },
    }


def rate_errors(model: Judged) -> dict[str, Any]:
    """Estimated and true rate of facts not in the image, and the error with its interval over responses."""
    sums = [
        (outcome.values["refuted"], outcome.values["decided"], one.truth.false_facts, one.truth.facts)
        for one, outcome in model.judged("faithscore")
        if outcome.score is not None
    ]

    def error(drawn: Sequence[tuple[float, ...]]) -> float | None:
        refuted, decided, false, facts = (sum(column) for column in zip(*drawn, strict=True))
        return refuted / decided - false / facts if decided and facts else None

    refuted, decided, false, facts = (sum(column) for column in zip(*sums, strict=True))
    return {
        "estimated": refuted / decided,
        "true": false / facts,
        "error": msgspec.to_builtins(bootstrap(sums, error, resamples=500)),
        "scored": len(sums),
        "responses": len(model.answers),
    }


def valor_agreement(models: Sequence[Judged]) -> dict[str, Any]:
    """Faithfulness and coverage of object existence against the kinds that are named and are there."""
    faithful, covered = [], []
    for model in models:
        for one, outcome in model.judged("valor-object-existence"):
            named = one.truth.kinds_named
            there = {thing.kind for thing in one.shown.things}
            if outcome.score is None or not named:
                continue
            faithful.append((outcome.values["faithfulness"], len(named & there) / len(named)))
            covered.append((outcome.values["coverage"], len(named & there) / len(there)))
    return {"faithfulness": _correlations(faithful), "coverage": _correlations(covered)}


def tri_he_agreement(models: Sequence[Judged]) -> dict[str, Any]:
    """The share of hallucinated triplets against the true share of false facts; rates by model."""
    pairs = []
    by_model = {}
    for model in models:
        own = [
            (outcome.values["hallu"], one.truth.rate)
            for one, outcome in model.judged("tri-he")
            if outcome.score is not None and one.truth.rate is not None
        ]
        pairs += own
        by_model[model.name] = {
            "hallu_i": fmean(hallu for hallu, _ in own),
            "true": fmean(true for _, true in own),
            "scored": len(own),
        }
    return {"per_response": _correlations(pairs), "by_model": by_model}


def biased_agreement(model: Judged) -> dict[str, Any]:
    """How often the biased model names the partner that is not there, among scenes that tempt it."""
    tempted = [one for one in model.answers if missing_partners(one.shown)]
    fell = sum(bool(set(missing_partners(one.shown)) & set(one.truth.false_kinds)) for one in tempted)
    return {"scenes": len(tempted), "partner_named": fell / len(tempted) if tempted else None}


def _correlations(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = agreement.correlations(first, second, resamples=200)
    return {"n": len(pairs), **{name: msgspec.to_builtins(value) for name, value in found.items()}}
