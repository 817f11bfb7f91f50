"""The yes/no metric on VLM²-Bench: fine-grained questions behind a coarse one, per image sequence.

A sequence scores 0 when its coarse question is answered wrong, else the accuracy over its fine-grained
questions; a task's score is the sum over its sequences, and the mean is told beside it, since sums of tasks
of different size cannot be compared.

A refusal does not pay: a reply that cannot be read counts as a wrong one. Beside that figure stands the one
over the replies that were read, with its coverage.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Annotated, Any, Literal

import msgspec

from groundwatch.events import ResponseScored
from groundwatch.protocols.method import Result
from groundwatch.protocols.published import Place
from groundwatch.protocols.vlm2.protocol import SEQUENCE, UNREADABLE, is_right

NO_FINE_QUESTION = "no_fine_question"
NO_COARSE_QUESTION = "no_coarse_question"
INCOMPLETE = "incomplete"

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
    """One sequence's score, or why it has none; `read` is the score over the replies that could be read."""

    task: str
    score: float | None
    reason: str = ""
    read: float | None = None
    questions: int = 0
    unread: int = 0


class _Tags(msgspec.Struct):
    sequence: str
    level: Literal["coarse", "fine"]
    task: str = ""
    questions: Annotated[str, msgspec.Meta(pattern=r"^[1-9]\d{0,5}$")] = ""


def gate(coarse: bool | None, fine: Sequence[bool | None]) -> float | None:
    """The score of one sequence from what was right; None without a fine-grained question.

    A wrong coarse answer gives 0 whatever follows. None stands for a reply that could not be read, and is as
    wrong as any other.
    """
    if not coarse:
        return 0.0
    return sum(map(bool, fine)) / len(fine) if fine else None


def gated(task: str, coarse: bool | None, fine: Sequence[bool | None]) -> Scored:
    read = [right for right in fine if right is not None]
    score = gate(coarse, fine)
    return Scored(
        task=task,
        score=score,
        reason=NO_FINE_QUESTION if score is None else "",
        read=None if coarse is None else gate(coarse, read),
        questions=1 + len(fine),
        unread=[coarse, *fine].count(None),
    )


def score_sequence(asked: ImageSequence) -> Scored:
    coarse, *fine = (
        is_right(as_text(one.answer), as_text(one.truth), one.question) for one in (asked.coarse, *asked.fine)
    )
    return gated(asked.task, coarse, fine)


def as_text(value: Text) -> str:
    """Yes and no for true and false, and no point behind whole numbers."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def pool(scored: Sequence[Scored]) -> Result:
    """Sum and mean over sequences; the sum of none is 0, the mean of none does not exist.

    `read_mean` is the mean over what could be read, `coverage` the share of replies that could.
    """
    scores = [one.score for one in scored if one.score is not None]
    read = [one.read for one in scored if one.read is not None]
    total = math.fsum(scores)
    questions, unread = sum(one.questions for one in scored), sum(one.unread for one in scored)
    return {
        "score_sum": total,
        "score_mean": total / len(scores) if scores else None,
        "read_mean": fmean(read) if read else None,
        "coverage": 1 - unread / questions if questions else None,
        "sequences": len(scored),
        "unscored": len(scored) - len(scores),
        "unread": unread,
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


class _Group(msgspec.Struct):
    """What has come of one sequence; `questions` is how many there are, 0 where no tag says it."""

    questions: int = 0
    coarse: list[bool | None] = []
    fine: list[bool | None] = []

    def scored(self, task: str) -> Scored:
        came = len(self.coarse) + len(self.fine)
        missing = NO_COARSE_QUESTION if not self.coarse else INCOMPLETE if came < self.questions else ""
        if missing:
            unread = [*self.coarse, *self.fine].count(None)
            return Scored(task=task, score=None, reason=missing, questions=came, unread=unread)
        return gated(task, self.coarse[0], self.fine)


def score_outcomes(outcomes: Iterable[tuple[Place, ResponseScored]]) -> list[Scored]:
    """Each sequence through the gate, in the order of their first response; their answers come in any.

    Questions that were declined, or that failed for another reason than their reply, are not counted; a
    sequence with fewer answers than its tag `questions` says is unscored. Raises `FileFormatError` for
    missing tags and a second coarse question.
    """
    groups: dict[tuple[str, str], _Group] = {}
    for place, outcome in outcomes:
        tags = place.read(outcome.tags, _Tags)
        group = groups.setdefault((tags.task, tags.sequence), _Group())
        if tags.level == "coarse" and group.coarse:
            raise place.wrong(f"key '{SEQUENCE}': {tags.sequence} has two coarse questions")
        group.questions = max(group.questions, int(tags.questions or 0))
        if outcome.reason in ("", UNREADABLE):
            answers = group.coarse if tags.level == "coarse" else group.fine
            answers.append(None if outcome.score is None else outcome.score > 0)
    return [group.scored(task) for (task, _), group in groups.items()]
