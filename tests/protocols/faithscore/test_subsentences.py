from __future__ import annotations

import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.faithscore.annotation import read_annotations
from groundwatch.protocols.faithscore.subsentences import split

ANNOTATION = Path(__file__).parents[4] / "shared" / "data" / "faithscore" / "annotation.jsonl"

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


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("A dog sits, and a cat sleeps. It rains.", ["A dog sits", "and a cat sleeps", "It rains"]),
        ("", []),
        (" \n\t ", []),
        ("... !?", []),
        ("no punctuation here", ["no punctuation here"]),
        ("It is 3.5 m tall, with 1,000 bricks.", ["It is 3.5 m tall", "with 1,000 bricks"]),
        ("There are 3, 4 or 5.", ["There are 3", "4 or 5"]),
        ("Dr. Lee and Mrs. Jones meet at 5 a.m. daily.", ["Dr. Lee and Mrs. Jones meet at 5 a.m. daily"]),
        ("It is 5 p.m. The sun sets.", ["It is 5 p.m", "The sun sets"]),
        ("A portrait of John F. Kennedy.", ["A portrait of John F. Kennedy"]),
        ("A car on side A. The road is wet.", ["A car on side A", "The road is wet"]),
        ("Fruits, e.g. apples.", ["Fruits", "e.g. apples"]),
        ("Well... perhaps… a cat?! Yes.", ["Well", "perhaps", "a cat", "Yes"]),
        ("1. A dog\n2. A cat\n", ["1. A dog", "2. A cat"]),
        ("- a dog\n* a cat\n• a cow", ["a dog", "a cat", "a cow"]),
        ("There are 3. Two are red.", ["There are 3", "Two are red"]),
        ("One line\nanother\r\n\r\nlast", ["One line", "another", "last"]),
        ("A hat.The dog", ["A hat", "The dog"]),
        ("See www.example.com, at 10:30.", ["See www.example.com", "at 10:30"]),
        ('The sign says "Stop." A car waits.', ['The sign says "Stop', "A car waits"]),
        ('"Stop" is written', ['"Stop" is written']),
        ("Objects: a cup; a plate", ["Objects", "a cup", "a plate"]),
        ("A cat — a tabby — sleeps", ["A cat", "a tabby", "sleeps"]),
        ("😀. A smile 😀", ["😀", "A smile 😀"]),
        ("שלום، עולם. כלב", ["שלום", "עולם", "כלב"]),
        ("一只狗，一只猫。", ["一只狗", "一只猫"]),
        ("a \ud800 b, c", ["a \ud800 b", "c"]),
    ],
)
def test_cuts_where_a_reader_would(answer: str, expected: list[str]) -> None:
    assert pieces(answer) == expected


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
def test_a_megabyte_takes_linear_time(unit: str) -> None:
    began = time.process_time()
    split(unit * (1_000_000 // len(unit)))
    assert time.process_time() - began < 10


@pytest.mark.skipif(not ANNOTATION.exists(), reason=f"no annotated answers at {ANNOTATION}")
def test_cuts_where_the_annotators_cut() -> None:
    for annotated in read_annotations(ANNOTATION):
        assert list(dict.fromkeys(pieces(annotated.answer))) == list(annotated.labels)
