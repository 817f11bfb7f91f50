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
    Progress,
    biased_agreement,
    chains,
    faithscore_agreement,
    judge_models,
    tri_he_agreement,
    valor_agreement,
)
from groundwatch.events import ResponseScored
from groundwatch.protocols.faithscore.scoring import CATEGORIES
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

PROMISED = {
    "faithscore_pearson": "≥ 0.80",
    "largest_rate_error": "≤ 0.03",
    "responses_to_detect": "≤ 150",
    "false_alarms_per_10000": "≤ 1",
    "gc_order_is_the_true_order": "true",
}


def alarms(good: Judged, bad: Judged, rule: Rule | None = None) -> dict[str, Any]:
    """Responses until a bad rollout raises an alarm, and false alarms among good responses.

    Responses are drawn with replacement from those that were really judged, in `TRIALS` seeded orders.
    """
    rule = rule or Rule()
    fine, broken = _facts(good), _facts(bad)
    before = {number: _waits(fine, broken, rule, number) for number in GOOD_BEFORE}
    false = 0
    for trial in range(TRIALS):
        random, steady = Random(trial), ModelAlarm(rule)
        for number in range(rule.learn + GOOD_STREAM):
            false += sum(turn.raised for _, turn in steady.add(float(number), random.choice(fine)))
    return {
        "responses_to_detect": before[GOOD_BEFORE[-1]],
        "responses_to_detect_soon_after_learning": before[GOOD_BEFORE[0]],
        "false_alarms": false,
        "good_responses": TRIALS * GOOD_STREAM,
        "false_alarms_per_10000": false / TRIALS,
        "trials": TRIALS,
        "rule": msgspec.to_builtins(rule),
    }


def _waits(
    fine: Sequence[dict[str, tuple[int, int]]],
    broken: Sequence[dict[str, tuple[int, int]]],
    rule: Rule,
    before: int,
) -> dict[str, Any]:
    """Bad responses until an alarm, over `TRIALS` rollouts after `before` good ones each."""
    waits: list[int] = []
    missed = false = 0
    for trial in range(TRIALS):
        random, alarm = Random(trial), ModelAlarm(rule)
        for number in range(before):
            false += sum(turn.raised for _, turn in alarm.add(float(number), random.choice(fine)))
        for number in range(1, 2001):
            if any(turn.raised for _, turn in alarm.add(float(before + number), random.choice(broken))):
                waits.append(number)
                break
        else:
            missed += 1
    return {
        "good_before": before,
        "median": median(waits) if waits else None,
        "most": max(waits) if waits else None,
        "missed": missed,
        "false_alarms_before": false,
    }


def _facts(model: Judged) -> list[dict[str, tuple[int, int]]]:
    return [found for one in model.by_protocol["faithscore"] if (found := _by_category(one))]


def _by_category(outcome: ResponseScored) -> dict[str, tuple[int, int]]:
    if outcome.score is None:
        return {}
    found = {}
    for category in CATEGORIES:
        decided = int(outcome.values.get(f"decided.{category}", 0))
        if decided:
            found[category] = (int(outcome.values.get(f"refuted.{category}", 0)), decided)
    return found


def measured(models: Sequence[Judged], gc: dict[str, float]) -> dict[str, Any]:
    """Everything that is reported, and each promise with what was found."""
    by_name = {model.name: model for model in models}
    faith = faithscore_agreement(models)
    true = {name: found["true"] for name, found in faith["by_model"].items()}
    found = {
        "scenes": len(models[0].answers),
        "faithscore": faith,
        "valor": valor_agreement(models),
        "tri_he": tri_he_agreement(models),
        "biased": biased_agreement(by_name[GRADED[-1]]),
        "genception": {"gc_at_3": gc, "order": _order(gc, best_first=True), "true_order": _order(true)},
        "alarm": alarms(by_name[GRADED[0]], by_name[GRADED[-1]]),
    }
    return found | {"promises": promises(found)}


def _order(values: dict[str, float], *, best_first: bool = False) -> list[str]:
    return sorted(values, key=lambda name: -values[name] if best_first else values[name])


def promises(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is promised, what was found, and whether it holds."""
    pearson = found["faithscore"]["per_response"]["pearson"]["value"]
    error = max(abs(one["error"]["value"]) for one in found["faithscore"]["by_model"].values())
    waits = found["alarm"]["responses_to_detect"]
    false = found["alarm"]["false_alarms_per_10000"]
    same = found["genception"]["order"] == found["genception"]["true_order"]
    values: dict[str, tuple[Any, bool]] = {
        "faithscore_pearson": (pearson, pearson >= 0.80),
        "largest_rate_error": (error, error <= 0.03),
        "responses_to_detect": (
            waits["most"],
            not waits["missed"] and waits["most"] is not None and waits["most"] <= 150,
        ),
        "false_alarms_per_10000": (false, false <= 1),
        "gc_order_is_the_true_order": (same, same),
    }
    return {
        name: {"found": value, "promised": PROMISED[name], "holds": holds}
        for name, (value, holds) in values.items()
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
    """The same as tables."""
    models = Table(box=box.SIMPLE_HEAD)
    for name in ("model", "facts not in the image: true", "estimated", "error (95 %)", "r", "GC@3"):
        models.add_column(name, justify="left" if name == "model" else "right")
    for name, one in found["faithscore"]["by_model"].items():
        error = one["error"]
        models.add_row(
            name,
            f"{one['true']:.2%}",
            f"{one['estimated']:.2%}",
            f"{error['value']:+.2%} ({error['low']:+.2%} to {error['high']:+.2%})",
            f"{one['pearson']['value']:.3f}" if one["pearson"] else "–",
            f"{found['genception']['gc_at_3'][name]:.3f}",
        )
    responses = Table(box=box.SIMPLE_HEAD)
    for name in ("per response, all models", "Pearson (95 %)", "Spearman", "Kendall", "n"):
        responses.add_column(name, justify="left" if name.startswith("per") else "right")
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
    promises = Table(box=box.SIMPLE_HEAD)
    for name in ("promise", "wanted", "found", "holds"):
        promises.add_column(name)
    for name, one in found["promises"].items():
        value = one["found"]
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        promises.add_row(
            name.replace("_", " "), one["promised"], shown, "yes" if one["holds"] else styled(("no", "red"))
        )
    title = f"The monitor against the known truth of {found['scenes']} scenes for each model"
    return Group(title, "", models, responses, promises, f"{found['seconds']:.0f} s")
