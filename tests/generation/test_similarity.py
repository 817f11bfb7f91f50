"""Cosines, and what is none."""

from __future__ import annotations

import pytest

from groundwatch.errors import InputError, Unscorable
from groundwatch.generation.similarity import cosine


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
