"""No moment that can be sent ends in a traceback where it is written as a date."""

from __future__ import annotations

import math

import pytest

from groundwatch.errors import UsageError
from groundwatch.replay.spec import Spec
from groundwatch.times import LAST, moment_of, read_moment, shown_moment


@pytest.mark.parametrize(
    ("seconds", "year"),
    [
        (0.0, 1970),
        (1.7e9, 2023),
        (LAST, 9999),
        (1e300, 9999),
        (math.inf, 9999),
        (-1e300, 1970),
        (math.nan, 1970),
    ],
)
def test_any_number_is_a_date(seconds: float, year: int) -> None:
    assert moment_of(seconds).year == year
    assert shown_moment(seconds).startswith(str(year))


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-14:00", "0001-01-01", "1969-12-31", "1e300", "-5"])
def test_a_moment_outside_of_the_calendar_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="--until"):
        read_moment(text, "--until", 1.7e9)


def test_longer_ago_than_there_is_time_is_the_beginning() -> None:
    assert read_moment("9" * 400 + "w", "--since", 1.7e9) == 0.0


@pytest.mark.parametrize("bounds", [{"since": 1e300}, {"until": 1e300}, {"since": -1.0}, {"until": math.nan}])
def test_a_spec_bounds_times(bounds: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="no time in seconds since the epoch"):
        Spec(run="a", **bounds).check()
