"""A history that does not grow, and still counts from the first response."""

from __future__ import annotations

import pytest

from groundwatch.reporting import tally
from groundwatch.reporting.tally import History
from groundwatch.statistics.changes import find_change


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "REMEMBERED", 100)


def test_remembers_the_latest_and_how_many_came_before() -> None:
    history = History()
    for number in range(1_000):
        history.add(float(number), number % 2, 2)
        assert len(history) <= 200
    assert len(history) + history.forgotten == 1_000
    assert [pair[0] for pair in history.pairs()] == [number % 2 for number in range(history.forgotten, 1_000)]


def test_the_latest_by_time_and_not_by_arrival() -> None:
    history = History()
    for number in reversed(range(201)):
        history.add(float(number), number, number + 1)
    assert [refuted for refuted, _ in history.pairs()] == list(range(101, 201))


def test_merges_within_its_bounds() -> None:
    whole, part = History(), History()
    for number in range(150):
        whole.add(float(number), 0, 1)
        part.add(float(number + 150), 1, 1)
    whole.merge(part)
    assert len(whole) == 100
    assert whole.forgotten == 200
    assert {refuted for refuted, _ in whole.pairs()} == {1}


def test_a_recent_change_is_found_after_forgetting() -> None:
    history = History()
    for number in range(500):
        history.add(float(number), 5 if number >= 450 else 0, 10)
    change = find_change(list(history.pairs()))
    assert change is not None
    assert change.response + history.forgotten == 451


def test_what_is_taken_back_is_in_no_order_and_no_count() -> None:
    history, plain = History(), History()
    for number in range(1_000):
        history.add(float(number), number % 2, 2)
        plain.add(float(number), number % 2, 2)
        if number % 3 == 0:
            history.add(float(number), 0, 0)
            history.remove(float(number))
    assert list(history.pairs()) == list(plain.pairs())[-len(history) :]
    assert len(history) + history.forgotten == 1_000


def test_what_was_forgotten_before_it_was_taken_back() -> None:
    history = History()
    history.add(0.0, 0, 0)
    for number in range(1, 500):
        history.add(float(number), 1, 2)
    history.remove(0.0)
    assert all(pair == (1, 2) for pair in history.pairs())
    assert len(history) + history.forgotten == 499
