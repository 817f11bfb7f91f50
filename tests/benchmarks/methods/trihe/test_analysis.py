"""Tri-HE's recorded judgements: table 4 and figure 4 from outcomes and from the works' own results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from groundwatch.cli import app
from groundwatch.errors import FileFormatError, UsageError
from groundwatch.events import (
    Decision,
    JudgedClaim,
    Label,
    OutcomeKind,
    ResponseScored,
    SubSentence,
)
from groundwatch_benchmarks.methods.trihe import analysis


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["score", "tri-he", *map(str, arguments), "--recorded"])


def outcome(number: int, *claims: tuple[tuple[str, str, str], int, str]) -> ResponseScored:
    texts = ["A dog runs on grass", " while a big red car waits there"]
    return ResponseScored(
        id=str(number),
        model="m",
        protocol="tri-he",
        outcome=OutcomeKind.SCORED,
        tags={"image_id": "1.jpg" if number < 2 else "2.jpg"},
        units=tuple(SubSentence(start=0, end=1, text=text, label=Label.DESCRIPTIVE) for text in texts),
        claims=tuple(
            JudgedClaim(
                text=" ".join(parts),
                category="relation",
                unit=unit,
                decision=Decision.REFUTED if wrong else Decision.SUPPORTED,
                evidence=f"wrong: {wrong}; why" if wrong else "",
                parts=parts,
            )
            for parts, unit, wrong in claims
        ),
    )


@pytest.fixture
def outcomes(tmp_path: Path) -> Path:
    """ "dog – grass" is the one frequent pair of five, said three times, in the words of one synset."""
    found = [
        outcome(0, (("dog", "on", "grass"), 0, ""), (("auto", "near", "tree"), 1, "object1")),
        outcome(1, (("Dogs", "running on", "grass"), 0, "relation"), (("cat", "in", "box"), 1, "")),
        outcome(
            2,
            (("a dog", "on", "grass"), 0, "relation"),
            (("man", "has", "hat"), 1, ""),
            (("car", "in", "street"), 1, ""),
        ),
    ]
    file = tmp_path / "out.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in found))
    return file


def test_pairs_by_synset_and_first_tokens(outcomes: Path):
    done = run(outcomes, "--tokens", "4,5,12", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    pairs = found["pairs"]
    assert (pairs["different"], pairs["frequent"]) == (5, 1)
    assert pairs["most_frequent"] == [{"pair": ["dog", "grass"], "said": 3}]
    assert pairs["on_frequent"]["overall"]["hallu_q"] == pytest.approx(2 / 3)
    assert pairs["on_frequent"]["object"]["hallu_q"] == 0
    assert pairs["on_frequent"]["relation"]["hallu_i"] == pytest.approx((0.5 + 1) / 2)
    assert pairs["on_others"]["object"]["hallu_q"] == pytest.approx(1 / 3)
    by_tokens = {one["k"]: one for one in found["by_tokens"]}
    assert by_tokens[4]["hallu_q"] is None and by_tokens[4]["questions"] == 0
    assert by_tokens[5]["hallu_q"] == pytest.approx(2 / 3)
    assert by_tokens[12]["hallu_q"] == found["overall"]["overall"]["hallu_q"]
    shown = run(outcomes, "--share", 0.2)
    assert "most_frequent 1: pair 2" in shown.stdout and "by_tokens 1: k" in shown.stdout
    for row in (
        "pairs: most_frequent 1: pair 1 +dog",
        "pairs: most_frequent 1: pair 2 +grass",
        "pairs: most_frequent 1: said +3",
        "pairs: on_frequent: overall: hallu_q +0.6667",
        "by_tokens 1: k +10",
        "by_tokens 1: hallu_q +0.6667",
    ):
        assert re.search(rf"{row} *\n", shown.stdout), row
    assert "how_early_said" not in shown.stdout


def test_names_of_one_synset_are_one():
    assert analysis.synset("auto") == analysis.synset("Cars") == "car"
    assert analysis.synset("zzyzx thing") == analysis.synset("Zzyzx thing")


def test_the_works_own_results_have_no_places(tmp_path: Path):
    file = tmp_path / "result.json"
    instance = {
        "m_triplets": ["(dog, on, grass)", "(cat, in, box)"],
        "m_triplets_judgements": ["no, relation", "yes"],
    }
    file.write_text(json.dumps({"1": {"instance": [instance]}}, indent=1))
    found = json.loads(run(file, "--share", 0.2, "--json").stdout)
    assert found["by_tokens"] is None
    assert found["overall"]["overall"]["hallu_q"] == 0.5
    assert found["pairs"]["different"] == 2
    shown = run(file, "--share", 0.2).stdout
    assert re.search(r"by_tokens +–", shown)
    assert re.search(r"how_early_said +not known from this file *\n", shown)


def test_nothing_judged_gives_no_numbers(tmp_path: Path):
    file = tmp_path / "none.jsonl"
    declined = {"id": "1", "model": "m", "protocol": "tri-he", "outcome": "declined"}
    file.write_text(json.dumps(declined) + "\n")
    found = json.loads(run(file, "--share", 0.2, "--json").stdout)
    assert found["overall"]["overall"]["hallu_q"] is None and found["pairs"]["frequent"] == 0


def test_wrong_use_and_wrong_files_are_told(outcomes: Path, tmp_path: Path):
    def lines(**changes: object) -> Path:
        file = tmp_path / "wrong.jsonl"
        good = json.loads(outcomes.read_text().splitlines()[0])
        file.write_text(outcomes.read_text().splitlines()[0] + "\n" + json.dumps(good | changes) + "\n")
        return file

    for arguments, kind, told in (
        ([outcomes, "--share", 0], UsageError, "share 0.0"),
        ([outcomes, "--tokens", "ten"], UsageError, "--tokens ten"),
        ([outcomes, "--tokens", "0,5"], UsageError, "--tokens"),
        ([tmp_path / "no.jsonl", "--share", 0.5], FileFormatError, "cannot be read"),
    ):
        done = run(*arguments)
        assert isinstance(done.exception, kind) and told in str(done.exception)
    for changes, told in (
        ({"protocol": "pope"}, "key 'protocol': expected tri-he, not pope"),
        ({"claims": 3}, "key 'claims'"),
        ({"claims": [{"decision": "maybe"}]}, "key 'claims[0]"),
        ({"tags": []}, "key 'tags'"),
        ({"outcome": None}, "key 'outcome'"),
    ):
        done = run(lines(**changes), "--share", 0.2)
        assert isinstance(done.exception, FileFormatError)
        assert f"wrong.jsonl:2: {told}" in str(done.exception)
