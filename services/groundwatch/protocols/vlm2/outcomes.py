"""Sequences out of scored responses: the lines that `groundwatch score vlm2 … --out` writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from groundwatch.protocols.published import Place
from groundwatch.protocols.vlm2.protocol import LEVEL, LEVELS, SEQUENCE, TASK, UNREADABLE, Vlm2
from groundwatch.protocols.vlm2.scoring import Scored, gate

Line = tuple[Place, dict[str, Any]]

NO_COARSE_QUESTION = "no_coarse_question"


def is_outcome(record: dict[str, Any]) -> bool:
    """Whether a line is an outcome and not a sequence in the file format."""
    return "outcome" in record and "protocol" in record


def score_outcomes(lines: Iterable[Line]) -> list[Scored]:
    """Each sequence through the gate, in the order of their first response.

    Questions that were declined, or that failed for another reason than their reply, are not counted;
    a sequence that has none at all of them is unscored. Raises `FileFormatError` for another protocol's
    outcome, missing tags and a second coarse question.
    """
    found: dict[tuple[str, str], dict[str, list[bool | None]]] = {}
    for place, record in lines:
        protocol = place.take(record, "protocol", str, "a string")
        if protocol != Vlm2.name:
            raise place.wrong(f"key 'protocol': expected {Vlm2.name}, not {protocol}")
        tags = place.take(record, "tags", dict, "an object")
        sequence = str(place.take(tags, SEQUENCE, str, "a string"))
        level = str(place.take(tags, LEVEL, str, "coarse or fine"))
        if level not in LEVELS:
            raise place.wrong(f"key '{LEVEL}': expected coarse or fine")
        asked = found.setdefault((str(tags.get(TASK, "")), sequence), {one: [] for one in LEVELS})
        if level == "coarse" and asked["coarse"]:
            raise place.wrong(f"key '{SEQUENCE}': {sequence} has two coarse questions")
        if record.get("reason", "") in ("", UNREADABLE):
            asked[level].append(_right(place, record))
    return [_scored(task, asked) for (task, _), asked in found.items()]


def _right(place: Place, record: dict[str, Any]) -> bool | None:
    if place.take(record, "outcome", str, "a string") != "scored":
        return None
    return place.take(record, "score", (int, float), "a number") > 0


def _scored(task: str, asked: dict[str, list[bool | None]]) -> Scored:
    if not asked["coarse"]:
        return Scored(task=task, score=None, reason=NO_COARSE_QUESTION)
    score, reason = gate(asked["coarse"][0], asked["fine"])
    return Scored(task=task, score=score, reason=reason, unread=asked["fine"].count(None))
