"""The whole measurement, and what is promised of it."""

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from groundwatch.errors import UsageError
from groundwatch.evaluation.cascading import MOST, believed, cascade_rates
from groundwatch.evaluation.detecting import TARGETS, Statement, detector_verdicts, summary
from groundwatch.evaluation.miniature.agreement import (
    biased_agreement,
    faithscore_agreement,
    tri_he_agreement,
    valor_agreement,
)
from groundwatch.evaluation.miniature.alarms import alarms
from groundwatch.evaluation.miniature.answers import GRADED, SEED, Judged, judge_models
from groundwatch.evaluation.miniature.chains import chains
from groundwatch.protocols import registry
from groundwatch.protocols.method import Progress
from groundwatch.system.up import MINIATURE

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


async def measure(scenes: int, progress: Progress) -> dict[str, Any]:
    """Run it. Raises `UsageError` without checkpoints."""
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
    found = measured(models, gc, statements, cascade)
    return found | {"seconds": round(time.monotonic() - began, 1)}
