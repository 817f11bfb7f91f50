from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from groundwatch.errors import FileFormatError
from groundwatch.protocols.method import TallyRequest
from groundwatch_benchmarks.methods.pope.suite import TALLY

SHARED = Path(__file__).parents[5] / "shared" / "data" / "pope"
LABELS = [("Is there a dog in the image?", "yes"), ("Is there a cat in the image?", "no")] * 2


@pytest.fixture
def files(tmp_path):
    def write(answers, labels=None):
        if labels is None:
            labels = [{"text": text, "label": label} for text, label in LABELS]
        paths = tmp_path / "answers.jsonl", tmp_path / "labels.jsonl"
        for path, lines in zip(paths, (answers, labels), strict=True):
            path.write_bytes(
                b"\n".join(line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines)
            )
        return TallyRequest(file=paths[0], labels=paths[1])

    return write


def test_numbers(files):
    replies = ["Yes.", "There is a cat.", "No", "Not sure"]
    found = TALLY.run("pope", files([{"answer": reply} for reply in replies]))
    assert {name: found[name] for name in ("tp", "fp", "tn", "fn")} == {"tp": 1, "fp": 1, "tn": 0, "fn": 1}
    assert found["accuracy"] == pytest.approx(1 / 3)
    assert (found["questions"], found["unscored"]) == (4, 1)
    assert found["unscored_by_reason"] == {"unsure_reply": 1}
    assert found["as_published"]["fp"] == 2


def test_ids_pair_lines_in_any_order(files):
    labels = [{"question_id": at, "text": text, "label": label} for at, (text, label) in enumerate(LABELS)]
    answers = [{"question_id": at, "text": LABELS[at][1]} for at in (2, 0, 3, 1)]
    assert TALLY.run("pope", files(answers, labels))["accuracy"] == 1


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([{"answer": "yes"}] * 3, r"labels.jsonl:4: no counterpart: 3 answers for 4 labels"),
        ([{"answer": "yes"}] * 5, r"answers.jsonl:5: no counterpart"),
        ([{"answer": "yes"}, {"reply": "no"}] * 2, r"answers.jsonl:2: key 'answer': is missing"),
        ([{"answer": "yes"}] * 3 + [{"answer": 1}], r"answers.jsonl:4: key 'answer': expected"),
        ([{"answer": "yes"}] * 3 + [b'{"answer": "y'], r"answers.jsonl:4: not JSON"),
        ([{"answer": "yes"}] * 3 + [["yes"]], r"answers.jsonl:4: expected a JSON object"),
        ([], r"answers.jsonl:1: is empty"),
        ([b"\x80\x04."], r"looks like a pickle"),
        (
            [{"answer": "no", "question": text} for text, _ in reversed(LABELS)],
            r"answers.jsonl:1: key 'question': is not the question",
        ),
    ],
)
def test_wrong_answers_are_told_with_their_line(files, answers, message):
    with pytest.raises(FileFormatError, match=message):
        TALLY.run("pope", files(answers))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ({"text": "?", "label": "perhaps"}, "labels.jsonl:4: key 'label': expected yes or no"),
        ({"text": "?"}, "labels.jsonl:4: key 'label': is missing"),
    ],
)
def test_wrong_labels_are_told_with_their_line(files, label, message):
    labels = [{"text": text, "label": label} for text, label in LABELS[:3]]
    with pytest.raises(FileFormatError, match=message):
        TALLY.run("pope", files([{"answer": "yes"}] * 4, [*labels, label]))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([0, 1, 1, 2], "answers.jsonl:3: key 'question_id': 1 is there twice"),
        ([0, 1, 2, 9], "key 'question_id': 3 has no answer"),
        ([0, 1, 2, 3, 4], "answers.jsonl:5: key 'question_id': 4 has no label"),
    ],
)
def test_ids_must_fit(files, names, message):
    labels = [{"question_id": at, "text": text, "label": label} for at, (text, label) in enumerate(LABELS)]
    with pytest.raises(FileFormatError, match=message):
        TALLY.run("pope", files([{"question_id": at, "answer": "yes"} for at in names], labels))


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(FileFormatError, match="cannot be read"):
        TALLY.run("pope", TallyRequest(file=tmp_path / "no", labels=tmp_path / "none"))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared POPE files are not on this machine")
@pytest.mark.parametrize("strategy", ["random", "popular", "adversarial"])
def test_published_labels_tally(files, strategy):
    labels = [msgspec.json.decode(line) for line in (SHARED / f"coco_pope_{strategy}.jsonl").open("rb")]
    found = TALLY.run("pope", files([{"answer": "Yes"}] * len(labels), labels))
    assert (found["yes_ratio"], found["accuracy"], found["recall"]) == (1, pytest.approx(0.5, abs=0.01), 1)
