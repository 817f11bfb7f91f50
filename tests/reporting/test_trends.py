"""Rates over time and by version: nothing is lost when stretches grow, or when states are written down."""

from __future__ import annotations

import time

import msgspec
import pytest

from groundwatch.events import Decision, JudgedClaim, OutcomeKind, ResponseScored
from groundwatch.reporting import trends
from groundwatch.reporting.trends import Trend, Versions, VersionsState, merged_trend


def filled(times: list[float]) -> Trend:
    trend = Trend()
    for at in times:
        trend.add(outcome("1", Decision.SUPPORTED, at), (1, 4))
    return trend


def facts(trend: Trend) -> int:
    return sum(point.rate.n for point in trend.points())


@pytest.mark.parametrize("span", [1.0, 3_600.0, 30 * 86_400.0])
def test_stretches_grow_with_the_time_and_lose_nothing(span):
    trend = filled([1.7e9 + span * number / 200 for number in range(200)])
    points = trend.points()
    assert 1 <= len(points) <= trends.POINTS
    assert facts(trend) == 800
    assert all(point.rate.value == pytest.approx(0.25) for point in points)


def test_of_more_days_than_there_are_points_the_latest_stay():
    trend = filled([1.7e9 + 86_400.0 * day for day in range(400)])
    assert len(trend.sums) == trends.POINTS
    assert trend.seconds == trends.LONGEST
    assert trend.points()[-1].start <= 1.7e9 + 86_400.0 * 399


def test_trends_of_different_fineness_are_merged():
    fine, coarse = filled([1.7e9, 1.7e9 + 5]), filled([1.7e9 + 3_600.0 * hour for hour in range(100)])
    for several in ([fine, coarse], [coarse, fine]):
        merged = merged_trend(several)
        assert merged.seconds == coarse.seconds
        assert facts(merged) == 4 * 102
    assert fine.seconds == trends.SHORTEST


def test_times_beyond_the_calendar_are_left_out():
    assert filled([float("inf"), float("nan"), -5.0, 1e300]).points() == []


def outcome(version: str, decision: Decision, at: float = 1.7e9) -> ResponseScored:
    return ResponseScored(
        id="r",
        model="heron-7b",
        protocol="faithscore",
        outcome=OutcomeKind.SCORED,
        score=1.0,
        claims=(JudgedClaim(text="a", category="entity", unit=0, decision=decision),),
        eligible=1,
        decided=1,
        tags={"version": version} if version else {},
        recorded_at=at,
    )


def counted(*events: ResponseScored) -> Versions:
    versions = Versions(lambda tags: tags.get("version", ""))
    for event in events:
        versions.add(event)
    return versions


def test_versions_are_told_apart_and_the_latest_to_begin_stands_first():
    versions = counted(
        outcome("1", Decision.SUPPORTED),
        outcome("2", Decision.REFUTED, 1.7e9 + 9),
        outcome("1", Decision.REFUTED),
    )
    rows = versions.rows()
    assert [(row.version, row.scored) for row in rows] == [("2", 1), ("1", 2)]
    assert [row.hallucination_rate.value for row in rows] == [1.0, 0.5]


def test_they_go_on_from_their_state():
    versions = counted(outcome("1", Decision.SUPPORTED), outcome("", Decision.REFUTED))
    again = counted()
    again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(versions.state()), type=VersionsState))
    for one in (versions, again):
        one.add(outcome("1", Decision.REFUTED))
    assert again.rows() == versions.rows()


def test_versions_without_end_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(trends, "VERSIONS", 3)
    versions = counted(*(outcome(str(number), Decision.SUPPORTED) for number in (1, 2, 3, 1, 4)))
    assert sorted(row.version for row in versions.rows()) == ["1", "3", "4"]


@pytest.mark.parametrize("hours, within", [(0.5, 4), (12, 3), (100, 2), (500, 1), (1_000, 0)])
def test_a_range_has_what_was_recorded_in_it_and_lasts_while_nothing_comes(monkeypatch, hours, within):
    now = time.time()
    versions = counted(
        outcome("1", Decision.REFUTED, now - 3_600 * hours),
        outcome("1", Decision.SUPPORTED, now - 60),
        outcome("1", Decision.SUPPORTED, now + 3e7),
    )
    scored = [sum(row.scored for row in versions.rows(name)) for name in trends.RANGES]
    assert scored == [1] * (4 - within) + [2] * within
    (row,) = versions.rows("30d")
    assert facts(row.trend) == scored[-1]
    assert row.hallucination_rate.value == (0.5 if scored[-1] == 2 else 0.0)
    monkeypatch.setattr(trends.time, "time", lambda: now + 2 * 3_600)
    assert versions.rows("1h") == () and versions.rows("24h")


@pytest.mark.parametrize("name", trends.RANGES)
def test_the_first_stretch_of_a_range_is_whole_whenever_its_answers_come(name):
    first = trends.began(name, time.time())
    versions = counted(*(outcome("1", Decision.SUPPORTED, first + at) for at in (-100, 20, 140)))
    (row,) = versions.rows(name)
    assert row.scored == 2 and first <= time.time() - trends.RANGES[name]


def test_a_range_keeps_few_stretches_whatever_comes(monkeypatch):
    now, versions = time.time(), counted()
    for hour in range(200):
        monkeypatch.setattr(trends.time, "time", lambda at=now + 3_600 * hour: at)
        versions.add(outcome("1", Decision.SUPPORTED, now + 3_600 * hour))
    ((_, known),) = versions.state()
    assert max(len(window.sums) for window in known.ranges.values()) <= trends.STRETCHES + 1
