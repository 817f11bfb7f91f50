"""Annotators' labels: read, refused with file, line and key, counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groundwatch.errors import FileFormatError
from groundwatch.protocols.annotators import Annotation, annotator_agreement, read_annotators


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def row(item: object = 1, annotator: object = "a", label: object = "yes") -> dict[str, object]:
    return {"item": item, "annotator": annotator, "label": label}


def test_names_and_labels_of_several_kinds_are_read(tmp_path: Path):
    file = write(tmp_path / "a.jsonl", row(), row(annotator=7, label=1), "", row(item="x", label=True))
    assert read_annotators(file) == [
        Annotation("1", "a", "yes"),
        Annotation("1", "7", "1"),
        Annotation("x", "a", "true"),
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{", "a.jsonl:2: not JSON"),
        ([], "a.jsonl:2: expected a JSON object"),
        ({"item": 1, "annotator": "b"}, "a.jsonl:2: key 'label': is missing"),
        (row(annotator="b", label=0.5), "a.jsonl:2: key 'label': expected a text, a whole number"),
        (row(item=None), "a.jsonl:2: key 'item': expected a text or a number"),
        (row(annotator=" "), "a.jsonl:2: key 'annotator': is empty"),
        (row(label="no"), "a.jsonl:2: key 'annotator': 'a' labelled item '1' in line 1 already"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, wrong: object, message: str):
    with pytest.raises(FileFormatError) as found:
        read_annotators(write(tmp_path / "a.jsonl", row(), wrong))
    assert message in str(found.value)


def test_an_empty_file_is_told(tmp_path: Path):
    with pytest.raises(FileFormatError, match="is empty"):
        read_annotators(write(tmp_path / "a.jsonl"))


def test_kappa_takes_the_items_with_the_commonest_number_of_labels():
    said = {"p": "yes yes yes", "q": "no no no", "r": "yes no no", "s": "yes yes", "t": "no"}
    found = annotator_agreement(
        [
            Annotation(item, f"a{index}", label)
            for item, labels in said.items()
            for index, label in enumerate(labels.split())
        ],
        resamples=50,
    )
    assert (found.items, found.annotators, found.annotations) == (5, 3, 12)
    assert (found.fleiss_items, found.fleiss_labels) == (3, 3)
    assert found.labels == {"no": 6, "yes": 6}
    assert found.fleiss_kappa is not None and found.fleiss_kappa.n == 3
    assert found.krippendorff_alpha is not None and found.krippendorff_alpha.n == 4


def test_one_annotator_agrees_with_nobody():
    found = annotator_agreement([Annotation("1", "a", "yes"), Annotation("2", "a", "no")])
    assert (found.fleiss_kappa, found.krippendorff_alpha) == (None, None)
    assert (found.fleiss_items, found.fleiss_labels) == (0, 0)
