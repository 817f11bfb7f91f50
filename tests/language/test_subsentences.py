from __future__ import annotations

import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import cases

from groundwatch.language.subsentences import split
from groundwatch_benchmarks.methods.faithscore.suite import read_annotations

CASES = cases(__file__)
ANNOTATION = Path(__file__).parents[3] / "shared" / "data" / "faithscore" / "annotation.jsonl"

answers = st.one_of(
    st.text(max_size=200),
    st.text(alphabet="aB1 .,;:!?\n\"'()-—…،。\ud800😀", max_size=200),
    st.lists(
        st.sampled_from(
            ["Dr.", "a.m.", "3.5", "1,000", "...", "a dog", "The", "\n", "1.", "- ", "e.g.", "שלום,", " "]
        )
    ).map(" ".join),
)


def pieces(answer: str) -> list[str]:
    return [answer[span.start : span.end] for span in split(answer)]


def test_cuts_where_a_reader_would() -> None:
    assert [[answer, pieces(answer)] for answer, _ in CASES["cuts"]] == CASES["cuts"]


@given(answers)
def test_spans_are_ordered_disjoint_and_trimmed(answer: str) -> None:
    at = 0
    for span in split(answer):
        assert at <= span.start < span.end <= len(answer)
        text = answer[span.start : span.end]
        assert text == text.strip()
        at = span.end


@given(answers)
def test_only_punctuation_and_white_space_is_left_out(answer: str) -> None:
    left = list(answer)
    for span in split(answer):
        left[span.start : span.end] = [""] * (span.end - span.start)
    for character in "".join(left):
        category = unicodedata.category(character)
        assert character.isspace() or category[0] == "P", (character, category)


@pytest.mark.parametrize(
    "unit", ["a cat, a dog. ", ".", "a.b", "(", "- ", ")", " ", "x", "1,", "J. ", "\n1. ", "a.", "é,\n", '."']
)
@pytest.mark.slow
def test_a_megabyte_takes_linear_time(unit: str) -> None:
    began = time.process_time()
    split(unit * (1_000_000 // len(unit)))
    assert time.process_time() - began < 10


@pytest.mark.skipif(not ANNOTATION.exists(), reason=f"no annotated answers at {ANNOTATION}")
def test_cuts_where_the_annotators_cut() -> None:
    for annotated in read_annotations(ANNOTATION):
        assert list(dict.fromkeys(pieces(annotated.answer))) == list(annotated.labels)
