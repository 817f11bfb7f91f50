"""Replies about sequences: yes or no, numbers, choices, words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.vlm2.replies import is_right, read_choice, read_number


@pytest.mark.parametrize(
    ("reply", "truth", "right"),
    [
        ("Yes", "yes", True),
        ("No, they differ.", "yes", False),
        ("Not sure", "no", None),
        ("True", "yes", True),
        ("yes", "true", True),
        ("3", "3", True),
        ("Three.", "3", True),
        ("There are 3 distinct shirts in the 4 images.", "3", True),
        ("In image 2 and image 3 there are two shirts.", "2", True),
        ("There are 2 red and 3 blue ones.", "5", None),
        ("2 + 3, so the answer is 5.", "5", True),
        ("Only the one on the left and two others", "2", True),
        ("There are none.", "0", True),
        ("Many", "3", None),
        ("It appears twice, in images 1, 2 and 4.", "2", None),
        ("Of the four given photos, 2 show it.", "2", True),
        ("13", "3", False),
        ("3.5", "3", False),
        ("B", "B", True),
        ("(b) the same person", "B", True),
        ("The answer is C.", "b", False),
        ("A person is there", "A", None),
        ("A. the same", "(A)", True),
        ("Option D", "D", True),
        ("It is the red shirt.", "red shirt", True),
        ("It is the redder shirt.", "red", False),
        ("", "red", None),
        ("...", "3", None),
    ],
)
def test_reading(reply, truth, right):
    assert is_right(reply, truth) is right


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
