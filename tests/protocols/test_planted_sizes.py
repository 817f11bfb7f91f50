"""Comparisons of size: true in order, and wrong by two things exactly."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.planted_sizes import APART, FEWEST, METRES, MOST, comparable, rank

NAMES = st.sets(st.sampled_from(sorted(METRES)), max_size=12)


@given(NAMES, st.integers(0, 1000))
def test_what_is_compared_is_far_apart_and_from_large_to_small(names: set[str], seed: int):
    found = comparable([*names, "love"], Random(seed))
    assert found == () or FEWEST <= len(found) <= MOST
    assert set(found) <= names
    assert all(METRES[one] >= APART * METRES[other] for one, other in pairwise(found))
    assert found == comparable([*sorted(names, reverse=True), "love"], Random(seed))


@given(NAMES, st.integers(0, 1000), st.booleans())
def test_things_are_first_said_in_order_but_for_the_two_exchanged(names: set[str], seed: int, wrong: bool):
    things = comparable(names, Random(seed))
    if not things:
        return
    found = rank(things, Random(seed), wrong=wrong)
    words = found.answer.casefold().replace(".", " ").replace(",", " ") + " "
    said = sorted(things, key=lambda name: words.index(f" {name} "))
    expected = list(things)
    if wrong:
        assert found.exchanged is not None
        first, second = (things.index(name) for name in found.exchanged)
        assert first < second
        expected[first], expected[second] = expected[second], expected[first]
    else:
        assert found.exchanged is None
    assert said == expected
    assert found == rank(things, Random(seed), wrong=wrong)


def test_one_thing_cannot_be_compared():
    with pytest.raises(ValueError, match="nothing to compare"):
        rank(["dog"], Random(0), wrong=False)
