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

import msgspec

from groundwatch.protocols.vlm2.replies import is_right

COARSE_UNREADABLE = "coarse_unreadable"
FINE_UNREADABLE = "fine_unreadable"
NO_FINE_QUESTION = "no_fine_question"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One question about a sequence with the model's reply and the truth."""

    question: str
    answer: str
    truth: str


class ImageSequence(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked about one image sequence."""

    sequence: str
    task: str
    coarse: Asked
    fine: tuple[Asked, ...] = ()


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence's score, or why it has none; `unread` counts fine-grained replies left out."""

    task: str
    score: float | None
    reason: str = ""
    unread: int = 0


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """Over sequences: `score_mean` over those that have a score, None without any."""

    score_sum: float
    score_mean: float | None
    sequences: int
    unscored: int
    unread: int


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
    """Read the replies of one sequence and put them through the gate."""
    fine = [is_right(one.answer, one.truth, one.question) for one in asked.fine]
    coarse = is_right(asked.coarse.answer, asked.coarse.truth, asked.coarse.question)
    score, reason = gate(coarse, fine)
    return Scored(task=asked.task, score=score, reason=reason, unread=fine.count(None))


def pool(scored: Iterable[Scored]) -> Scores:
    """Sum and mean over sequences; the sum of none is 0, the mean of none does not exist."""
    found = list(scored)
    scores = [one.score for one in found if one.score is not None]
    total = math.fsum(scores)
    return Scores(
        score_sum=total,
        score_mean=total / len(scores) if scores else None,
        sequences=len(found),
        unscored=len(found) - len(scores),
        unread=sum(one.unread for one in found),
    )


def by_task(scored: Iterable[Scored]) -> dict[str, Scores]:
    """The same for each task, in alphabetical order."""
    found: dict[str, list[Scored]] = {}
    for one in scored:
        found.setdefault(one.task, []).append(one)
    return {task: pool(several) for task, several in sorted(found.items())}


def reasons(scored: Iterable[Scored]) -> dict[str, int]:
    """How many sequences are unscored, by reason."""
    return dict(sorted(Counter(one.reason for one in scored if one.score is None).items()))
