"""MHaluBench's published layouts, with claims of our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.cases import cases

from groundwatch.errors import FileFormatError
from groundwatch.protocols.people import read_labelled

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
