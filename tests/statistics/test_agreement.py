"""Correlations, κ and α with intervals, against the examples that were published with them."""

from __future__ import annotations

import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import MissingExtraError
from groundwatch.statistics.agreement import (
    COEFFICIENTS,
    accuracy,
    calibration,
    correlation,
    correlations,
    f1,
    fleiss_kappa,
    krippendorff_alpha,
)

FLEISS = [
    (0, 0, 0, 0, 14),
    (0, 2, 6, 4, 2),
    (0, 0, 3, 5, 6),
    (0, 3, 9, 2, 0),
    (2, 2, 8, 1, 1),
    (7, 7, 0, 0, 0),
    (3, 2, 6, 3, 0),
    (2, 5, 3, 2, 2),
    (6, 5, 2, 1, 0),
    (0, 2, 2, 3, 7),
]
"""Fourteen raters, ten subjects, five categories: κ = 0.210 (the example of the Wikipedia article)."""

KRIPPENDORFF = [
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
]
"""Four observers, twelve units, labels missing: α = 0.743 (Krippendorff 2011, section C)."""

BINARY = ["0 1 0 0 0 0 0 0 1 0", "1 1 1 0 0 1 0 0 0 0"]
"""Two observers, two labels, none missing: α = 0.095 (Krippendorff 2011, section A)."""


def counted(observers: list[str]) -> list[tuple[int, ...]]:
    """How many observers gave each unit each label."""
    columns = list(zip(*(line.split() for line in observers), strict=True))
    labels = sorted({label for column in columns for label in column} - {"."})
    return [tuple(column.count(label) for label in labels) for column in columns]


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


def test_kappa_of_the_published_example():
    found = fleiss_kappa(FLEISS, resamples=200)
    assert found is not None
    assert found.value == pytest.approx(0.210, abs=5e-4)
    assert found.low < found.value < found.high
    assert found.n == 10


@pytest.mark.parametrize(
    ("observers", "alpha", "pairable"), [(KRIPPENDORFF, 0.743, 11), (BINARY, 0.095, 10)], ids=["four", "two"]
)
def test_alpha_of_the_published_examples(observers: list[str], alpha: float, pairable: int):
    found = krippendorff_alpha(counted(observers), resamples=200)
    assert found is not None
    assert found.value == pytest.approx(alpha, abs=5e-4)
    assert found.n == pairable
    assert found == krippendorff_alpha(counted(observers), resamples=200)


def test_alpha_and_kappa_meet_where_there_is_much_to_go_by():
    random = Random(3)
    items = []
    for _ in range(400):
        right = random.random() < 0.6
        said = [right if random.random() < 0.8 else not right for _ in range(3)]
        items.append((said.count(False), said.count(True)))
    kappa, alpha = fleiss_kappa(items, resamples=1), krippendorff_alpha(items, resamples=1)
    assert kappa and alpha
    assert alpha.value == pytest.approx(kappa.value + (1 - kappa.value) / 1200)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12), st.randoms())
def test_alpha_is_at_most_1_and_knows_no_order(items: list[tuple[int, ...]], random: Random):
    found = krippendorff_alpha(items, resamples=1)
    if found is None:
        return
    assert found.value <= 1 + 1e-12
    mixed = random.sample(items, len(items))
    turned = [tuple(reversed(counts)) for counts in mixed]
    again = krippendorff_alpha(turned, resamples=1)
    assert again and again.value == pytest.approx(found.value)


def test_full_agreement_is_1_and_one_label_says_nothing():
    for measure in (fleiss_kappa, krippendorff_alpha):
        found = measure([(3, 0), (0, 3), (3, 0)], resamples=20)
        assert found is not None and found.value == pytest.approx(1.0)
        assert measure([(3, 0), (3, 0)], resamples=20) is None
        assert measure([(1, 0), (0, 1)], resamples=20) is None
        assert measure([], resamples=20) is None


def test_kappa_wants_equally_many_labels():
    with pytest.raises(ValueError, match="same number"):
        fleiss_kappa([(1, 1), (2, 1)])


def test_kappa_tells_a_light_install_what_to_add(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "statsmodels.stats", None)
    with pytest.raises(MissingExtraError, match=r"statsmodels .*groundwatch\[embedded\]"):
        fleiss_kappa(FLEISS)


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
