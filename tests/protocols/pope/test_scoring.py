"""POPE's arithmetic, by example and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.questions import cell
from groundwatch_benchmarks.methods.yes_no import RATES, count, numbers

answers = st.sampled_from(["yes", "no"])
pairs = st.lists(st.tuples(answers, answers), max_size=60)


def test_by_hand():
    assert numbers({"tp": 3, "fp": 1, "tn": 4, "fn": 2}) == {
        "accuracy": 0.7,
        "precision": 0.75,
        "recall": 0.6,
        "f1": pytest.approx(2 * 0.75 * 0.6 / 1.35),
        "yes_ratio": 0.4,
        "tp": 3,
        "fp": 1,
        "tn": 4,
        "fn": 2,
    }


def test_nothing_gives_no_number():
    assert all(numbers(count([]))[name] is None for name in RATES)


def test_without_a_positive_there_is_no_precision():
    found = numbers(count([("no", "no")]))
    assert [found[name] for name in RATES] == [1, None, None, None, 0]


@given(pairs)
def test_bounds(found):
    told = numbers(count(found))
    assert all(told[name] is None or 0 <= told[name] <= 1 for name in RATES)
    assert sum(told[name] for name in ("tp", "fp", "tn", "fn")) == len(found)


@given(pairs, st.randoms())
def test_order_does_not_matter(found, random):
    shuffled = list(found)
    random.shuffle(shuffled)
    assert count(shuffled) == count(found)


@given(pairs, st.integers(2, 4))
def test_rates_stay_when_everything_is_repeated(found, times):
    once, often = numbers(count(found)), numbers(count(found * times))
    for name in RATES:
        assert often[name] == (None if once[name] is None else pytest.approx(once[name]))


@given(pairs)
def test_f1_is_the_harmonic_mean(found):
    told = numbers(count(found))
    precision, recall = told["precision"], told["recall"]
    if precision and recall:
        assert told["f1"] == pytest.approx(2 * precision * recall / (precision + recall))


@given(pairs)
def test_the_cells_are_named_right(found):
    assert count(found)["tp"] == sum(cell(*one) == "tp" for one in found)
    assert count(found)["fn"] == sum(one == ("no", "yes") for one in found)
