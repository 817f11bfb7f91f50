"""Tables and folders of responses: columns, images in every form, and what is wrong with a row."""

from __future__ import annotations

import base64
import csv
import datetime
import hashlib
import io
import json
import sys
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from groundwatch.client.files import AnswerFile
from groundwatch.errors import FileFormatError, MissingExtraError, UsageError
from groundwatch.events import ResponseRecorded
from groundwatch.judging.files import Responses, images_of
from groundwatch.records import Limits, Refusal
from groundwatch.runtime.settings.gateway import IntakeSettings

ROW: dict[str, Any] = {"id": "1", "model": "m", "answer": "A dog sits."}
IMAGES = ("images", "image", "image_file", "file_name", "file_names")
HUGGING_FACE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def png(color: str = "red") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (16, 12), color).save(out, "PNG")
    return out.getvalue()


def parquet(path: Path, rows: Sequence[Mapping[str, Any]], **types: pa.DataType) -> Path:
    columns = {
        name: pa.array([row.get(name) for row in rows], types.get(name))
        for name in dict.fromkeys(name for row in rows for name in row)
    }
    pq.write_table(pa.table(columns), path)
    return path


def table(path: Path, rows: Sequence[Mapping[str, Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(
            stream, dict.fromkeys(name for row in rows for name in row), delimiter=delimiter
        )
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path: Path) -> list[ResponseRecorded]:
    return list(Responses(path))


def complaint(path: Path) -> str:
    with pytest.raises(FileFormatError) as caught:
        read(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1_000
    return str(caught.value)


@pytest.mark.parametrize("column", IMAGES)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet"])
def test_a_column_of_any_such_name_has_the_images(tmp_path: Path, name: str, column: str) -> None:
    rows = [ROW | {column: "pics/a.png"}, ROW | {"id": "2", column: ""}]
    path = tmp_path / name
    made = parquet(path, rows) if name == "a.parquet" else table(path, rows, "\t" if name == "a.tsv" else ",")
    assert [(one.id, one.images) for one in read(made)] == [("1", ("pics/a.png",)), ("2", ())]


def test_an_address_is_told_as_one(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", [ROW | {"image": '["s3://bucket/a.png", "b.png"]'}])
    ((_, record),) = AnswerFile(path)
    assert isinstance(record, dict)
    assert record["images"] == [{"url": "s3://bucket/a.png"}, "b.png"]
    (one,) = read(path)
    assert one.images == ("s3://bucket/a.png", "b.png")


def test_two_columns_of_images_are_a_question(tmp_path: Path) -> None:
    rows = [ROW | {"image": "a.png", "images": "b.png"}]
    for path in (table(tmp_path / "a.csv", rows), parquet(tmp_path / "a.parquet", rows)):
        assert "the columns image and images all name images: keep one of them" in complaint(path)


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        (png(), pa.binary()),
        ([png()], pa.list_(pa.binary())),
        ({"bytes": png(), "path": "a.png"}, HUGGING_FACE),
        ({"bytes": png(), "path": None}, HUGGING_FACE),
        ([{"bytes": png(), "path": "a.png"}], pa.list_(HUGGING_FACE)),
        ("data:image/png;base64," + base64.b64encode(png()).decode(), pa.string()),
    ],
)
async def test_images_in_parquet_are_judged_from_it(tmp_path: Path, cell: Any, kind: pa.DataType) -> None:
    path = parquet(tmp_path / "a.parquet", [ROW | {"image": cell}, ROW | {"id": "2"}], image=kind)
    responses = Responses(path)
    (first, second) = responses
    digest = hashlib.sha256(png()).hexdigest()
    assert first.images == (digest,) and second.images == ()
    data, media_type = await images_of(responses, None, IntakeSettings())(digest)
    assert (data, media_type) == (png(), "image/png")


async def test_images_in_parquet_by_path(tmp_path: Path) -> None:
    (tmp_path / "pics").mkdir()
    (tmp_path / "pics" / "a.png").write_bytes(png())
    rows = [ROW | {"image": {"bytes": None, "path": "a.png"}}]
    responses = Responses(parquet(tmp_path / "a.parquet", rows, image=HUGGING_FACE))
    (one,) = responses
    assert one.images == ("a.png",)
    load = images_of(responses, tmp_path / "pics", IntakeSettings())
    assert (await load("a.png"))[0] == png()
    with pytest.raises(FileNotFoundError):
        await images_of(responses, None, IntakeSettings())("a.png")


async def test_lines_with_their_images_inside_are_judged(tmp_path: Path) -> None:
    text = base64.b64encode(png()).decode()
    path = tmp_path / "a.jsonl"
    lines = [
        ROW | {"images": [f"data:image/png;base64,{text}"]},
        ROW | {"id": "2", "images": [{"base64": text}]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    responses = Responses(path)
    digests = {image for one in responses for image in one.images}
    assert digests == {hashlib.sha256(png()).hexdigest()}
    assert (await images_of(responses, None, IntakeSettings())(digests.pop()))[0] == png()
    path.write_text(json.dumps(ROW | {"images": ["data:image/png;base64,*"]}))
    assert ":1: key 'images[0]': not base64" in complaint(path)


def test_values_of_parquet(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 3, 1, 14, tzinfo=datetime.UTC)
    row = ROW | {
        "id": 7,
        "prompt": None,
        "reference": {"objects": ["dog", None], "complete": True, "facts": None},
        "tags": [("strategy", "direct")],
        "protocols": ["faithscore"],
        "recorded_at": moment,
        "unknown": {"deep": [1]},
    }
    text = pa.string()
    kinds = {"tags": pa.map_(text, text), "recorded_at": pa.timestamp("ns", "UTC")}
    (one,) = read(parquet(tmp_path / "a.parquet", [row], **kinds))
    assert (one.id, one.prompt, one.tags, one.protocols) == ("7", "", {"strategy": "direct"}, ("faithscore",))
    assert one.reference is not None
    assert (one.reference.objects, one.reference.complete) == (("dog",), True)
    assert one.recorded_at == moment.timestamp()
    texts = ROW | {"reference": '{"objects": ["dog"]}', "tags": '{"a": "b"}'}
    (one,) = read(parquet(tmp_path / "b.parquet", [texts]))
    assert one.reference is not None and one.reference.objects == ("dog",) and one.tags == {"a": "b"}


@pytest.mark.parametrize(
    ("changes", "kinds", "message"),
    [
        ({"answer": None}, {"answer": pa.string()}, ":2: key 'answer': is missing"),
        ({"answer": 3}, {}, "key 'answer': "),
        ({"answer": b"A dog"}, {}, "key 'answer': is bytes, which no field holds"),
        ({"id": 1.5}, {}, "key 'id': "),
        ({"image": 3}, {}, "key 'image': is of type int; an image is a name, its bytes"),
        ({"image": {"url": "a"}}, {}, "key 'image': has the keys url"),
        ({"image": [[["a"]]]}, {}, "key 'image': is of type list"),
        ({"tags": {"a": 1}}, {}, "key 'tags"),
        ({"reference": "a dog"}, {}, "key 'reference'"),
        ({"recorded_at": "yesterday"}, {}, "key 'recorded_at'"),
        ({"answer": b"\xff"}, {"answer": pa.binary()}, "key 'answer': is bytes"),
    ],
)
def test_what_is_wrong_with_a_row_of_parquet(
    tmp_path: Path, changes: dict[str, Any], kinds: dict[str, pa.DataType], message: str
) -> None:
    good = {"id": 2} if changes.get("id") else {}
    rows = [ROW | good, ROW | changes] if "answer" not in changes or kinds else [ROW | changes]
    if "answer" in changes and kinds.get("answer") == pa.binary():
        rows = [ROW | changes]
    told = complaint(parquet(tmp_path / "a.parquet", rows, **kinds))
    assert told.startswith(f"{tmp_path / 'a.parquet'}:") and message in told


def test_invalid_text_is_a_wrong_row(tmp_path: Path) -> None:
    wrong = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 3], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff\xfe")]
    )
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": ["1", "2"], "model": ["m", "m"], "answer": wrong}), path)
    first, second = AnswerFile(path)
    assert isinstance(first[1], dict)
    assert isinstance(second[1], Refusal) and (second[0], second[1].field) == (2, "answer")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["name", "text"], ": name, text"),
        (["id", "answer", "modle"], "column 'modle': is not known; did you mean 'model'?"),
        (["id", "answer", "answer", "model"], "two columns are called answer"),
        (["index", "question", "prediction"], ": index, question, prediction"),
    ],
)
def test_columns_that_are_wrong(tmp_path: Path, names: list[str], message: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([pa.array(["x"])] * len(names), names), path)
    assert message in complaint(path)
    text = tmp_path / "a.csv"
    text.write_text(",".join(names) + "\n" + ",".join("x" * len(names)) + "\n")
    assert message in complaint(text)


def test_a_file_that_claims_to_be_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [ROW | {"image": png()}] * 40)
    data = path.read_bytes()
    for damaged in (b"PAR1", data[:-9], data[:200] + data[-200:], data[:40] + bytes(60) + data[100:]):
        path.write_bytes(damaged)
        assert "no Parquet that can be read" in complaint(path)
    # The length of the footer, as a claim of 2 GB.
    path.write_bytes(data[:-8] + b"\xff\xff\xff\x7f" + data[-4:])
    assert "no Parquet that can be read" in complaint(path)


def test_one_long_value_for_many_rows_stays_small(tmp_path: Path) -> None:
    """A dictionary names 2 MB for each of 2,000 rows in a few bytes: 4 GB for who reads them at once."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), pa.array(["x" * 2_000_000]))
    columns = {"id": [str(number) for number in range(2_000)], "model": ["m"] * 2_000, "answer": text}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path)
    assert path.stat().st_size < 1_000_000
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    rows = iter(AnswerFile(path))
    most = 0
    for _ in range(100):
        next(rows)
        most = max(most, pa.total_allocated_bytes() - before)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 300_000_000 and held < 300_000_000


def test_a_value_of_a_gigabyte_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    large = pa.array([bytes(300 * 1024 * 1024)])
    pq.write_table(
        pa.table({"id": ["1"], "answer": ["x"], "image": large}),
        path,
        compression="zstd",
        use_dictionary=False,
    )
    del large
    assert path.stat().st_size < 1_000_000
    before = pa.total_allocated_bytes()
    assert "column 'image' has values of 3" in complaint(path)
    assert pa.total_allocated_bytes() - before < 10_000_000


def test_rows_of_parquet_are_counted_by_its_footer(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [ROW | {"image": png()}] * 40)
    assert AnswerFile(path).count() == 40
    path.write_bytes(b"PAR1")
    with pytest.raises(FileFormatError, match="no Parquet"):
        AnswerFile(path).count()
    with pytest.raises(FileFormatError, match="cannot be read"):
        AnswerFile(tmp_path / "none").count()


def test_traces_of_langfuse_name_no_model(tmp_path: Path) -> None:
    trace = {"id": "t", "timestamp": "", "bookmarked": False, "input": "x", "output": "y"}
    path = tmp_path / "a.json"
    path.write_text(json.dumps([trace]))
    for made in (path, table(tmp_path / "a.csv", [trace]), parquet(tmp_path / "a.parquet", [trace])):
        assert "answer" in complaint(made)


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path / "a.parquet", [ROW])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'groundwatch\[archive\]'"):
        list(AnswerFile(path))


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl", "metadata.parquet"])
async def test_a_folder_of_images(tmp_path: Path, name: str) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.png").write_bytes(png())
    row = ROW | {"file_name": "train/a.png"}
    path = tmp_path / name
    if name == "metadata.jsonl":
        path.write_text(json.dumps(row))
    else:
        (parquet if name == "metadata.parquet" else table)(path, [row])
    responses = Responses(tmp_path)
    (one,) = responses
    assert one.images == ("train/a.png",)
    assert (await images_of(responses, None, IntakeSettings())("train/a.png"))[0] == png()


def test_folders_that_say_nothing(tmp_path: Path) -> None:
    assert "is a folder without metadata.csv, metadata.jsonl or metadata.parquet" in complaint(tmp_path)
    (tmp_path / "train").mkdir()
    table(tmp_path / "train" / "metadata.csv", [ROW])
    assert "they are in its folders train: name one of these" in complaint(tmp_path)
    table(tmp_path / "metadata.csv", [ROW])
    parquet(tmp_path / "metadata.parquet", [ROW])
    assert "holds metadata.csv and metadata.parquet: name the one that is meant" in complaint(tmp_path)


def test_null_bytes_and_long_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,model,answer,image\n1,m,A\0dog,a\0.png\n")
    (one,) = read(path)
    assert (one.answer, one.images) == ("A\0dog", ("a\0.png",))
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(ROW | {"answer": "x" * 600}).encode() + b"\n" + json.dumps(ROW).encode())
    first, second = AnswerFile(path, max_line=400)
    assert isinstance(first[1], Refusal) and "more than 400 bytes" in first[1].message
    assert second == (2, json.dumps(ROW).encode())
    with pytest.raises(FileFormatError, match="more than 400 bytes"):
        Responses(path, Limits(line=400))


CELLS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats()
    | st.text()
    | st.binary()
    | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = ("id", "model", "answer", "prompt", "reference", "tags", "tenant", "recorded_at", "protocols")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES + IMAGES[:2]), CELLS, max_size=8))
def test_whatever_parquet_holds_is_a_response_or_one_line(tmp_path: Path, row: dict[str, Any]) -> None:
    path = tmp_path / "any.parquet"
    try:
        parquet(path, [{"id": "1", "answer": "A dog."} | row])
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return
    try:
        for one in Responses(path):
            assert isinstance(one, ResponseRecorded)
    except UsageError as error:
        assert str(path) in str(error) and "\n" not in str(error)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.binary() | st.text().map(str.encode),
    st.sampled_from(["", "PAR1", "id,answer\n", "[", '{"data": [', "{"]),
)
def test_whatever_a_file_holds_is_a_response_or_one_line(tmp_path: Path, data: bytes, start: str) -> None:
    path = tmp_path / "any.csv"
    path.write_bytes(start.encode() + data)
    try:
        for one in Responses(path):
            assert isinstance(one, ResponseRecorded)
    except UsageError as error:
        assert str(path) in str(error)
