"""Files of answers as other programs write them, of which `data/file_formats.yaml` has a case each."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.cases import cases

from groundwatch.client.files import AnswerFile
from groundwatch.client.files.formats import FORMATS, format_of
from groundwatch.errors import UsageError
from groundwatch.records import Refusal

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LARGER = (PIXEL.rstrip("=") + "A" * 300).replace("=", "")
"""As long as images in a column are, which no name of a file is."""

CASES = cases(__file__)
PLAIN = {"id": "1", "model": "m", "answer": "A dog – grün."}


def opened(folder: Path, case: dict[str, Any]) -> AnswerFile:
    for name, text in case["files"].items():
        text = text.replace("PIXEL", LARGER if name.endswith(".tsv") else PIXEL)
        (folder / name).write_bytes(text.encode(case.get("encoding", "utf-8")))
    options = dict(case.get("options", {}))
    if "questions" in options:
        options["questions"] = folder / options["questions"]
    return AnswerFile(folder / next(iter(case["files"])), **options)


def values(record: Any) -> dict[str, Any]:
    import msgspec

    found = msgspec.json.decode(record) if isinstance(record, bytes) else record
    assert isinstance(found, dict), found
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_file_of_another_program_is_read_or_told(tmp_path: Path, case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(UsageError) as caught:
            list(opened(tmp_path, case))
        message = str(caught.value)
        assert case["error"] in message and "\n" not in message and len(message) < 1_000
        # No advice writes over a file.
        for target in re.findall(r"> (\S+)", message):
            assert not Path(target).exists()
        return
    file = opened(tmp_path, case)
    found = list(file)
    refused = {number: str(one) for number, one in found if isinstance(one, Refusal)}
    assert refused.keys() == case.get("refused", {}).keys()
    for number, said in case.get("refused", {}).items():
        assert said in refused[number]
    records = [values(one) for _, one in found if not isinstance(one, Refusal)]
    assert len(records) == len(case["records"])
    for record, expected in zip(records, case["records"], strict=True):
        for name, value in expected.items():
            given = record.get(name)
            assert (len(given) if isinstance(value, int) and name == "images" else given) == value, name
    for line in case.get("told", ()):
        assert any(line in one for one in file.told.lines()), file.told.lines()
    # An id that is made is made again.
    assert [values(one).get("id") for _, one in file if not isinstance(one, Refusal)] == [
        one.get("id") for one in records
    ]
    made = [one["id"] for one in records if "id" in one]
    assert len(set(made)) == len(made)


def test_every_format_has_a_case(tmp_path: Path) -> None:
    shown = " ".join(str(case) for case in CASES)
    elsewhere = {"Langfuse", "Phoenix", "LiteLLM", "LiteLLM's spend log", "LLaVA's questions"}
    alone = {"requests with their responses", "conversations", "captions", "answers with predictions"}
    for format in FORMATS:
        assert format.name in elsewhere | alone or format.name.split("'")[0].split()[0] in shown, format.name


def test_opik_is_not_taken_for_langfuse() -> None:
    names = ["id", "trace_id", "type", "input", "output", "start_time"]
    langfuse, opik = format_of(dict.fromkeys(names)), format_of(dict.fromkeys([*names, "parent_span_id"]))
    assert langfuse is not None and opik is not None
    assert (langfuse.name, opik.name) == ("Langfuse", "Opik")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_what_is_compressed_is_read(tmp_path: Path, suffix: str) -> None:
    text = b'id,model,answer\n1,m,"A dog \xe2\x80\x93 gr\xc3\xbcn."\n'
    packed = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
        ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
    }
    path = tmp_path / f"answers.csv{suffix}"
    path.write_bytes(packed[suffix](text))
    assert list(AnswerFile(path)) == [(2, PLAIN)]
    path.write_bytes(packed[suffix](text)[:-6])
    with pytest.raises(UsageError, match=rf"answers\.csv{suffix}: cannot be read"):
        list(AnswerFile(path))


def test_errors_name_the_file_and_not_the_copy(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv.gz"
    path.write_bytes(gzip.compress(b"id,model,answer\n1,m,a,b\n"))
    with pytest.raises(UsageError) as caught:
        list(AnswerFile(path))
    assert str(caught.value).startswith(f"{path}:2: has 4 cells")


def test_a_workbook_is_told_with_a_command(tmp_path: Path) -> None:
    path = tmp_path / "m_MME.xlsx"
    path.write_bytes(b"PK\x03\x04\x14\x00")
    with pytest.raises(UsageError) as caught:
        list(AnswerFile(path))
    assert "is an Excel workbook" in str(caught.value)
    assert str(caught.value).endswith(f"{path} {path}.csv")
    path.write_bytes(b"\xff\xff\xff\xff\x10\0\0\0")
    with pytest.raises(UsageError) as caught:
        list(AnswerFile(path))
    assert "is an Arrow file of a data set" in str(caught.value)


def test_a_long_document_is_no_line(tmp_path: Path) -> None:
    """An annotation of COCO is one line, longer than any record."""
    path = tmp_path / "instances.json"
    path.write_text('{"images": [], "annotations": [], "info": "' + "x" * 5_000 + '"}')
    with pytest.raises(UsageError, match="COCO"):
        list(AnswerFile(path, max_line=1_000))
