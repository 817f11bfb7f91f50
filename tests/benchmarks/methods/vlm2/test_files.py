from __future__ import annotations

import msgspec
import pytest

from groundwatch.errors import FileFormatError
from groundwatch.protocols.method import TallyRequest
from groundwatch_benchmarks.methods.vlm2.suite import TALLY


def record(sequence="1", task="count", coarse=("3", 3), fine=(("yes", "yes"), ("no", True))):
    def asked(pair):
        return {"question": "?", "answer": pair[0], "truth": pair[1]}

    return {"sequence": sequence, "task": task, "coarse": asked(coarse), "fine": [asked(one) for one in fine]}


@pytest.fixture
def file(tmp_path):
    def write(*lines):
        path = tmp_path / "vlm2.jsonl"
        path.write_bytes(
            b"\n".join(line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines)
        )
        return TallyRequest(file=path)

    return write


def test_numbers(file):
    found = TALLY.run(
        "vlm2",
        file(
            record(),
            record("2", coarse=("4", 3)),
            record("3", "match", ("yes", "yes"), [("yes", "yes")]),
            record("4", "match", ("perhaps", "yes")),
        ),
    )
    assert (found["score_sum"], found["score_mean"], found["read_mean"]) == (1.5, 0.375, 0.5)
    assert (found["sequences"], found["unscored"], found["unread"]) == (4, 0, 1)
    assert found["coverage"] == pytest.approx(10 / 11)
    assert found["by_task"]["count"]["score_sum"] == 0.5
    assert found["by_task"]["match"]["score_mean"] == 0.5


def without(key):
    found = record()
    del found[key]
    return found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"sequence": "9", "ta', "vlm2.jsonl:2: not JSON"),
        (without("coarse"), "vlm2.jsonl:2: key 'coarse': is missing"),
        (without("task"), "vlm2.jsonl:2: key 'task': is missing"),
        (without("fine"), "vlm2.jsonl:2: key 'fine': is missing"),
        (
            {**record("2"), "fine": [{"question": "?", "answer": "yes"}]},
            r"key 'fine\[0\].truth': is missing",
        ),
        ({**record("2"), "fine": ["yes"]}, r"key 'fine\[0\]': expected `object`"),
        ({**record("2"), "coarse": {"question": "?", "truth": "3"}}, "key 'coarse.answer': is missing"),
        (record(), "key 'sequence': 1 is there twice in task 'count'"),
    ],
)
def test_wrong_lines_are_told(file, line, message):
    with pytest.raises(FileFormatError, match=message):
        TALLY.run("vlm2", file(record(), line))
