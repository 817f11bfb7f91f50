from __future__ import annotations

from pathlib import Path

import pytest

from groundwatch.errors import FileFormatError
from groundwatch.events import Label
from groundwatch_benchmarks.methods.faithscore.suite import read_annotations


def test_reads_labels_and_facts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"id": "7", "answer": "A cat sits, perhaps tired.", "extra": 1, '
        '"stage 1": {"A cat sits": 1, " perhaps tired": 0}, '
        '"stage 2": {"There is a cat.": 1, "It sits.": 0}}\n\n'
    )
    (answer,) = read_annotations(path)
    assert answer.image == "7"
    assert answer.answer == "A cat sits, perhaps tired."
    assert list(answer.labels.items()) == [
        ("A cat sits", Label.DESCRIPTIVE),
        ("perhaps tired", Label.ANALYTICAL),
    ]
    assert answer.facts == {"There is a cat.": True, "It sits.": False}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        ('{"answer": "a", "stage 1": {}, "stage 2": {}}', "'id'"),
        ('{"id": "1", "answer": 3, "stage 1": {}, "stage 2": {}}', "'answer'"),
        ('{"id": "1", "answer": "a", "stage 2": {}}', "'stage 1'"),
        ('{"id": "1", "answer": "a", "stage 1": {"a": 2}, "stage 2": {}}', "'stage 1', 'a'"),
        ('{"id": "1", "answer": "a", "stage 1": {}, "stage 2": {"f": "yes"}}', "'stage 2', 'f'"),
    ],
)
def test_names_file_line_and_key(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n" + line)
    with pytest.raises(FileFormatError) as raised:
        read_annotations(path)
    assert f"{path}:2" in str(raised.value)
    assert said in str(raised.value)


def test_a_missing_file_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_annotations(tmp_path / "none.jsonl")
