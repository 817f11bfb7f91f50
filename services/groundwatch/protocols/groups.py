"""Answers that are scored together, such as those about one image sequence: which of them are one group.

It is decided by when responses were recorded, never by when they were judged or read: a replay has the groups
that live traffic had, in whatever order outcomes come.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

TIMED_OUT = "group_timed_out"
LATE = "group_late"
WAITING = "group_waiting"
PUSHED_OUT = "group_pushed_out"

ROUNDING = 1e-9


class GroupedAnswer(NamedTuple):
    """One answer: when it was recorded, in seconds since the epoch, and which `part` of its group it is.

    A part of 0 stands for a group of unknown size. `weight` is how many responses it stands for.
    """

    at: float
    part: float
    weight: float
    values: tuple[tuple[str, float], ...]


class Group(NamedTuple):
    """Answers to the questions of one sequence; `reason` says why not all are there, empty where they are."""

    answers: tuple[GroupedAnswer, ...]
    reason: str

    @property
    def told(self) -> str:
        """The reason with how many came, such as "group_timed_out: 2 of 3 came"."""
        of = round(1 / max(ROUNDING, min(answer.part for answer in self.answers)))
        return f"{self.reason}: {len(self.answers)} of {of} came"


def split(answers: Iterable[GroupedAnswer], seconds: float, now: float) -> Iterator[Group]:
    """The groups of one sequence, in the order of time.

    A group begins with the first answer that is in none before, and ends when it is whole, or `seconds` after
    it began: it has timed out when that is before `now`, seconds since the epoch, else it is waiting. Later
    answers that are no more than what it lacked are late. Answers of a group of unknown size are all there.
    """
    lacking = 0.0
    for several in _cut(sorted(answers), seconds):
        came = sum(answer.part for answer in several)
        if came >= 1 - ROUNDING or not all(answer.part for answer in several):
            reason, lacking = "", 0.0
        elif came <= lacking + ROUNDING:
            reason, lacking = LATE, lacking - came
        elif now < several[0].at + seconds:
            reason = WAITING
        else:
            reason, lacking = TIMED_OUT, 1 - came
        yield Group(tuple(several), reason)


def _cut(answers: Iterable[GroupedAnswer], seconds: float) -> Iterator[list[GroupedAnswer]]:
    several: list[GroupedAnswer] = []
    for answer in answers:
        whole = sum(one.part for one in several) >= 1 - ROUNDING
        if several and (whole or answer.at > several[0].at + seconds):
            yield several
            several = []
        several.append(answer)
    if several:
        yield several
