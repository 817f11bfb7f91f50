"""The whole measurement: what the monitor says of answers against what is true of them, how soon a bad
rollout raises an alarm and how often a good one does, and what is promised of it."""

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from random import Random
from statistics import fmean, median
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from groundwatch.errors import UsageError
from groundwatch.miniature.world import missing_partners
from groundwatch.protocols import registry
from groundwatch.protocols.faithscore.protocol import CATEGORIES
from groundwatch.protocols.method import CommandResult, Progress
from groundwatch.statistics.alarm import ModelAlarm, Rule
from groundwatch.statistics.intervals import bootstrap
from groundwatch.system.up import MINIATURE
from groundwatch_benchmarks import coefficients
from groundwatch_benchmarks.miniature.answers import GRADED, SEED, Judged, judge_models
from groundwatch_benchmarks.miniature.cascading import MOST, believed, cascade_rates
from groundwatch_benchmarks.miniature.chains import chains
from groundwatch_benchmarks.miniature.detecting import TARGETS, Statement, detector_verdicts, summary
from groundwatch_benchmarks.miniature.tables import show

SEEDS_OF_CHAINS = 60


def measured(
    models: Sequence[Judged],
    gc: dict[str, float],
    statements: Mapping[str, Sequence[Statement]],
    cascade: dict[str, Any],
) -> dict[str, Any]:
    by_name = {model.name: model for model in models}
    faith = faithscore_agreement(models)
    true = {name: found["true"] for name, found in faith["by_model"].items()}
    best_first = sorted(gc, key=lambda name: -gc[name])
    found = {
        "scenes": len(models[0].answers),
        "faithscore": faith,
        "valor": valor_agreement(models),
        "tri_he": tri_he_agreement(models),
        "biased": biased_agreement(by_name[GRADED[-1]]),
        "genception": {"gc_at_3": gc, "order": best_first, "true_order": sorted(true, key=true.__getitem__)},
        "alarm": alarms(by_name[GRADED[0]], by_name[GRADED[-1]]),
        "detector": {kind: summary(judged) for kind, judged in statements.items()},
        "cascade": cascade,
    }
    return found | {"promises": promises(found)}


def promises(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    pearson = found["faithscore"]["per_response"]["pearson"]["value"]
    error = max(abs(one["error"]["value"]) for one in found["faithscore"]["by_model"].values())
    waits = found["alarm"]["responses_to_detect"]
    false = found["alarm"]["false_alarms_per_10000"]
    same = found["genception"]["order"] == found["genception"]["true_order"]
    detected = not waits["missed"] and waits["most"] is not None and waits["most"] <= 150
    values: dict[str, tuple[Any, str, bool]] = {
        "faithscore_pearson": (pearson, "≥ 0.80", pearson >= 0.80),
        "largest_rate_error": (error, "≤ 0.03", error <= 0.03),
        "responses_to_detect": (waits["most"], "≤ 150", detected),
        "false_alarms_per_10000": (false, "≤ 1", false <= 1),
        "gc_order_is_the_true_order": (same, "true", same),
    }
    for kind, least in TARGETS.items():
        right = found["detector"][kind]["right"]
        values[f"detector_{kind}"] = (right, f"≥ {least:.2f}", right is not None and right >= least)
    share, errors = found["cascade"]["share_last"], found["cascade"]["rate_error"]
    values["cascade_share_last"] = (share, f"≤ {MOST:.2f}", share <= MOST)
    wanted, error = errors["last_judge"], errors["cascade"]
    values["cascade_rate_error"] = (error, f"≤ {wanted:.4f}", error <= wanted)
    return {
        name: {"found": value, "promised": promised, "holds": holds}
        for name, (value, promised, holds) in values.items()
    }


async def validate(
    *,
    scenes: Annotated[int, Meta(ge=12, description="How many scenes each model describes.")] = 2000,
    progress: Progress,
) -> CommandResult:
    """How far every protocol's numbers lie from the known truth of the miniature world."""
    if absent := [
        name for name in (*GRADED, "verifier", "generator", "detector") if not (MINIATURE / name).is_dir()
    ]:
        raise UsageError(f"no checkpoint {MINIATURE / absent[0]}: train it, or install the whole package")
    began = time.monotonic()
    models = await judge_models(MINIATURE, scenes, progress)
    gc = chains(MINIATURE, GRADED, min(scenes, SEEDS_OF_CHAINS), progress)
    faithscore = registry.get("faithscore")
    statements = await detector_verdicts(MINIATURE / "detector", faithscore, scenes, SEED + 2, progress)
    judged = chain.from_iterable(statements.values())
    cascade = await cascade_rates(models, MINIATURE / "detector", believed(judged), faithscore, progress)
    numbers = measured(models, gc, statements, cascade) | {"seconds": round(time.monotonic() - began, 1)}
    broken = [name for name, one in numbers["promises"].items() if not one["holds"]]
    return CommandResult(
        numbers=numbers,
        table=show(numbers),
        problem=f"the monitor does not see the truth as promised: {', '.join(broken)}" if broken else "",
    )


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
    found = coefficients.correlations(first, second, resamples=200)
    return {"n": len(pairs), **{name: msgspec.to_builtins(value) for name, value in found.items()}}


TRIALS = 20
"""Streams that the alarm is tried on."""

GOOD_BEFORE = (400, 3_200)
"""Good responses before a trial's rollout: soon after learning, and after an hour or a day of traffic."""

GOOD_STREAM = 10_000
"""Good responses of each stream in which every alarm is a false one."""


Facts = dict[str, tuple[int, int]]
"""Refuted and decided facts of a response, by category."""


def alarms(good: Judged, bad: Judged) -> dict[str, Any]:
    """Responses until a bad rollout raises an alarm, and false alarms among good responses.

    Responses are drawn with replacement from those that were really judged, in `TRIALS` seeded orders.
    """
    rule = Rule()
    fine, broken = _facts(good), _facts(bad)
    soon, late = (_waits(fine, broken, rule, number) for number in GOOD_BEFORE)
    streams = ((Random(trial), ModelAlarm(rule)) for trial in range(TRIALS))
    false = sum(_raised(alarm, fine, random, rule.learn + GOOD_STREAM) for random, alarm in streams)
    return {
        "responses_to_detect": late,
        "responses_to_detect_soon_after_learning": soon,
        "false_alarms": false,
        "good_responses": TRIALS * GOOD_STREAM,
        "false_alarms_per_10000": false / TRIALS,
        "trials": TRIALS,
        "rule": msgspec.to_builtins(rule),
    }


def _raised(alarm: ModelAlarm, facts: Sequence[Facts], random: Random, number: int) -> int:
    """How often so many responses, from the first second on, raise the alarm."""
    return sum(turn.raised for at in range(number) for _, turn in alarm.add(float(at), random.choice(facts)))


def _waits(fine: Sequence[Facts], broken: Sequence[Facts], rule: Rule, before: int) -> dict[str, Any]:
    """Bad responses until an alarm, over `TRIALS` rollouts after `before` good ones each."""
    waits: list[int] = []
    false = 0
    for trial in range(TRIALS):
        random, alarm = Random(trial), ModelAlarm(rule)
        false += _raised(alarm, fine, random, before)
        for number in range(1, 2001):
            if any(turn.raised for _, turn in alarm.add(float(before + number), random.choice(broken))):
                waits.append(number)
                break
    return {
        "good_before": before,
        "median": median(waits) if waits else None,
        "most": max(waits, default=None),
        "missed": TRIALS - len(waits),
        "false_alarms_before": false,
    }


def _facts(model: Judged) -> list[Facts]:
    """Those of each response that has any."""
    each = [one.values for one in model.by_protocol["faithscore"] if one.score is not None]
    found = [
        {
            category: (int(values.get(f"refuted.{category}", 0)), decided)
            for category in CATEGORIES
            if (decided := int(values.get(f"decided.{category}", 0)))
        }
        for values in each
    ]
    return [facts for facts in found if facts]
