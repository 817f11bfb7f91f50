"""The yes/no metric on VLM²-Bench: fine-grained questions behind a coarse one, per image sequence.

A sequence scores 0 when its coarse question is answered wrong, else the accuracy over its fine-grained
questions; a task's score is the sum over its sequences, and the mean is told beside it, since sums of tasks
of different size cannot be compared.

Replies that cannot be read are nobody's right or wrong answer: a fine-grained one leaves the accuracy, and a
sequence whose coarse reply, or none of whose fine-grained replies, can be read is unscored with a reason.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from groundwatch.events import ResponseScored
from groundwatch.protocols.method import Result
from groundwatch.protocols.published import Place
from groundwatch.protocols.vlm2.protocol import LEVELS, SEQUENCE, UNREADABLE, is_right

COARSE_UNREADABLE = "coarse_unreadable"
FINE_UNREADABLE = "fine_unreadable"
NO_FINE_QUESTION = "no_fine_question"
NO_COARSE_QUESTION = "no_coarse_question"

Text = str | bool | int | float
"""A truth or a reply as files write it."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    question: str
    answer: Text
    truth: Text


class ImageSequence(msgspec.Struct, frozen=True, kw_only=True):
    sequence: str | int
    task: str
    coarse: Asked
    fine: tuple[Asked, ...]


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence's score, or why it has none; `unread` counts fine-grained replies left out."""

    task: str
    score: float | None
    reason: str = ""
    unread: int = 0


class _Tags(msgspec.Struct):
    sequence: str
    level: Literal["coarse", "fine"]
    task: str = ""


def gate(coarse: bool | None, fine: Sequence[bool | None]) -> tuple[float | None, str]:
    """The score of one sequence from what was right, and the reason where there is none.

    None stands for a reply that could not be read. A wrong coarse answer gives 0 whatever follows.
    """
    if coarse is None:
        return None, COARSE_UNREADABLE
    if not coarse:
        return 0.0, ""
    if not fine:
        return None, NO_FINE_QUESTION
    read = [right for right in fine if right is not None]
    if not read:
        return None, FINE_UNREADABLE
    return sum(read) / len(read), ""


def score_sequence(asked: ImageSequence) -> Scored:
    coarse, *fine = (
        is_right(as_text(one.answer), as_text(one.truth), one.question) for one in (asked.coarse, *asked.fine)
    )
    score, reason = gate(coarse, fine)
    return Scored(task=asked.task, score=score, reason=reason, unread=fine.count(None))


def as_text(value: Text) -> str:
    """Yes and no for true and false, and no point behind whole numbers."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def pool(scored: Sequence[Scored]) -> Result:
    """Sum and mean over sequences; the sum of none is 0, the mean of none does not exist."""
    scores = [one.score for one in scored if one.score is not None]
    total = math.fsum(scores)
    return {
        "score_sum": total,
        "score_mean": total / len(scores) if scores else None,
        "sequences": len(scored),
        "unscored": len(scored) - len(scores),
        "unread": sum(one.unread for one in scored),
    }


def tally(scored: Sequence[Scored]) -> Result:
    return {
        **pool(scored),
        "unscored_by_reason": dict(
            sorted(Counter(one.reason for one in scored if one.score is None).items())
        ),
        "by_task": {
            task: pool([one for one in scored if one.task == task])
            for task in sorted({one.task for one in scored})
        },
    }


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
        tags = place.read(outcome.tags, _Tags)
        sequence, level = tags.sequence, tags.level
        asked = found.setdefault((tags.task, sequence), {one: [] for one in LEVELS})
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
