import pytest

from groundwatch.runtime.telemetry import metrics
from groundwatch.runtime.telemetry.metrics import ENOUGH, OTHER, BoundedLabel


def test_names_beyond_the_limit_are_other() -> None:
    label = BoundedLabel(2)
    assert [label(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


def test_a_name_in_use_takes_the_label_of_one_that_came_once() -> None:
    forgotten: list[str] = []
    label = BoundedLabel(3, forgotten.append)
    for number in range(50):
        label(f"invented-{number}")
    told = [label("in use") for _ in range(ENOUGH + 5)]
    assert told[: ENOUGH - 1] == [OTHER] * (ENOUGH - 1)
    assert set(told[ENOUGH - 1 :]) == {"in use"}
    assert forgotten == ["invented-0"]
    for number in range(5_000):
        label(f"invented-{number}")
        assert label("in use") == "in use"
    assert len(label._waiting) <= 3
    assert len(forgotten) == 1


def test_what_came_long_ago_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "AGE", 20)
    label = BoundedLabel(2, lambda value: None)
    for _ in range(200):
        label("v1")
    told = [(label("v2"), label("v3")) for _ in range(300)]
    assert told[-1] == ("v2", "v3")
