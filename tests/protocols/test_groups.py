"""Which answers are scored together, and why some never are."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.groups import LATE, TIMED_OUT, WAITING, Group, GroupedAnswer, split

QUESTIONS = 3


def answer(at: float, level: str = "fine") -> GroupedAnswer:
    return GroupedAnswer(at, 1 / QUESTIONS, 1.0, ((level, 1.0),))


answers = st.lists(
    st.builds(answer, st.integers(0, 40).map(float), st.sampled_from(("coarse", "fine"))), max_size=12
)


@given(answers, st.randoms(), st.sampled_from((0.0, 5.0, 12.0, math.inf)))
def test_no_answer_is_lost_and_the_order_of_reading_does_not_matter(found, random, seconds):
    groups = list(split(found, seconds, math.inf))
    assert sorted(one for group in groups for one in group.answers) == sorted(found)
    shuffled = random.sample(found, len(found))
    assert list(split(shuffled, seconds, math.inf)) == groups
    for group in groups:
        assert group.answers[-1].at - group.answers[0].at <= seconds
        assert (group.reason == "") == (len(group.answers) == QUESTIONS)
    # What is late was lacking in a group before it.
    lacking = Fraction(0)
    for group in groups:
        came = Fraction(len(group.answers), QUESTIONS)
        assert (group.reason == LATE) == (0 < came <= lacking and came < 1)
        lacking = lacking - came if group.reason == LATE else 1 - came


@given(answers, st.integers(40, 60).map(float))
def test_only_what_can_still_complete_waits(found, now):
    groups, later = list(split(found, 10, now)), list(split(found, 10, math.inf))
    assert [group.answers for group in groups] == [group.answers for group in later]
    for one, other in zip(groups, later, strict=True):
        if one.reason == WAITING:
            assert one.answers[0].at + 10 >= now and other.reason == TIMED_OUT


def test_of_unknown_size_all_within_the_time_is_there():
    found = [GroupedAnswer(at, 0.0, 1.0, (("fine", 1.0),)) for at in (0.0, 3.0, 9.0)]
    assert [(len(one.answers), one.reason) for one in split(found, 5, math.inf)] == [(2, ""), (1, "")]


def test_a_part_too_small_to_be_one_is_told_too():
    assert Group((GroupedAnswer(0.0, 5e-324, 1.0, ()),), LATE).told == "group_late: 1 of 1000000000 came"
