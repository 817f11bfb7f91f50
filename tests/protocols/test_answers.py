"""`groundwatch score` on the benchmarks' own files."""

from __future__ import annotations

import msgspec
import pytest
from typer.testing import CliRunner

from groundwatch.cli import app
from groundwatch.errors import FileFormatError, UsageError
from groundwatch.events import ResponseRecorded
from groundwatch.judging.files import read_responses
from groundwatch.records import DEFAULT_LIMITS
from groundwatch_benchmarks.methods.trihe.files import annotate, is_benchmark, read_answers

IMAGE = {
    "instance": [{"question": "Who rides?", "answer": "A man.", "triplet": ["(man, riding, horse)"]}],
    "triplets": ["(man, riding, horse)", "(horse, is, brown)"],
    "all_object": ["man", "horse", "man"],
    "object": ["field"],
}
DOG = "Is there a dog in the image?"


@pytest.fixture
def write(tmp_path):
    def make(name, *lines):
        path = tmp_path / name
        path.write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
        return path

    return make


def answered(**answers):
    return {**IMAGE, "instance": [{**IMAGE["instance"][0], **answers}]}


def test_answers_inside_the_benchmark(write):
    file = write("b.json", {"7": answered(llava="A man rides.")})
    (response,) = read_answers(file)
    assert (response.id, response.model, response.prompt) == ("7-0", "llava", "Who rides?")
    assert response.answer == "A man rides."
    assert response.tags == {"image_id": "7"}
    assert response.reference.triplets == (("man", "riding", "horse"), ("horse", "is", "brown"))
    assert response.reference.objects == ("man", "horse", "field")
    assert is_benchmark(file)


def test_recorded_responses_are_no_benchmark(write):
    assert not is_benchmark(write("r.jsonl", {"id": "1", "model": "m", "answer": "x"}))
    assert not is_benchmark(write("r.jsonl", {}))
    assert read_answers(write("r.jsonl", {})) is None
    with pytest.raises(FileFormatError, match="cannot be read"):
        is_benchmark(write("r.jsonl").with_name("none"))


@pytest.mark.parametrize(
    ("answers", "message"),
    [({}, "no model's answers"), ({"a": "x", "b": "y"}, r"several models \(a, b\)")],
)
def test_one_model_at_a_time(write, answers, message):
    with pytest.raises(FileFormatError, match=message):
        read_answers(write("b.json", {"7": answered(**answers)}))


def test_responses_beside_the_benchmark(write):
    annotation = write("b.json", {"7": IMAGE})

    def read(tags):
        response = ResponseRecorded(id="1", model="m", answer="x", tags=tags)
        return annotate(annotation, annotation, lambda path: [response])

    assert read({"image": "7.jpg"})[0].reference.objects == ("man", "horse", "field")
    with pytest.raises(FileFormatError, match="response '1' names no image"):
        read({})
    with pytest.raises(FileFormatError, match="response '1' names image '8'"):
        read({"image_id": "8"})
    with pytest.raises(UsageError, match="no benchmark with annotations of 'faithscore'; known are"):
        read_responses("faithscore", annotation, annotation, DEFAULT_LIMITS)


def test_pope_beside_its_labels(write):
    labels = write("l.jsonl", {"text": DOG, "label": "no"}, {"text": DOG, "label": "yes"})
    answers = write("a.jsonl", {"answer": "Yes."}, {"answer": "A dog is visible."})
    told = CliRunner().invoke(
        app, ["score", "pope", str(answers), "--annotation", str(labels), "--json"], catch_exceptions=False
    )
    assert told.exit_code == 0
    (model,) = msgspec.json.decode(told.stdout)["models"]
    assert model["score"]["value"] == 0.5


def test_tri_he_is_judged_by_the_calibrated_judge_when_nothing_else_is_asked(write):
    file = write("b.json", {"7": answered(llava="A man is riding a brown horse. A giraffe is eating pizza.")})
    told = CliRunner().invoke(app, ["score", "tri-he", str(file), "--json"], catch_exceptions=False)
    (model,) = msgspec.json.decode(told.stdout)["models"]
    assert model["judges"]["verification"]["engine"] == "calibrated"
    assert model["score"]["value"] == pytest.approx(2 / 3)
