"""Whole answers of Tri-HE's benchmark, judged by any judge that reads a scene graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import CommandLine
from tests.support.llm_server import running

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
