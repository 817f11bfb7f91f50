"""MHaluBench's published layouts, with claims of our own; and the rates of labels that a judge meets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cases import cases

from groundwatch.errors import FileFormatError
from groundwatch.events import Decision
from groundwatch_benchmarks.agreement.claims import JudgedLabel, claim_agreement, joined, read_labelled

TRUE, FALSE = "non-hallucination", "hallucination"
VALIDATION = [
    {
        "id": 3,
        "image_path": "/data/images/lamp.jpg",
        "task_type": "image-caption",
        "model": "heron",
        "prompt": "Describe it.",
        "response": "A lamp stands on a desk. The lamp is lit.",
        "label": FALSE,
        "segments": [
            {
                "segment": "A lamp stands on a desk.",
                "segment_label": TRUE,
                "claims": [
                    {"claim": "There is a lamp.", "claim_label": TRUE, "claim_category": ["object"]},
                    {"claim": "There is a desk.", "claim_label": TRUE},
                ],
            },
            {"segment": "The lamp is lit.", "claims": [{"claim": "The lamp is lit.", "claim_label": FALSE}]},
        ],
    }
]


def test_the_validation_files(tmp_path: Path) -> None:
    path = tmp_path / "val.json"
    path.write_text(json.dumps(VALIDATION))
    (found,) = read_labelled(path)
    assert (found.image, found.task) == ("lamp.jpg", "image-caption")
    assert found.claims == ("There is a lamp.", "There is a desk.", "The lamp is lit.")
    assert found.hallucinated == (False, False, True)
    assert found.segments == ((range(2), False), (range(2, 3), True))


def test_the_training_file(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(
        json.dumps(
            [{"image_path": r"C:\images\a.png", "claim_list": ["x", "y"], "ref_claim_label": [TRUE, FALSE]}]
        )
    )
    (found,) = read_labelled(path)
    assert (found.image, found.claims, found.hallucinated) == ("a.png", ("x", "y"), (False, True))
    assert found.segments == ((range(1), False), (range(1, 2), True))


def test_what_is_wrong_is_one_line_with_the_key(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    missed = []
    for name, text, wanted in cases(__file__):
        path.write_text(text)
        with pytest.raises(FileFormatError) as raised:
            read_labelled(path)
        told = str(raised.value)
        if wanted not in told or not told.startswith(f"{path}") or "\n" in told:
            missed.append((name, told))
    assert missed == []


def label(hallucinated: bool, decision: Decision, probability: float | None = None) -> JudgedLabel:
    return JudgedLabel(hallucinated, decision, probability)


HELD, GONE, OPEN = Decision.SUPPORTED, Decision.REFUTED, Decision.UNDECIDED


def test_precision_recall_and_f1_of_both_classes_by_hand() -> None:
    """3 hits, 1 false alarm, 2 missed, 4 held: hallucination 3/4, 3/5, 6/9; the other 4/6, 4/5, 8/11."""
    answers = [
        [label(True, GONE, 0.1)] * 3 + [label(False, GONE, 0.2)],
        [label(True, HELD, 0.6)] * 2 + [label(False, HELD, 0.9)] * 4,
        [label(True, OPEN)],
    ]
    found = claim_agreement(answers)
    expected = {
        "accuracy": 7 / 10,
        "hallucination.precision": 3 / 4,
        "hallucination.recall": 3 / 5,
        "hallucination.f1": 6 / 9,
        "non_hallucination.precision": 4 / 6,
        "non_hallucination.recall": 4 / 5,
        "non_hallucination.f1": 8 / 11,
        "macro.f1": (6 / 9 + 8 / 11) / 2,
    }
    assert {name: found[name].value for name in expected} == pytest.approx(expected)
    # Of 5 x 5 pairs the held claim is likelier in 4 x 5, and in 0.2 against 0.1 three times.
    assert found["auc"].value == pytest.approx(23 / 25)
    assert found["coverage"].value == pytest.approx(10 / 11)
    assert (found["claims"], found["undecided"], found["answers"]) == (11, 1, 3)
    assert found["accuracy"].n == 3, "answers are drawn"


def test_no_number_is_made_up() -> None:
    found = claim_agreement([[label(True, OPEN)], []])
    assert [found[name] for name in ("accuracy", "auc", "macro.f1")] == [None, None, None]
    assert found["coverage"].value == 0
    assert claim_agreement([])["accuracy"] is None
    words_alone = claim_agreement([[label(True, GONE), label(False, HELD)]])
    assert (words_alone["accuracy"].value, words_alone["auc"]) == (1.0, None)


def test_claims_are_joined_as_people_join_them() -> None:
    assert joined([label(False, HELD, 0.9), label(True, GONE, 0.2)], True) == (True, GONE, 0.2)
    assert joined([label(False, HELD, 0.9), label(False, OPEN)], False) == (False, OPEN, None)
    assert joined([label(False, OPEN), label(True, GONE, 0.2)], True) == (True, GONE, None)


@given(
    st.lists(
        st.lists(
            st.tuples(st.booleans(), st.sampled_from(list(Decision)), st.floats(0, 1)), min_size=1, max_size=5
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=6)
def test_a_judge_that_says_the_opposite_exchanges_the_classes(answers: list[Any]) -> None:
    """And with people's labels exchanged too, every number of one class is the other's."""
    other = {HELD: GONE, GONE: HELD, OPEN: OPEN}
    found = claim_agreement([[label(*one) for one in answer] for answer in answers])
    turned = claim_agreement(
        [[label(not wrong, other[decision], 1 - p) for wrong, decision, p in answer] for answer in answers]
    )
    for name in ("precision", "recall", "f1"):
        assert turned[f"hallucination.{name}"] == found[f"non_hallucination.{name}"]
    assert turned["accuracy"] == found["accuracy"]
    for one in (one for one in found.values() if not isinstance(one, int)):
        assert one is None or 0 <= one.low <= one.value <= one.high <= 1
