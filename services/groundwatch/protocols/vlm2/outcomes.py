"""Sequences out of scored responses."""

from collections.abc import Iterable
from typing import Any

from groundwatch.events import ResponseScored
from groundwatch.protocols.published import Place
from groundwatch.protocols.vlm2.protocol import LEVEL, LEVELS, SEQUENCE, TASK, UNREADABLE
from groundwatch.protocols.vlm2.scoring import Scored, gate

NO_COARSE_QUESTION = "no_coarse_question"


def is_outcome(record: dict[str, Any]) -> bool:
    """Whether a line is an outcome and not a sequence in the file format."""
    return "outcome" in record and "protocol" in record


def score_outcomes(outcomes: Iterable[tuple[Place, ResponseScored]]) -> list[Scored]:
    """Each sequence through the gate, in the order of their first response.

    Questions that were declined, or that failed for another reason than their reply, are not counted;
    a sequence that has none at all of them is unscored. Raises `FileFormatError` for missing tags and a
    second coarse question.
    """
    found: dict[tuple[str, str], dict[str, list[bool | None]]] = {}
    for place, outcome in outcomes:
        sequence = place.take(outcome.tags, SEQUENCE, str, "a string")
        level = place.take(outcome.tags, LEVEL, str, "coarse or fine")
        if level not in LEVELS:
            raise place.wrong(f"key '{LEVEL}': expected coarse or fine")
        asked = found.setdefault((outcome.tags.get(TASK, ""), sequence), {one: [] for one in LEVELS})
        if level == "coarse" and asked["coarse"]:
            raise place.wrong(f"key '{SEQUENCE}': {sequence} has two coarse questions")
        if outcome.reason in ("", UNREADABLE):
            asked[level].append(None if outcome.score is None else outcome.score > 0)
    return [_scored(task, asked) for (task, _), asked in found.items()]


def _scored(task: str, asked: dict[str, list[bool | None]]) -> Scored:
    if not asked["coarse"]:
        return Scored(task=task, score=None, reason=NO_COARSE_QUESTION)
    score, reason = gate(asked["coarse"][0], asked["fine"])
    return Scored(task=task, score=score, reason=reason, unread=asked["fine"].count(None))
