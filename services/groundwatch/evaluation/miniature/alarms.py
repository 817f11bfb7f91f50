"""How soon a bad rollout raises an alarm, and how often a good one does."""

from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Any

import msgspec

from groundwatch.evaluation.miniature.answers import Judged
from groundwatch.protocols.faithscore.scoring import CATEGORIES
from groundwatch.statistics.alarm import ModelAlarm, Rule

TRIALS = 20
"""Streams that the alarm is tried on."""

GOOD_BEFORE = (400, 3_200)
"""Good responses before a trial's rollout: soon after learning, and after an hour or a day of traffic."""

GOOD_STREAM = 10_000
"""Good responses of each stream in which every alarm is a false one."""


Facts = dict[str, tuple[int, int]]
"""Refuted and decided facts of a response, by category."""


def alarms(good: Judged, bad: Judged) -> dict[str, Any]:
    """Responses until a bad rollout raises an alarm, and false alarms among good responses.

    Responses are drawn with replacement from those that were really judged, in `TRIALS` seeded orders.
    """
    rule = Rule()
    fine, broken = _facts(good), _facts(bad)
    soon, late = (_waits(fine, broken, rule, number) for number in GOOD_BEFORE)
    streams = ((Random(trial), ModelAlarm(rule)) for trial in range(TRIALS))
    false = sum(_raised(alarm, fine, random, rule.learn + GOOD_STREAM) for random, alarm in streams)
    return {
        "responses_to_detect": late,
        "responses_to_detect_soon_after_learning": soon,
        "false_alarms": false,
        "good_responses": TRIALS * GOOD_STREAM,
        "false_alarms_per_10000": false / TRIALS,
        "trials": TRIALS,
        "rule": msgspec.to_builtins(rule),
    }


def _raised(alarm: ModelAlarm, facts: Sequence[Facts], random: Random, number: int) -> int:
    """How often so many responses, from the first second on, raise the alarm."""
    return sum(turn.raised for at in range(number) for _, turn in alarm.add(float(at), random.choice(facts)))


def _waits(fine: Sequence[Facts], broken: Sequence[Facts], rule: Rule, before: int) -> dict[str, Any]:
    """Bad responses until an alarm, over `TRIALS` rollouts after `before` good ones each."""
    waits: list[int] = []
    false = 0
    for trial in range(TRIALS):
        random, alarm = Random(trial), ModelAlarm(rule)
        false += _raised(alarm, fine, random, before)
        for number in range(1, 2001):
            if any(turn.raised for _, turn in alarm.add(float(before + number), random.choice(broken))):
                waits.append(number)
                break
    return {
        "good_before": before,
        "median": median(waits) if waits else None,
        "most": max(waits, default=None),
        "missed": TRIALS - len(waits),
        "false_alarms_before": false,
    }


def _facts(model: Judged) -> list[Facts]:
    """Those of each response that has any."""
    each = [one.values for one in model.by_protocol["faithscore"] if one.score is not None]
    found = [
        {
            category: (int(values.get(f"refuted.{category}", 0)), decided)
            for category in CATEGORIES
            if (decided := int(values.get(f"decided.{category}", 0)))
        }
        for values in each
    ]
    return [facts for facts in found if facts]
