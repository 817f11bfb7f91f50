"""Nouns from WordNet and the comparison of names."""

from __future__ import annotations

from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.language.nouns import Likeness, compare, nouns


def test_words_share_meanings_and_stand_above_each_other():
    assert nouns().same("couch", "sofa") and not nouns().same("couch", "bed")
    assert nouns().steps("broccoli", "vegetable") and nouns().steps("vegetable", "broccoli") is None
    assert nouns().steps("dog", "dog") is None
    assert "giraffe" in nouns() and "groundwatch" not in nouns()


def test_rare_meanings_are_left_out():
    assert nouns().steps("hand", "person") is None
    assert nouns().steps("dog", "person") is None


@pytest.mark.parametrize(
    ("generated", "reference", "expected"),
    [
        ("couches", "sofa", Likeness.SAME),
        ("the stone arch bridge", "bridge", Likeness.SAME),
        ("table", "wooden table", Likeness.SAME),
        ("a slice of pizza", "pizza", Likeness.SAME),
        ("man", "man in white", Likeness.SAME),
        ("motorcycle", "motocycle", Likeness.SAME),
        ("people", "woman", Likeness.BROADER),
        ("bottles", "water bottle", Likeness.BROADER),
        ("kitchen appliance", "toaster", Likeness.BROADER),
        ("woman", "people", Likeness.NONE),
        ("spectators", "person", Likeness.NONE),
        ("broccoli", "food", Likeness.NONE),
        ("hot dog", "dog", Likeness.NONE),
        ("license plate", "plate", Likeness.NONE),
        ("red cup", "blue cup", Likeness.NONE),
        ("object", "chair", Likeness.NONE),
        ("", "chair", Likeness.NONE),
        ("x" * 5000, "chair " * 500, Likeness.NONE),
    ],
)
def test_names_are_compared(generated: str, reference: str, expected: Likeness):
    assert compare(generated, reference) is expected


@given(st.text(max_size=60))
def test_a_name_is_itself(text: str):
    assert compare(text, text) in (Likeness.SAME, Likeness.NONE)


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_compared(one: str, other: str):
    assert compare(one, other) in Likeness


def test_the_licence_is_shipped():
    text = resources.files("groundwatch.language.nouns").joinpath("LICENSE.md").read_text("utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in text
