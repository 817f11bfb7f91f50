"""Files of responses in other formats: read where they say all that is needed, else told so."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from groundwatch.client.files import AnswerFile
from groundwatch.errors import FileFormatError
from groundwatch.judging.files import Responses
from groundwatch.protocols import registry

ONE: dict[str, Any] = {
    "id": "1",
    "model": "m",
    "prompt": "What?",
    "answer": 'A dog,\n"sitting".',
    "images": ["a.png"],
}
FOREIGN: list[dict[str, Any]] = [
    {"name": 3, "words": "A dog."},
    {"uid": 0, "in": {}, "out": [["Yes."]]},
    {"text": "A dog.", "label": 1},
]


def told(path: Path) -> str:
    with pytest.raises(FileFormatError) as caught:
        Responses(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    return message


def test_lines_are_left_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "file"
    neither = (b"no json, no table\n", b"a;b\rc\xa6\n")
    for content in (b"", b"\n", b'{"id": "1"}\n', *neither, b'\n{"conversations": '):
        path.write_bytes(content)
        lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
        assert list(AnswerFile(path)) == lines, content


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_an_array_is_read(tmp_path: Path, indent: int | None, bom: str) -> None:
    path = tmp_path / "answers.json"
    path.write_text(bom + json.dumps([ONE, ONE | {"id": "2"}], indent=indent))
    first, second = Responses(path)
    assert (first.id, second.id, first.answer, first.images) == ("1", "2", ONE["answer"], ("a.png",))
    path.write_text(json.dumps([ONE, {"id": "2"}], indent=indent))
    assert ":2: key 'model': is missing" in told(path)
    path.write_text(json.dumps([ONE])[:-2])
    assert "begins as a JSON array and is none" in told(path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_is_read(tmp_path: Path, delimiter: str) -> None:
    import csv

    path = tmp_path / "answers.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(["id", "model", "answer", "prompt", "images", "reference"])
        writer.writerow(["01", "m", ONE["answer"], "", "a.png", '{"objects": ["dog"]}'])
        writer.writerow(["2", "m", "", "What?", '["a.png", "b.png"]', ""])
    first, second = Responses(path)
    assert (first.id, first.answer, first.images) == ("01", ONE["answer"], ("a.png",))
    assert first.reference is not None and first.reference.objects == ("dog",)
    assert (second.answer, second.prompt, second.images) == ("", "What?", ("a.png", "b.png"))
    assert second.reference is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('id,model,answer\n1,m,"two\nlines"\n2,,b\n', ":4: key 'model': is missing"),
        ("id,model,answer\n1,m,a,b\n", ":2: has 4 cells; the first line names 3 columns"),
        ('id,model,answer\n1,m,"a\n', "is not CSV"),
        ("id,model,answer,reference\n1,m,a,dog\n", ":2: key 'reference'"),
        ("name,words\n1,a\n", ":1: needs a column answer, or --column THEIRS=answer; it has: name, words"),
    ],
)
def test_what_is_wrong_with_a_table(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "answers.csv"
    path.write_text(content)
    assert message in told(path)


@pytest.mark.parametrize("array", [False, True])
def test_another_programs_records_are_told_in_one_line(tmp_path: Path, array: bool) -> None:
    for record in FOREIGN:
        path = tmp_path / "theirs.json"
        path.write_text(json.dumps([record], indent=1) if array else json.dumps(record) + "\n")
        assert f"keys {', '.join(record)}: a response has id, model and answer" in told(path)


@pytest.mark.parametrize("how", ["/dev/zero", "pipe"])
def test_what_has_no_end_is_not_read(how: str, tmp_path: Path) -> None:
    path = Path(how)
    if how == "pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    assert "it is a device or a pipe" in told(path)
    for read in (lambda: AnswerFile(path), lambda: registry.published_answers(path)):
        with pytest.raises(FileFormatError, match="a device or a pipe"):
            read()


def test_a_column_whose_name_is_no_text_is_told(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    path = tmp_path / "answers.parquet"
    table = pa.table({"id": ["1"], "answer": ["A dog."], "other": ["x"]})
    pyarrow.parquet.write_table(table, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"other", b"oth\xff\xfe"))
    assert "is no Parquet that can be read" in told(path)


@pytest.mark.slow
def test_submit_sends_an_array_and_a_table(up: Any, tmp_path: Path) -> None:
    record = {"model": "m", "answer": "A dog sits."}
    array, table, foreign = tmp_path / "a.json", tmp_path / "a.csv", tmp_path / "b.json"
    array.write_text(json.dumps([record | {"id": "format-1"}, record | {"id": "format-2"}], indent=2))
    table.write_text("id,answer\nformat-3,A cat sits.\n")
    assert up.json("submit", array, "--to", up.gateway)["accepted"] == 2
    assert up.json("submit", table, "--to", up.gateway, "--model", "m")["accepted"] == 1
    foreign.write_text(json.dumps(FOREIGN[:1]))
    assert "a response has id, model and answer" in up.complaint("submit", foreign, "--to", up.gateway)
