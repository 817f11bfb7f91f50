"""The cascade against the truth: where its first judge is believed, and what trained models make of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("transformers", reason="needs the extra models")

from groundwatch.events import Decision, Verdict
from groundwatch.protocols import registry
from groundwatch.system.up import MINIATURE
from groundwatch_benchmarks.miniature.answers import judge_models
from groundwatch_benchmarks.miniature.cascading import MOST, believed, bound, cascade_rates
from groundwatch_benchmarks.miniature.detecting import detector_verdicts

VERDICTS = st.lists(st.tuples(st.sampled_from([0.6, 0.7, 0.8, 0.9, 1.0]), st.booleans()), max_size=20)


@given(VERDICTS, st.floats(0.5, 1))
def test_beyond_the_bound_enough_is_right_and_no_lower_one_would_do(
    verdicts: list[tuple[float, bool]], right: float
) -> None:
    def enough(least: float) -> bool:
        beyond = [hit for sure, hit in verdicts if sure > least]
        return bool(beyond) and sum(beyond) >= right * len(beyond)

    found = bound(verdicts, right)
    assert found == 1.0 or enough(found)
    for lower in {0.5, *(sure for sure, _ in verdicts)}:
        assert lower >= found or not enough(lower)


def test_each_side_has_a_bound_of_its_own() -> None:
    said = [(Decision.SUPPORTED, 0.9, True), (Decision.SUPPORTED, 0.7, False), (Decision.REFUTED, 0.1, False)]
    rest = [(Decision.UNDECIDED, 0.5, True), (Decision.REFUTED, None, True)]
    step = believed([(Verdict(decision=one, probability=p), true) for one, p, true in (*said, *rest)])
    assert (step.engine, step.refuted_below, step.supported_above) == ("detector", 0.5, 0.7)
    assert believed([]).bounds == (0.0, 1.0), "who was never seen to be right is never believed"


@pytest.mark.slow
@pytest.mark.skipif(not (MINIATURE / "detector").is_dir(), reason="the checkpoints are not in this checkout")
async def test_few_facts_reach_the_last_judge_and_rates_are_as_good() -> None:
    protocol = registry.get("faithscore")
    models = await judge_models(MINIATURE, 60, lambda *_: None, ("lvlm_good", "lvlm_poor"))
    judged = await detector_verdicts(MINIATURE / "detector", protocol, 60, 6 * 10**9, lambda *_: None)
    found = await cascade_rates(
        models,
        MINIATURE / "detector",
        believed(pair for pairs in judged.values() for pair in pairs),
        protocol,
        lambda *_: None,
    )
    assert found["share_last"] < MOST
    assert found["rate_error"]["cascade"] < found["rate_error"]["last_judge"]
    first, last = found["judges"]["detector"], found["judges"]["triton"]
    assert first["decided"] + first["passed"] == found["facts"]
    # The last judge has no word for a guess such as "There is a page."
    assert 0 < last["decided"] <= first["passed"]
    assert first["calls"] == 120 > last["calls"] > 0
    for one in found["by_model"].values():
        assert one["cascade"]["wrong"] <= one["last_judge"]["wrong"]
