"""VALOR's files: every annotation file, every subset's records, and everything that can be wrong."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from groundwatch.errors import FileFormatError, UsageError
from groundwatch.protocols.method import TallyRequest
from groundwatch.protocols.valor.scoring import Subset
from groundwatch_benchmarks.json_files import write_lines
from groundwatch_benchmarks.methods.valor.files import (
    after_matching,
    read_annotations,
    read_matched,
    read_unmatched,
    subset_of,
)
from groundwatch_benchmarks.methods.valor.suite import TALLY

SHARED = Path(__file__).parents[5] / "shared" / "data" / "valor"
FILES = {
    Subset.OBJECT_EXISTENCE: ("object_existence.jsonl", 50),
    Subset.ATTRIBUTE_OBJECT: ("attribute_object.json", 27),
    Subset.ATTRIBUTE_PEOPLE: ("attribute_people.json", 35),
    Subset.RELATION_POSITIONAL: ("relation_positional.json", 50),
    Subset.RELATION_COMPARATIVE: ("relation_comparative.json", 40),
}
RECORDS = {
    Subset.OBJECT_EXISTENCE: {
        "gt_words": ["sofa", "man"],
        "generated_words": ["couch", "people"],
        "matched_objects": {"couch": "sofa"},
        "broader_concept": {"people": "man"},
    },
    Subset.ATTRIBUTE_OBJECT: {
        "gt_obj_atts": {"1": "(red, apple)", "2": "(white, bag), (black, bag)"},
        "generated_obj_atts": {"1": "(red, apple)", "2": "(black, container)"},
        "matched_att_obj": {"1": {"(red, apple)": "(red, apple)"}},
        "broader_concept": {"2": {"(black, container)": "(black, bag)"}},
    },
    Subset.ATTRIBUTE_PEOPLE: {
        "gt_obj_atts": {"1": {"person": "man", "object": "(red, hat), (blue, jeans)", "action": "standing"}},
        "generated_obj_atts": {"1": {"person": "man", "object": "(red, hat), (blue, clothes)"}},
        "matched_att_obj": {"1": {"person": {"man": "man"}, "object": {"(red, hat)": "(red, hat)"}}},
        "broader_concept": {"1": {"person": {}, "object": {"(blue, clothes)": "(blue, jeans)"}}},
    },
    Subset.RELATION_POSITIONAL: {
        "gt_words": {"0": ["cup is left of jug", "jug is right of cup"], "1": ["jug is on table"]},
        "generated_words": {"relations": ["jug is right of cup", "jug is near table"]},
        "matched_objects": {"jug is right of cup": "jug is right of cup"},
        "broader_concept": {"jug is near table": "jug is on table"},
    },
    Subset.RELATION_COMPARATIVE: {
        "gt_words": {"1": "ground / court", "2": "man"},
        "generated_words": {"2": "person", "1": "court"},
        "matched_objects": {"court": "court"},
        "broader_concept": {"person": "man"},
    },
}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def run(path: Path, subset: str) -> dict[str, object]:
    return TALLY.run("valor", TallyRequest(file=path, subset=subset))


@pytest.mark.parametrize("subset", list(Subset))
def test_each_subset_is_tallied(subset: Subset, tmp_path: Path):
    found = run(write(tmp_path / "m.jsonl", {"image_id": 7, **RECORDS[subset]}), subset)
    assert (found["faithfulness"], found["coverage"]) == (1.0, 0.5)
    assert (found["faithfulness_mean"], found["coverage_mean"], found["responses"]) == (1.0, 0.5, 1)
    assert (found["unscored"], found["stray"]) == (0, 0)


@pytest.mark.parametrize("subset", list(Subset))
@pytest.mark.parametrize("left_out", ["image_id", "gt", "generated", "matched", "broader_concept"])
def test_a_missing_key_is_named_with_its_line(subset: Subset, left_out: str, tmp_path: Path):
    record = {"image_id": "7", **RECORDS[subset]}
    key = next(key for key in record if key.startswith(left_out))
    path = write(tmp_path / "m.jsonl", record, {name: record[name] for name in record if name != key})
    with pytest.raises(FileFormatError, match=f"m.jsonl:2: key '{key}'"):
        run(path, subset)


@pytest.mark.parametrize("line", ['{"image_id": "7", "gt_wo', "[]", "\x80\x04K", '{"image_id": true}'])
def test_a_line_that_is_no_record_is_named(line: str, tmp_path: Path):
    path = write(tmp_path / "m.jsonl", {"image_id": "1", **RECORDS[Subset.OBJECT_EXISTENCE]})
    path.write_bytes(path.read_bytes() + b"\n" + line.encode("latin-1"))
    with pytest.raises(FileFormatError, match=r"m\.jsonl:3: "):
        run(path, "object-existence")


@pytest.mark.parametrize(
    ("subset", "key", "value"),
    [
        ("object-existence", "gt_words", "sofa"),
        ("object-existence", "generated_words", ["sofa", 3]),
        ("object-existence", "matched_objects", ["sofa"]),
        ("object-existence", "broader_concept", {"people": 1}),
        ("attribute-object", "gt_obj_atts", {"1": "red apple"}),
        ("attribute-people", "generated_obj_atts", {"1": {"object": 3}}),
        ("relation-positional", "gt_words", {"0": []}),
        ("relation-comparative", "generated_words", {"first": "man"}),
    ],
)
def test_a_wrong_value_is_named_with_its_key(subset: str, key: str, value: object, tmp_path: Path):
    path = write(tmp_path / "m.jsonl", {"image_id": "1", **RECORDS[Subset(subset)], key: value})
    with pytest.raises(FileFormatError, match=f"m.jsonl:1: key '{key}'"):
        run(path, subset)


def test_a_response_without_features_is_unscored(tmp_path: Path):
    record = {**RECORDS[Subset.RELATION_COMPARATIVE], "image_id": "1", "generated_words": ""}
    path = write(tmp_path / "m.jsonl", {**record, "matched_objects": {}, "broader_concept": {}})
    found = run(path, "relation-comparative")
    assert (found["faithfulness"], found["coverage"], found["unscored"]) == (None, 0.0, 1)


def test_an_unknown_subset_lists_all(tmp_path: Path):
    with pytest.raises(UsageError, match=r"object-existence, .*relation-comparative"):
        subset_of("objects")
    with pytest.raises(UsageError, match="need subset"):
        TALLY.run("valor", TallyRequest(file=tmp_path))


def test_attributes_may_stand_under_the_common_names(tmp_path: Path):
    record = RECORDS[Subset.ATTRIBUTE_OBJECT]
    names = ("gt_words", "generated_words", "matched_objects", "broader_concept")
    path = write(tmp_path / "m.jsonl", {"image_id": "1", **dict(zip(names, record.values(), strict=True))})
    assert run(path, "attribute-object")["faithfulness"] == 1.0


@pytest.mark.parametrize("subset", list(Subset))
def test_what_is_written_after_matching_reads_as_the_same(subset: Subset, tmp_path: Path):
    record = {"image_id": "7", "generated_caption": "A text.", **RECORDS[subset]}
    before = write(tmp_path / "b.jsonl", {k: v for k, v in record.items() if not k.startswith("matched")})
    expected = next(read_matched(write(tmp_path / "m.jsonl", record), subset))
    unmatched = next(read_unmatched(before, subset))
    again = after_matching(unmatched, expected.matched, expected.broader, subset)
    assert again["caption"] == "A text."
    write_lines(tmp_path / "a.jsonl", [again])
    assert next(read_matched(tmp_path / "a.jsonl", subset)) == expected


@pytest.mark.skipif(not SHARED.exists(), reason=f"needs {SHARED}")
@pytest.mark.parametrize("subset", list(Subset))
def test_the_benchmarks_own_annotations_are_read(subset: Subset):
    name, images = FILES[subset]
    found = read_annotations(SHARED / name, subset)
    assert len(found) == images
    assert all(one.reference and all(all(wordings) for wordings in one.reference) for one in found)


@pytest.mark.skipif(not SHARED.exists(), reason=f"needs {SHARED}")
def test_all_kinds_of_alternatives_are_seen():
    ranked = read_annotations(SHARED / FILES[Subset.RELATION_COMPARATIVE][0], Subset.RELATION_COMPARATIVE)
    assert ("ground / court", "ground", "court") in {one for image in ranked for one in image.reference}
    bags = read_annotations(SHARED / FILES[Subset.ATTRIBUTE_OBJECT][0], Subset.ATTRIBUTE_OBJECT)
    assert any(len(one) == 4 for image in bags for one in image.reference)


def test_a_wrong_annotation_is_named(tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_text('{\n "1": {"1": "sky"},\n "2": {"0": 3}\n}', "utf-8")
    with pytest.raises(FileFormatError, match=r"a\.json:3: key '2'"):
        read_annotations(path, Subset.RELATION_POSITIONAL)
    path.write_text('{\n "1": {"1": ', "utf-8")
    with pytest.raises(FileFormatError, match=r"a\.json:2: not JSON"):
        read_annotations(path, Subset.RELATION_POSITIONAL)
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_annotations(tmp_path / "none.jsonl", Subset.OBJECT_EXISTENCE)


def test_a_pickle_is_never_loaded(tmp_path: Path):
    path = tmp_path / "chair.pkl"
    path.write_bytes(pickle.dumps({"image_id": "1"}))
    with pytest.raises(FileFormatError, match="pickle"):
        run(path, "object-existence")
