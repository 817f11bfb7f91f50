from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from groundwatch.errors import FileFormatError
from groundwatch.protocols.method import TallyRequest
from groundwatch_benchmarks.methods.trihe.files import read_benchmark, read_triplets
from groundwatch_benchmarks.methods.trihe.suite import TALLY

BENCHMARK = Path(__file__).parents[5] / "shared" / "data" / "tri_he" / "tri-he.json"
KEY = "llava_triplets_judgements"
REPLY = "My answer is 'no'. The error is related to '{}'."


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "results.json"
        path.write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))
        return TallyRequest(file=path)

    return write


def results(*images, key=KEY):
    return {str(at): {"instance": [{key: judged} for judged in image]} for at, image in enumerate(images)}


def test_plain_judgements(file):
    found = TALLY.run("tri-he", file(results([["yes", "no"], ["no"]], [["yes", "null", "yes", "no"], []])))
    assert found["hallu_q"] == pytest.approx((0.5 + 1 + 0.25) / 3)
    assert found["hallu_i"] == pytest.approx((0.75 + 0.25) / 2)
    assert (found["questions"], found["images"], found["without_triplets"]) == (3, 2, 1)
    assert (found["triplets"], found["hallucinated"], found["undecided"]) == (7, 3, 1)
    assert found["judgements"] == KEY
    assert "by_kind" not in found and found["part_not_named"] == 3


@pytest.mark.parametrize(
    "naming",
    [
        lambda part: REPLY.format(part),
        lambda part: f'My answer is "no". The claim has no relation here. The error is related to "{part}".',
        lambda part: f"no, {part}",
        lambda part: f"No ({part})",
        lambda part: ["no", part],
        lambda part: {"part": part, "judgement": "no"},
        lambda part: {"judgement": "no", "part": part},
    ],
)
def test_named_parts_make_kinds(file, naming):
    judged = [naming("object1"), naming("object2"), naming("relation"), "yes"]
    found = TALLY.run("tri-he", file(results([judged, ["yes"]])))
    assert found["by_kind"] == {
        "object": {"hallu_q": 0.25, "hallu_i": 0.25},
        "relation": {"hallu_q": 0.125, "hallu_i": 0.125},
    }
    assert found["hallu_q"] == 0.375
    assert found["part_not_named"] == 0


def test_a_reply_that_says_nothing_is_undecided(file):
    found = TALLY.run(
        "tri-he", file(results([["I would rather not judge this.", None, "no", "no relation"]]))
    )
    assert (found["undecided"], found["part_not_named"], found["hallu_q"]) == (2, 1, 0.5)
    assert "by_kind" not in found


def test_kinds_are_of_all_triplets_or_of_none(file):
    """With one part unnamed, the means of those that are named would be a survivors' share."""
    judged = [["no, object1", "yes"], ["no", "yes"]]
    found = TALLY.run("tri-he", file(results(judged)))
    assert (found["part_not_named"], found["hallu_q"]) == (1, 0.5) and "by_kind" not in found


def test_nothing_judged(file):
    found = TALLY.run("tri-he", file(results([[]])))
    assert (found["hallu_q"], found["hallu_i"], found["questions"]) == (None, None, 0)


LINES = b"""{
 "7": {"instance": [{"llava_triplets_judgements": ["yes"]}]},
 "8": {"instance": [{"llava_triplets_judgements": ["yes"]},
                    {"question": "?"}]}
}"""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LINES, r"results.json:3: image '8', instance 1: key 'llava_triplets_judgements': is missing"),
        (LINES[:154], r"results.json:4: not JSON"),
        (
            LINES.replace(b'"instance": [{"llava', b'"instances": [{"llava', 1),
            r":2: image '7': key 'instance'",
        ),
        (
            LINES.replace(b'["yes"]', b'["maybe"]', 1),
            r":2: image '7', instance 0: key 'llava.*expected yes, no",
        ),
        (LINES.replace(b'["yes"]', b'"yes"', 1), r":2: image '7', instance 0: key .*a list of judgements"),
        (LINES.replace(b"llava", b"shikra", 1), r"judgements of several models \(llava.*, shikra"),
        (LINES.replace(b"_judgements", b""), r"key '…_triplets_judgements': none there"),
        (b"[]", r"results.json:1: expected a JSON object"),
        (b'{"7": 3}', r"image '7': expected `object`"),
        (b'{"7": {"instance": [3]}}', r"image '7': key 'instance\[0\]': expected `object`"),
        (b"\x80\x04.", r"looks like a pickle"),
    ],
)
def test_wrong_files_are_told(file, content, message):
    with pytest.raises(FileFormatError, match=message):
        TALLY.run("tri-he", file(content))


def test_triplets_from_texts():
    assert read_triplets(["(man, riding, horse)", "(man, riding, horse)", "(a, is, red, round)"]) == (
        ("man", "riding", "horse"),
        ("a", "is", "red, round"),
    )
    assert read_triplets(["(trees, indicating, cold,; (sky, indicating, snow)", "nothing"]) == (
        ("trees", "indicating", "cold"),
        ("sky", "indicating", "snow"),
    )


@pytest.mark.skipif(not BENCHMARK.is_file(), reason="the shared Tri-HE file is not on this machine")
def test_the_benchmark_is_read():
    images = read_benchmark(BENCHMARK)
    assert len(images) == 200
    assert sum(len(image.questions) for image in images) == 837
    assert all(len(part) > 0 for image in images for triplet in image.triplets for part in triplet[:2])
