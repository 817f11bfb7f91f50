"""The comparison with the truth itself, on outcomes made up and real ones."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import Any

import msgspec
import pytest
from tools.miniature.answers import answer

from groundwatch.events import OutcomeKind, ResponseRecorded, ResponseScored
from groundwatch.miniature.language import PROMPTS, truth
from groundwatch.miniature.world import Scene, scenes
from groundwatch.system.up import MINIATURE
from groundwatch_benchmarks.miniature import answers as answering
from groundwatch_benchmarks.miniature import measuring
from groundwatch_benchmarks.miniature.answers import Answered, Judged, judge_models

FACTS = 10


def made_up(name: str, share: float, *, noise: float = 0.0, number: int = 300) -> Judged:
    """A model that states `share` of its facts wrongly, and a judge that errs on `noise` of them."""
    random = Random(name)
    answers, judged = [], []
    for at, shown in enumerate(islice(scenes(7), number)):
        false = sum(random.random() < share for _ in range(FACTS))
        refuted = sum((at_fact < false) != (random.random() < noise) for at_fact in range(FACTS))
        response = ResponseRecorded(id=f"{name}-{at}", model=name, answer="…")
        right = truth(answer(shown, 0), shown)
        answers.append(Answered(shown=shown, response=response, truth=_with(right, false)))
        judged.append(
            ResponseScored(
                id=response.id,
                model=name,
                protocol="faithscore",
                outcome=OutcomeKind.SCORED,
                score=1 - refuted / FACTS,
                values={
                    "decided": float(FACTS),
                    "refuted": float(refuted),
                    "decided.entity": float(FACTS),
                    "refuted.entity": float(refuted),
                },
            )
        )
    return Judged(name=name, answers=answers, by_protocol={"faithscore": judged})


def _with(right: Any, false: int) -> Any:
    return msgspec.structs.replace(right, facts=FACTS, false_facts=false)


def test_a_judge_without_noise_agrees_fully() -> None:
    models = [made_up("good", 0.02), made_up("bad", 0.4)]
    found = measuring.faithscore_agreement(models)
    assert found["per_response"]["pearson"]["value"] == pytest.approx(1.0)
    for one in found["by_model"].values():
        assert one["error"]["value"] == pytest.approx(0.0)
        assert one["scored"] == one["responses"] == 300


def test_a_noisy_judge_is_off_by_what_it_errs() -> None:
    found = measuring.rate_errors(made_up("good", 0.0, noise=0.1))
    assert found["true"] == 0.0
    assert 0.07 < found["estimated"] < 0.13
    assert found["error"]["low"] < found["error"]["value"] < found["error"]["high"]


def test_the_alarm_finds_the_bad_rollout_and_leaves_good_ones_alone(monkeypatch: Any) -> None:
    monkeypatch.setattr(measuring, "TRIALS", 2)
    monkeypatch.setattr(measuring, "GOOD_STREAM", 1500)
    good, bad = made_up("good", 0.02), made_up("bad", 0.3)
    found = measuring.alarms(good, bad)
    assert found["responses_to_detect"]["missed"] == 0
    assert 1 <= found["responses_to_detect"]["most"] <= 150
    assert found["false_alarms"] == 0
    assert found["good_responses"] == 3000
    nothing = measuring.alarms(good, good)
    for moment, before in (("responses_to_detect_soon_after_learning", 400), ("responses_to_detect", 3200)):
        assert found[moment]["good_before"] == before
        assert nothing[moment] == {
            "good_before": before,
            "median": None,
            "most": None,
            "missed": 2,
            "false_alarms_before": 0,
        }


def told(**changes: Any) -> dict[str, Any]:
    error = changes.get("error", 0.01)
    return {
        "faithscore": {
            "per_response": {"pearson": {"value": changes.get("pearson", 0.9)}},
            "by_model": {"a": {"error": {"value": error}}, "b": {"error": {"value": 0.0}}},
        },
        "alarm": {
            "responses_to_detect": {"most": changes.get("most", 90), "missed": changes.get("missed", 0)},
            "false_alarms_per_10000": changes.get("false", 0.0),
        },
        "genception": {"order": ["a", "b"], "true_order": changes.get("order", ["a", "b"])},
        "detector": {
            kind: {"right": changes.get(kind, 1.0)} for kind in ("existence", "count", "position", "color")
        },
        "cascade": {
            "share_last": changes.get("share", 0.2),
            "rate_error": {"cascade": changes.get("cascade", 0.004), "last_judge": 0.004},
        },
    }


def test_promises_that_hold() -> None:
    assert all(one["holds"] for one in measuring.promises(told()).values())


@pytest.mark.parametrize(
    ("broken", "changes"),
    [
        ("faithscore_pearson", {"pearson": 0.79}),
        ("largest_rate_error", {"error": -0.031}),
        ("responses_to_detect", {"most": 151}),
        ("responses_to_detect", {"missed": 1}),
        ("responses_to_detect", {"most": None, "missed": 20}),
        ("false_alarms_per_10000", {"false": 1.1}),
        ("gc_order_is_the_true_order", {"order": ["b", "a"]}),
        ("detector_existence", {"existence": 0.96}),
        ("detector_count", {"count": 0.89}),
        ("detector_position", {"position": None}),
        ("cascade_share_last", {"share": 0.21}),
        ("cascade_rate_error", {"cascade": 0.005}),
    ],
)
def test_a_promise_that_does_not_hold_is_told(broken: str, changes: dict[str, Any]) -> None:
    found = measuring.promises(told(**changes))
    assert [name for name, one in found.items() if not one["holds"]] == [broken]


@pytest.mark.slow
@pytest.mark.skipif(not (MINIATURE / "verifier").is_dir(), reason="the checkpoints are not in this checkout")
async def test_the_monitor_agrees_with_the_truth_of_a_good_and_a_bad_model() -> None:
    steps: list[str] = []
    models = await judge_models(
        MINIATURE, 24, lambda what, _done, _total: steps.append(what), ("lvlm_good", "lvlm_poor")
    )
    assert {model.name for model in models} == {"lvlm_good", "lvlm_poor"}
    assert "lvlm_good faithscore" in steps
    found = measuring.faithscore_agreement(models)
    good, poor = (found["by_model"][name] for name in ("lvlm_good", "lvlm_poor"))
    assert good["estimated"] < poor["estimated"]
    assert good["true"] < poor["true"]
    assert found["per_response"]["pearson"]["value"] > 0.6
    assert measuring.valor_agreement(models)["faithfulness"]["pearson"]["value"] > 0.6
    assert set(measuring.tri_he_agreement(models)["by_model"]) == {"lvlm_good", "lvlm_poor"}


def test_prompts_go_round_through_all_manners() -> None:
    asked = [answering._prompt(at) for at in range(60)]
    for manner in PROMPTS:
        assert set(manner) <= set(asked)


def test_references_name_what_is_there() -> None:
    shown: Scene = next(scenes(3))
    kinds = {thing.kind for thing in shown.things}
    assert set(answering.REFERENCES["valor-object-existence"](shown).objects) == kinds
    graph = answering.REFERENCES["tri-he"](shown).triplets
    assert {subject for subject, _, _ in graph} == kinds
