"""κ and α with intervals, against the examples that were published with them."""

from __future__ import annotations

import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import MissingExtraError
from groundwatch.statistics.agreement import (
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
