"""`score valor` and `validate valor` as somebody at the terminal meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from groundwatch.cli import app
from groundwatch.errors import (
    EngineBug,
    FileFormatError,
    GroundwatchError,
    InputError,
    TransientError,
    Unscorable,
    UsageError,
)
from groundwatch.matching.engines import SemanticEngine
from groundwatch.models.asking import CallKind

GOLD = Path(__file__).parents[3] / "data" / "valor_matching_gold.jsonl"
SHARED = Path(__file__).parents[5] / "shared" / "data" / "valor"


@pytest.fixture
def run() -> Callable[..., Result]:
    def call(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return call


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_extracted_features_are_matched_and_written(run, tmp_path: Path):
    record = {
        "image_id": 9,
        "gt_words": ["sofa", "man", "woman", "bar stool"],
        "generated_words": ["couch", "people", "chairs", "dragon"],
        "generated_caption": "People on a couch.",
    }
    out = tmp_path / "out.jsonl"
    done = run(
        "score",
        "valor",
        write(tmp_path / "f.jsonl", record),
        "--subset",
        "object-existence",
        "--out",
        out,
        "--json",
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["faithfulness"], found["coverage"], found["responses"]) == (0.75, 0.25, 1)
    assert found["judge"]["engine"] == "semantic"
    (written,) = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert written["matched_objects"] == {"couch": "sofa"}
    assert written["broader_concept"] == {"people": "man", "chairs": "bar stool"}
    assert written["caption"] == "People on a couch."
    again = json.loads(
        run("score", "valor", out, "--recorded", "--subset", "object-existence", "--json").stdout
    )
    assert {key: found[key] for key in again} == again


def wrong_key() -> TransientError:
    error = TransientError("check the settings: answered 401")
    error.kind = CallKind.MISCONFIGURED.value
    return error


def judged_with(run, error: GroundwatchError, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    async def match(engine, extracted, protocol):
        return [error for _ in extracted]

    monkeypatch.setattr(SemanticEngine, "match", match)
    file = write(folder / "f.jsonl", {"image_id": 9, "gt_words": ["sofa"], "generated_words": ["couch"]})
    return run("score", "valor", file, "--subset", "object-existence", "--json")


@pytest.mark.parametrize("error", [InputError("base_url is wrong"), EngineBug("broke"), wrong_key()])
def test_what_no_response_is_to_blame_for_ends_it(run, error, tmp_path: Path, monkeypatch) -> None:
    assert judged_with(run, error, tmp_path, monkeypatch).exception is error


def test_who_judges_is_told_where_nothing_was_judged(run, tmp_path: Path, monkeypatch) -> None:
    done = judged_with(run, Unscorable("refused"), tmp_path, monkeypatch)
    found = json.loads(done.stdout)
    assert (found["unjudged"], found["judge"]["engine"]) == ({"refused": 1}, "semantic")


ANNOTATIONS = {
    "attribute-object": {"7": {"1": "(green, apple)", "2": "(green, apple)", "3": "(white, table)"}},
    "attribute-people": {"7": {"1": {"person": "man", "object": "(blue, jacket), (black, shoes)"}}},
    "relation-positional": {"7": {"0": ["the cup is on the table"], "1": ["the dog is under the table"]}},
    "relation-comparative": {"7": {"1": "table / desk", "2": "apple", "3": "cup"}},
}
ANSWERS = {
    "attribute-object": ("There are two green apples on a white table.", 1.0, 1.0),
    "attribute-people": ("A man wears a blue jacket.", 1.0, 0.5),
    "relation-positional": ("A cup is on the table.", 1.0, 0.5),
    "relation-comparative": ("A desk stands there, with an apple and a cup.", 1.0, 1.0),
}


@pytest.mark.parametrize("subset", list(ANSWERS))
def test_responses_are_judged_by_the_benchmarks_annotation(run, subset: str, tmp_path: Path):
    annotation = tmp_path / "a.json"
    annotation.write_text(json.dumps(ANNOTATIONS[subset]), "utf-8")
    answer, faithfulness, coverage = ANSWERS[subset]
    file = write(tmp_path / "r.jsonl", {"image_id": 7, "text": answer}, {"image_id": 8, "text": answer})
    out = tmp_path / "out.jsonl"
    done = run("score", "valor", file, "--subset", subset, "--annotation", annotation, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["faithfulness"], found["coverage"]) == (faithfulness, coverage)
    assert found["unjudged"] == {"not_annotated": 1}
    again = json.loads(run("score", "valor", out, "--recorded", "--subset", subset, "--json").stdout)
    assert {key: found[key] for key in again} == again


def test_wrong_use_is_told(run, tmp_path: Path):
    file = write(tmp_path / "f.jsonl", {"image_id": 9, "gt_words": ["sofa"]})
    assert "needs a subset" in str(run("score", "valor", file).exception)
    missing = run("score", "valor", file, "--subset", "object-existence").exception
    assert isinstance(missing, FileFormatError) and "f.jsonl:1: key 'generated_words'" in str(missing)
    strange = write(tmp_path / "a.jsonl", {"image_id": 1, "gt_objects": ["sofa"]})
    answers = write(tmp_path / "r.jsonl", {"image_id": 2, "text": "A sofa."})
    none = run("score", "valor", answers, "--subset", "object-existence", "--annotation", strange).exception
    assert isinstance(none, UsageError) and "no response is about an image" in str(none)
    silent = write(tmp_path / "s.jsonl", {"image_id": 1})
    bare = run("score", "valor", silent, "--subset", "object-existence", "--annotation", strange).exception
    assert isinstance(bare, FileFormatError) and "key 'answer'" in str(bare)


def test_agreement_with_the_gold_set_is_printed(run):
    done = run("validate", "valor", GOLD, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["matching"]
    assert found["test"]["accuracy"] >= 0.9 and found["test"]["decisions"] >= 200
    assert "matching: test: accuracy" in run("validate", "valor", GOLD).stdout


@pytest.mark.skipif(not SHARED.exists(), reason=f"needs {SHARED}")
def test_an_annotation_matches_itself(run, tmp_path: Path):
    rows = []
    for line in (SHARED / "object_existence.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        words = sorted(set(record["gt_objects"]))
        rows.append({"image_id": record["image_id"], "gt_words": words, "generated_words": words})
    done = run("score", "valor", write(tmp_path / "f.jsonl", *rows), "--subset", "object-existence", "--json")
    found = json.loads(done.stdout)
    assert (found["faithfulness"], found["coverage"], found["responses"]) == (1.0, 1.0, 50)
