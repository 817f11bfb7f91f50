"""`groundwatch validate annotators` as it is typed."""

from __future__ import annotations

import io
from itertools import product

import pytest

from groundwatch.cli.validate import render_annotators
from groundwatch.protocols.people import Annotation, annotator_agreement
from groundwatch.terminal import Console


def test_the_command_prints_both_numbers(nobody, written):
    file = written(
        *(
            {"item": item, "annotator": annotator, "label": item % 2 if annotator != "c" else item % 3 == 0}
            for item, annotator in product(range(12), "abc")
        )
    )
    found = nobody.json("validate", "annotators", file)
    assert (found["items"], found["annotators"]) == (12, 3)
    assert found["fleiss_kappa"]["n"] == found["krippendorff_alpha"]["n"] == 12
    told = nobody("validate", "annotators", file).stdout
    assert "Agreement of 3 annotators on 12 items" in told
    assert f"{found['krippendorff_alpha']['value']:.3f}" in told


def test_a_bad_line_is_one_line(nobody, written):
    file = written({"item": 1, "annotator": "a", "label": "yes"}, {"item": 1, "annotator": "b"})
    assert nobody.complaint("validate", "annotators", file) == f"{file}:2: key 'label': is missing"


def test_what_is_undefined_is_said_inside_80_columns():
    stream = io.StringIO()
    annotations = [Annotation(str(n), "a", "[red]yes[/]") for n in range(3)]
    render_annotators(annotator_agreement(annotations), Console(file=stream, width=80))
    text = stream.getvalue()
    assert "undefined" in text
    assert "[red]yes[/]" in text
    assert max(map(len, text.splitlines())) <= 80


def test_scores_are_held_against_people(nobody, written, tmp_path):
    """CHAIR's outcomes beside what people say: VALOR-Eval's tables 4 and 6 in small."""
    answers = {"1": "A puppy on a sofa.", "2": "A cat and a dog.", "3": "A cat, a mug and a dog."}
    there = {"objects": ["dog", "couch", "cup"]}
    responses = written(
        *({"id": name, "model": "m", "answer": said, "reference": there} for name, said in answers.items())
    )
    out = tmp_path / "out.jsonl"
    nobody.json("score", "chair", responses, "--out", out)
    people = written(
        {"id": "1", "scores": {"faithfulness": 1.0}, "mentioned": ["puppy", "sofa"]},
        {"id": "2", "scores": {"faithfulness": 0.5}, "mentioned": ["cat", "dog"], "hallucinated": ["cat"]},
        {"id": "3", "scores": {"faithfulness": 0.8}},
    )
    (found,) = nobody.json("validate", "scores", out, people)["agreement"]
    assert (found["protocol"], found["model"], found["answers"]) == ("chair", "m", 3)
    assert found["scores"]["faithfulness"]["pearson"]["value"] == pytest.approx(0.954, abs=0.001)
    assert (found["accuracy_faithfulness"]["value"], found["accuracy_coverage"]["value"]) == (1.0, 1.0)
    assert found["accuracy_coverage"]["n"] == 2
    shown = nobody("validate", "scores", out, people).stdout
    assert "faithfulness: pearson" in shown and "Acc (F)" in shown
