"""Correlations with intervals."""

from __future__ import annotations

import sys
from random import Random

import pytest

from groundwatch.errors import MissingExtraError
from groundwatch.protocols.agreement import COEFFICIENTS, correlation, correlations


def test_known_coefficients():
    first, second = [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 1.0, 4.0, 3.0, 5.0]
    found = correlations(first, second, resamples=50)
    values = {name: interval.value for name, interval in found.items() if interval}
    assert values == {
        "pearson": pytest.approx(0.8),
        "spearman": pytest.approx(0.8),
        "kendall": pytest.approx(0.6),
    }


def test_intervals_hold_the_value_and_repeat_with_their_seed():
    random = Random(5)
    first = [random.random() for _ in range(60)]
    second = [value + random.gauss(0, 0.3) for value in first]
    for name in COEFFICIENTS:
        found = correlation(name, first, second, seed=1, resamples=200)
        assert found is not None
        assert -1 <= found.low < found.value < found.high <= 1
        assert found.n == 60
        assert found == correlation(name, first, second, seed=1, resamples=200)


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_what_never_varies_has_no_correlation(name: str):
    assert correlation(name, [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert correlation(name, [1.0, 2.0], [1.0, 2.0]) is None
    assert correlation(name, [], []) is None


def test_wrong_use_is_an_error():
    with pytest.raises(ValueError, match="no coefficient gamma"):
        correlation("gamma", [1.0] * 3, [1.0] * 3)
    with pytest.raises(ValueError, match="zip"):
        correlation("pearson", [1.0], [])


def test_a_light_install_is_told_what_to_add(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtraError, match=r"groundwatch\[embedded\]"):
        correlation("pearson", [1.0] * 3, [1.0] * 3)
