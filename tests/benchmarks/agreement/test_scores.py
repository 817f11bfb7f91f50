"""`groundwatch validate scores`: what people say of whole answers beside what the judges made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import FileFormatError, GroundwatchError
from groundwatch.events import Decision, Judge, JudgedClaim, OutcomeKind, ResponseScored
from groundwatch_benchmarks.agreement.scores import (
    FoundObjects,
    PersonsScores,
    object_accuracy,
    score_agreement,
)
from groundwatch_benchmarks.json_files import read_lines


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_command_tells_outcomes_and_people(nobody, written, tmp_path):
    """CHAIR's outcomes beside what people say: VALOR-Eval's tables 4 and 6 in small."""
    answers = {"1": "A puppy on a sofa.", "2": "A cat and a dog.", "3": "A cat, a mug and a dog."}
    there = {"objects": ["dog", "couch", "cup"]}
    responses = written(
        *({"id": name, "model": "m", "answer": said, "reference": there} for name, said in answers.items())
    )
    out = tmp_path / "out.jsonl"
    nobody.json("score", "chair", responses, "--out", out)
    people = written(
        {"id": "1", "scores": {"faithfulness": 1.0}, "mentioned": ["puppy", "sofa"]},
        {"id": "2", "scores": {"faithfulness": 0.5}, "mentioned": ["cat", "dog"], "hallucinated": ["cat"]},
        {"id": "3", "scores": {"faithfulness": 0.8}},
    )
    (found,) = nobody.json("validate", "scores", out, people)["agreement"]
    assert (found["protocol"], found["model"], found["answers"]) == ("chair", "m", 3)
    assert found["scores"]["faithfulness"]["pearson"]["value"] == pytest.approx(0.954, abs=0.001)
    assert (found["accuracy_faithfulness"]["value"], found["accuracy_coverage"]["value"]) == (1.0, 1.0)
    assert found["accuracy_coverage"]["n"] == 2
    shown = nobody("validate", "scores", out, people).stdout
    assert "faithfulness: pearson" in shown and "Acc (F)" in shown


def found_objects(detected: str, flagged: str, mentioned: str, hallucinated: str) -> FoundObjects:
    return FoundObjects(
        detected=frozenset(detected),
        flagged=frozenset(flagged),
        mentioned=frozenset(mentioned),
        hallucinated=frozenset(hallucinated),
    )


def test_a_wrong_flag_costs_a_right_one():
    found = object_accuracy([found_objects("ab", "ab", "abc", "a"), found_objects("c", "", "cd", "d")])
    assert found == (0.0, 3 / 5)
    assert object_accuracy([found_objects("a", "ab", "a", "c")])[0] == -2.0
    assert object_accuracy([])[0] is None


NAMES = st.frozensets(st.sampled_from("abcdef"))


@given(st.lists(st.builds(FoundObjects, detected=NAMES, flagged=NAMES, mentioned=NAMES, hallucinated=NAMES)))
def test_no_accuracy_passes_one(answers):
    faithfulness, coverage = object_accuracy(answers)
    assert faithfulness is None or faithfulness <= 1
    assert coverage is None or 0 <= coverage <= 1


def scored(name: str, *claims: JudgedClaim, **changes: Any) -> ResponseScored:
    told: dict[str, Any] = {
        "id": name,
        "model": "m",
        "protocol": "valor-object-existence",
        "outcome": OutcomeKind.SCORED,
        "claims": claims,
    }
    return ResponseScored(**(told | changes))


def said(tmp_path: Path, *rows: dict[str, object]):
    return read_lines(write(tmp_path / "people.jsonl", *rows), PersonsScores)


def test_scores_are_held_against_peoples_of_the_same_name(tmp_path: Path):
    pytest.importorskip("scipy")
    automatic = [0.2, 0.4, 0.9, 0.5]
    outcomes = [
        scored(str(at), score=value, values={"coverage": 1 - value}) for at, value in enumerate(automatic)
    ]
    outcomes += [scored("0", model="other", score=1.0), scored("not asked about")]
    rows = [
        {"id": str(at), "scores": {"score": 10 * value, "coverage": value, "else": 1.0}}
        for at, value in enumerate(automatic)
    ]
    mine, other = score_agreement(said(tmp_path, *rows), outcomes)
    assert (mine.model, mine.answers, other.model, other.answers) == ("m", 4, "other", 1)
    assert mine.scores["score"]["pearson"] is not None
    assert mine.scores["score"]["pearson"].value == pytest.approx(1.0)
    assert mine.scores["score"]["pearson"].n == 4
    assert mine.scores["coverage"]["kendall"].value == pytest.approx(-1.0)
    assert set(mine.scores["else"].values()) == {None} == set(other.scores["score"].values())
    assert mine.accuracy_coverage is None


def test_objects_go_by_the_names_that_people_give_them(tmp_path: Path):
    pytest.importorskip("scipy")

    def claim(text: str, decision: Decision, *parts: str) -> JudgedClaim:
        return JudgedClaim(text=text, category="object", unit=0, decision=decision, parts=parts)

    outcome = scored(
        "1",
        claim("puppy", Decision.SUPPORTED, "dog"),
        claim("Cat", Decision.REFUTED, "cat"),
        claim("kite", Decision.REFUTED, "kite"),
        values={"mentioned": 3},
    )
    row = {"id": "1", "mentioned": ["dog", "cat", "lamp", "kite"], "hallucinated": ["cat", "lamp"]}
    (found,) = score_agreement(said(tmp_path, row), [outcome])
    assert found.accuracy_faithfulness is not None and found.accuracy_coverage is not None
    assert found.accuracy_faithfulness.value == 0.0, "the cat, less the kite, which is there"
    assert found.accuracy_coverage.value == 3 / 4
    silent = [scored("1", values={"coverage": 0.0}), scored("2")]
    (found,) = score_agreement(said(tmp_path, row, row | {"id": "2"}), silent)
    assert (found.accuracy_coverage.value, found.accuracy_coverage.n) == (0.0, 1), "the second was not judged"


def test_what_people_say_of_nobody_or_twice_is_refused(tmp_path: Path):
    row = {"id": "1"}
    with pytest.raises(FileFormatError, match=r"people.jsonl:2: key 'id': response '1' is in line 1 already"):
        score_agreement(said(tmp_path, row, row), [scored("1")])
    with pytest.raises(
        FileFormatError, match=r"people.jsonl:1: key 'id': there is no outcome of response '1'"
    ):
        score_agreement(said(tmp_path, row), [scored("2")])
    judges = [{"matching": Judge(engine=name)} for name in ("semantic", "llm")]
    with pytest.raises(GroundwatchError, match="answers of m had different judges at matching"):
        score_agreement(
            said(tmp_path, row, {"id": "2"}),
            [scored(str(at), judges=one) for at, one in enumerate(judges, start=1)],
        )
