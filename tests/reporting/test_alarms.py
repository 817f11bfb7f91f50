"""Alarms over outcomes."""

from __future__ import annotations

import pytest

from groundwatch.events import Decision, JudgedClaim, OutcomeKind
from groundwatch.reporting.alarms import Alarms, moment, tell
from groundwatch.statistics.alarm import Rule

RULE = Rule(responses=1_000, objective=0.05)


def feed(alarms: Alarms, make, start: int, number: int, refuted: int, **changes) -> list:
    found = []
    for one in range(start, start + number):
        found += alarms.add(make.scored(one, refuted, 4 - refuted, **changes))
    return found


def test_an_alarm_names_model_category_and_time_and_its_end_is_told(make):
    alarms = Alarms(RULE)
    assert feed(alarms, make, 1_000, 50, 0) == []
    assert feed(alarms, make, 1_000, 50, 0, model="other") == []
    raised = feed(alarms, make, 1_050, 30, 2)
    assert {one.alarm.category for one in raised} == {"all", "entity"}
    assert {one.alarm.model for one in raised} == {"m"}
    first = raised[0].alarm
    assert (first.since, first.since_response) == (1_050.0, 51)
    assert (first.before, first.after, first.base, first.learnt) == (0.0, 0.5, 0.05, False)
    assert first.response_id == str(int(first.raised_at))
    assert first.raised_response == 51 + int(first.raised_at) - 1_050
    assert "0.0% → 50.0% of facts not in the image since 1970-01-01 00:17:30Z (its response 51)" in tell(
        next(one for one in raised if one.alarm.category == "all")
    )
    assert alarms.raised_now("m", "faithscore") == {"all": 1, "entity": 1}
    assert alarms.raised_now("m", "faithscore", since=1.0) == {"all": 0, "entity": 0}, "no outcome since"
    ended = feed(alarms, make, 1_080, 400, 0)
    assert ended == raised or {id(one) for one in ended} == {id(one) for one in raised}
    assert all(one.recovered_at is not None and one.recovered_at > 1_080 for one in ended)
    assert alarms.raised_now("m", "faithscore") == {"all": 0, "entity": 0}
    assert "; over since " in tell(ended[0])


def test_an_alarm_never_begins_after_it_was_raised(make):
    """As it would where answers are judged in another order than they were recorded in."""
    alarms = Alarms(RULE)
    feed(alarms, make, 1_000, 50, 0)
    raised = [one for number in range(1_079, 1_049, -1) for one in feed(alarms, make, number, 1, 2)]
    assert raised and all(one.alarm.since <= one.alarm.raised_at for one in raised)


def test_the_same_outcomes_give_the_same_alarms(make):
    one, other = Alarms(RULE), Alarms(RULE)
    for alarms in (one, other):
        feed(alarms, make, 0, 40, 0)
        feed(alarms, make, 40, 40, 1)
    assert one.rows() == other.rows()
    assert one.rows()
    assert one.to_dict() == other.to_dict()


def test_judges_and_protocols_are_watched_apart(make):
    alarms = Alarms(RULE)
    for start in range(0, 60, 3):
        feed(alarms, make, start, 1, 0)
        feed(alarms, make, start + 1, 1, 4, judges=make.other)
        feed(alarms, make, start + 2, 1, 0, protocol="valor")
    assert len(alarms.watched) == 3
    assert len({row["fingerprint"] for row in alarms.rows()}) == 1
    assert {row["protocol"] for row in alarms.rows()} == {"faithscore"}


def test_what_has_no_decided_fact_is_left_out(make):
    alarms = Alarms(RULE)
    undecided = (JudgedClaim(text="a", category="entity", unit=0, decision=Decision.UNDECIDED),)
    alarms.add(make.scored(1, 1, 0, claims=undecided))
    alarms.add(make.ended(OutcomeKind.UNSCORED, "dead_letter", 2))
    alarms.add(make.ended(OutcomeKind.DECLINED, "sampled_out", 3))
    assert alarms.watched == {}


def test_what_is_watched_says_how_far_it_is(make):
    alarms = Alarms(Rule(learn=20))
    feed(alarms, make, 0, 10, 0)
    [row, _] = alarms.to_dict()["watched"]
    assert (row["category"], row["state"], row["base"], row["responses"]) == ("all", "learning", None, 10)
    feed(alarms, make, 10, 10, 0)
    [row, _] = alarms.to_dict()["watched"]
    assert row["state"] == "watching"
    assert 0 < row["base"] < 1


@pytest.mark.parametrize(("seconds", "told"), [(0.0, "–"), (1_700_000_000.4, "2023-11-14 22:13:20Z")])
def test_moments(seconds, told):
    assert moment(seconds) == told
