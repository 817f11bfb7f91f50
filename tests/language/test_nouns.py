"""Nouns from WordNet and the comparison of names."""

from __future__ import annotations

from importlib import resources

from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import cases

from groundwatch.language.nouns import Likeness, compare, nouns

CASES = cases(__file__)


def test_words_share_meanings_and_stand_above_each_other():
    assert nouns().same("couch", "sofa") and not nouns().same("couch", "bed")
    assert nouns().steps("broccoli", "vegetable") and nouns().steps("vegetable", "broccoli") is None
    assert nouns().steps("dog", "dog") is None
    assert "giraffe" in nouns() and "groundwatch" not in nouns()


def test_rare_meanings_are_left_out():
    assert nouns().steps("hand", "person") is None
    assert nouns().steps("dog", "person") is None


def test_names_are_compared() -> None:
    found = [
        [generated, reference, compare(generated, reference).value]
        for generated, reference, _ in CASES["names"]
    ]
    assert found == CASES["names"]
    assert compare("x" * 5000, "chair " * 500) is Likeness.NONE


@given(st.text(max_size=60))
def test_a_name_is_itself(text: str):
    assert compare(text, text) in (Likeness.SAME, Likeness.NONE)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_compared(one: str, other: str):
    assert compare(one, other) in Likeness


def test_the_licence_is_shipped():
    text = resources.files("groundwatch.language.nouns").joinpath("LICENSE.md").read_text("utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in text
