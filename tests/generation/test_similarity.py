"""Cosines, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import InputError, Unscorable
from groundwatch.generation.engines import cosine


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [((1.0, 0.0), (2.0, 0.0), 1.0), ((1.0, 0.0), (0.0, 3.0), 0.0), ((1.0, 1.0), (-1.0, -1.0), -1.0)],
)
def test_known_angles(one, other, expected):
    assert cosine(one, other) == pytest.approx(expected)
    assert -1.0 <= cosine(one, other) <= 1.0


@pytest.mark.parametrize("other", [(0.0, 0.0), (float("nan"), 1.0), (float("inf"), 1.0), (1e200, 1e200)])
def test_what_has_no_angle_has_no_number(other):
    with pytest.raises(Unscorable, match="no_similarity"):
        cosine((1e200, 1.0), other)


def test_vectors_of_different_encoders():
    with pytest.raises(InputError, match="2 and 3"):
        cosine((1.0, 0.0), (1.0, 0.0, 0.0))


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=3).filter(lambda v: sum(x * x for x in v) > 1e-6))
def test_cosines_lie_between_minus_1_and_1(vector):
    assert cosine(vector, vector) == pytest.approx(1)
    assert cosine(vector, tuple(-x for x in vector)) == pytest.approx(-1)
    assert -1 <= cosine(vector, (1, 2, 3)) <= 1
