"""The detector against the truth of scenes: what is asked, and what the trained checkpoint makes of it."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest

pytest.importorskip("transformers", reason="needs the extra models")

from groundwatch.miniature.language import holds
from groundwatch.miniature.world import scenes
from groundwatch.protocols import registry
from groundwatch.system.up import MINIATURE
from groundwatch_benchmarks.miniature.detecting import TARGETS, detector_verdicts, statements, summary


def test_the_truth_of_every_statement_is_known() -> None:
    random, truths = Random(1), Counter[tuple[str, bool | None]]()
    for shown in islice(scenes(3), 300):
        truths.update((kind, holds(shown, text)) for kind, text in statements(shown, random))
    kinds = {*TARGETS, "color", "size"}
    assert truths.keys() == {(kind, true) for kind in kinds for true in (True, False)}
    assert all(truths[kind, False] > 0.25 * truths[kind, True] for kind in kinds)


@pytest.mark.slow
@pytest.mark.skipif(not (MINIATURE / "detector").is_dir(), reason="the checkpoints are not in this checkout")
async def test_the_trained_detector_keeps_its_targets() -> None:
    steps: list[int] = []
    judged = await detector_verdicts(
        MINIATURE / "detector",
        registry.get("faithscore"),
        60,
        6 * 10**9,
        lambda _, done, total: steps.append(done),
    )
    assert steps == [*range(1, 61)]
    found = {kind: summary(pairs) for kind, pairs in judged.items()}
    for kind, least in TARGETS.items():
        assert found[kind]["right"] >= least
        assert found[kind]["undecided"] < 0.2
        assert found[kind]["brier"] < 0.05
    assert found["color"]["right"] >= 0.95 and found["size"]["right"] >= 0.95
