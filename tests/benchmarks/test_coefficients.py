"""Correlations with intervals, and accuracy and F1 of labels."""

from __future__ import annotations

import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import MissingExtraError
from groundwatch_benchmarks.coefficients import (
    COEFFICIENTS,
    accuracy,
    calibration,
    correlation,
    correlations,
    f1,
)


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


def test_accuracy_and_f1_of_labels():
    pairs = [("yes", "yes"), ("yes", "no"), ("no", "no"), ("no", "yes"), ("no", "no")]
    found = accuracy(pairs)
    assert found is not None
    assert (found.value, found.n) == (pytest.approx(0.6), 5)
    assert 0 < found.low < 0.6 < found.high < 1
    assert f1(pairs, "yes") == pytest.approx(0.5)
    assert f1(pairs, "no") == pytest.approx(2 / 3)
    assert f1(pairs, "maybe") is None
    assert accuracy([]) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
def test_calibration_is_bounded_and_brier_is_a_mean_square(pairs: list[tuple[float, bool]]):
    brier, error = calibration(pairs)
    assert brier == pytest.approx(sum((chance - true) ** 2 for chance, true in pairs) / len(pairs))
    assert error is not None and brier is not None
    # In every bin the mean difference is at most the root of the mean square (Jensen).
    assert 0 <= error**2 <= brier + 1e-12


def test_calibration_of_the_calibrated_and_of_the_sure_and_wrong():
    calibrated = [(0.25, at == 0) for at in range(4)] + [(0.75, at > 0) for at in range(4)]
    assert calibration(calibrated) == (pytest.approx(0.1875), pytest.approx(0.0))
    assert calibration([(1.0, False), (0.0, True)]) == (1.0, 1.0)
    assert calibration([(1.0, True), (0.0, False)]) == (0.0, 0.0)
    assert calibration([]) == (None, None)
