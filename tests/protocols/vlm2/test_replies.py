"""Replies about sequences: yes or no, numbers, choices, words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import cases

from groundwatch.protocols.vlm2.replies import is_right, read_choice, read_number

CASES = cases(__file__)


def test_reading() -> None:
    assert [[reply, truth, is_right(reply, truth)] for reply, truth, _ in CASES["replies"]] == CASES[
        "replies"
    ]


@given(st.text(max_size=120), st.sampled_from(["yes", "no", "3", "B", "red"]))
def test_any_text_is_read_without_fail(reply, truth):
    assert is_right(reply, truth) in (True, False, None)


@given(st.integers(0, 20))
def test_numbers_come_back(number):
    assert read_number(f"I count {number} of them.") == number


@given(st.sampled_from("ABCDEFGH"))
def test_choices_come_back(letter):
    assert read_choice(f"({letter})") == letter.casefold()
    assert read_choice(f"{letter}.") == letter.casefold()
