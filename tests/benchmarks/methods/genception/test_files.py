from __future__ import annotations

import pickle

import pytest

from groundwatch.errors import FileFormatError, UsageError
from groundwatch.protocols.method import TallyRequest
from groundwatch_benchmarks.methods.genception.suite import TALLY

GOOD = """[
  {"image": "a.jpg", "category": "count", "cosine_similarities": [1.0, 0.9, 0.6, 0.3]},
  {"image": "b.jpg", "category": "ocr", "cosine_similarities": [1, 0.5, 0.5, 0.5]},
  {"image": "c.jpg", "cosine_similarities": [1.0, 0.1]}
]"""


@pytest.fixture
def file(tmp_path):
    def write(text: str | bytes, t: int | None = 3):
        path = tmp_path / "chains.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return TallyRequest(file=path, t=t)

    return write


def test_numbers(file):
    found = TALLY.run("genception", file(GOOD))
    assert found["gc"] == pytest.approx(0.5)
    assert (found["n"], found["short"], found["t"]) == (2, 1, 3)
    assert found["by_category"] == {
        "count": {"gc": pytest.approx(0.5), "n": 1, "short": 0},
        "ocr": {"gc": pytest.approx(0.5), "n": 1, "short": 0},
    }
    assert [point["n"] for point in found["drift"]] == [3, 2, 2]
    assert TALLY.run("genception", file(GOOD, 1))["gc"] == pytest.approx(0.5)


def test_models_are_told_apart_and_ranked(file):
    text = GOOD.replace('"image": "a.jpg"', '"image": "a.jpg", "model": "x"')
    text = text.replace(
        '"image": "b.jpg", "category": "ocr"', '"image": "b.jpg", "model": "y", "category": "count"'
    )
    found = TALLY.run("genception", file(text[: text.index(',\n  {"image": "c')] + "]"))
    assert {name: one["n"] for name, one in found["by_model"].items()} == {"x": 1, "y": 1}
    assert found["ranking"]["gc_rank"] == {"x": 1.0, "y": 1.5}
    assert "ranking" not in TALLY.run("genception", file(GOOD))


def test_no_chain_is_long_enough(file):
    found = TALLY.run("genception", file(GOOD, 4))
    assert (found["gc"], found["n"], found["short"]) == (None, 0, 3)
    assert TALLY.run("genception", file("[]"))["gc"] is None


def test_t_is_needed_and_positive(file):
    with pytest.raises(UsageError, match="need t: how many"):
        TALLY.run("genception", file(GOOD, None))
    with pytest.raises(UsageError, match="GC@T needs at least one"):
        TALLY.run("genception", file(GOOD, 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD[:120], r"chains.json:3: not JSON"),
        (GOOD.replace("0.6", "oops"), r"chains.json:2: not JSON"),
        ("{}", r"chains.json:1: expected a JSON list"),
        ("", r"chains.json:1: not JSON"),
        (GOOD.replace('"image": "c.jpg", ', ""), r"chains.json:4: item 3: key 'image': is missing"),
        (
            GOOD.replace("similarities", "similarity", 2),
            r"chains.json:2: item 1: key 'cosine_similarities': is missing",
        ),
        (GOOD.replace("0.6", "6"), r"chains.json:2: .*key 'cosine_similarities': 6 is no cosine"),
        (GOOD.replace("0.6", "true"), r"key 'cosine_similarities\[2\]': expected `float`, got `bool`"),
        (GOOD.replace("[1, 0.5", "[0.5"), r"chains.json:3: .*must begin with 1.0"),
        ('["a"]', r"item 1: expected `object`"),
        (pickle.dumps([1.0, 0.5]), r"looks like a pickle, which is never loaded"),
    ],
)
def test_wrong_files_are_told(file, text, message):
    with pytest.raises(FileFormatError, match=message):
        TALLY.run("genception", file(text))
