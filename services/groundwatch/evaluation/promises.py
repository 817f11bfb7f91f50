"""The monitor in the miniature world, whose truth is known, held against what is promised."""

import time
from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Any

import msgspec

from groundwatch.errors import UsageError
from groundwatch.evaluation.miniature import (
    GRADED,
    Judged,
    biased_agreement,
    chains,
    faithscore_agreement,
    judge_models,
    tri_he_agreement,
    valor_agreement,
)
from groundwatch.protocols.faithscore.scoring import CATEGORIES
from groundwatch.protocols.method import Progress
from groundwatch.statistics.alarm import ModelAlarm, Rule
from groundwatch.system.models import MINIATURE
from groundwatch.terminal import Group, Table, box, styled

TRIALS = 20
"""Streams that the alarm is tried on."""

GOOD_BEFORE = (400, 3_200)
"""Good responses before a trial's rollout: soon after learning, and after an hour or a day of traffic."""

GOOD_STREAM = 10_000
"""Good responses of each stream in which every alarm is a false one."""

SEEDS_OF_CHAINS = 60


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


def measured(models: Sequence[Judged], gc: dict[str, float]) -> dict[str, Any]:
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
    return {
        name: {"found": value, "promised": promised, "holds": holds}
        for name, (value, promised, holds) in values.items()
    }


async def measure(scenes: int, progress: Progress) -> dict[str, Any]:
    """Run it. Raises `UsageError` without checkpoints."""
    if absent := [name for name in (*GRADED, "verifier", "generator") if not (MINIATURE / name).is_dir()]:
        raise UsageError(f"no checkpoint {MINIATURE / absent[0]}: train it, or install the whole package")
    began = time.monotonic()
    models = await judge_models(MINIATURE, scenes, progress)
    gc = chains(MINIATURE, GRADED, min(scenes, SEEDS_OF_CHAINS), progress)
    return measured(models, gc) | {"seconds": round(time.monotonic() - began, 1)}


def show(found: dict[str, Any]) -> Group:
    gc = found["genception"]["gc_at_3"]
    models = _table("model", "facts not in the image: true", "estimated", "error (95 %)", "r", "GC@3")
    for name, one in found["faithscore"]["by_model"].items():
        error, r = one["error"], one["pearson"]
        models.add_row(
            name,
            f"{one['true']:.2%}",
            f"{one['estimated']:.2%}",
            f"{error['value']:+.2%} ({error['low']:+.2%} to {error['high']:+.2%})",
            f"{r['value']:.3f}" if r else "–",
            f"{gc[name]:.3f}",
        )
    responses = _table("per response, all models", "Pearson (95 %)", "Spearman", "Kendall", "n")
    for name, one in (
        ("FaithScore", found["faithscore"]["per_response"]),
        ("VALOR faithfulness", found["valor"]["faithfulness"]),
        ("VALOR coverage", found["valor"]["coverage"]),
        ("Tri-HE", found["tri_he"]["per_response"]),
    ):
        r = one["pearson"]
        responses.add_row(
            name,
            f"{r['value']:.3f} ({r['low']:.3f} to {r['high']:.3f})" if r else "–",
            *(f"{one[key]['value']:.3f}" if one[key] else "–" for key in ("spearman", "kendall")),
            str(one["n"]),
        )
    promises = _table("promise", "wanted", "found", "holds")
    for name, one in found["promises"].items():
        value = one["found"]
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        holds = "yes" if one["holds"] else styled(("no", "red"))
        promises.add_row(name.replace("_", " "), one["promised"], shown, holds)
    title = f"The monitor against the known truth of {found['scenes']} scenes for each model"
    return Group(title, "", models, responses, promises, f"{found['seconds']:.0f} s")


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
