"""The gate, the sums of the metric on VLM²-Bench."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.errors import FileFormatError
from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch_benchmarks.json_files import Place
from groundwatch_benchmarks.methods.vlm2.suite import (
    NO_FINE_QUESTION,
    Asked,
    ImageSequence,
    Scored,
    gate,
    gated,
    pool,
    score_outcomes,
    score_sequence,
    tally,
)

rights = st.lists(st.booleans(), min_size=1, max_size=12)
maybe = st.lists(st.sampled_from([True, False, None]), max_size=12)
scored = st.lists(
    st.builds(
        Scored,
        task=st.sampled_from("abc"),
        score=st.none() | st.floats(0, 1),
        reason=st.just("incomplete"),
    ),
    max_size=20,
)


@given(rights)
def test_the_accuracy_behind_the_gate(fine):
    assert gate(True, fine) == sum(fine) / len(fine)


@given(st.sampled_from([False, None]), maybe)
def test_a_coarse_answer_that_is_wrong_or_says_nothing_gives_0(coarse, fine):
    assert gate(coarse, fine) == 0.0


@given(st.sampled_from([True, False, None]), st.lists(st.sampled_from([True, False, None]), min_size=1))
def test_a_refusal_does_not_pay(coarse, fine):
    answers = [coarse, *fine]
    for at, said in enumerate(answers):
        refusing = [*answers[:at], None, *answers[at + 1 :]]
        wrong = [*answers[:at], False, *answers[at + 1 :]]
        assert gate(refusing[0], refusing[1:]) == gate(wrong[0], wrong[1:])
        assert said is None or gate(refusing[0], refusing[1:]) <= gate(coarse, fine)


@given(st.sampled_from([True, False, None]), maybe)
def test_bounds_reasons_and_coverage(coarse, fine):
    found = gated("t", coarse, fine)
    assert (found.score is None) == bool(found.reason) == (coarse is True and not fine)
    assert found.score is None or 0 <= found.score <= 1
    assert found.score is None or found.read is None or found.score <= found.read
    assert (found.questions, found.unread) == (1 + len(fine), [coarse, *fine].count(None))


@given(maybe, st.randoms(), st.integers(1, 3))
def test_order_and_repetition_of_questions_do_not_matter(fine, random, times):
    shuffled = fine * times
    random.shuffle(shuffled)
    once, again = gate(True, fine), gate(True, shuffled)
    assert again == (None if once is None else pytest.approx(once))


def test_nothing_to_count():
    assert gated("t", True, []).reason == NO_FINE_QUESTION
    assert gated("t", True, [None]) == Scored(task="t", score=0.0, questions=2, unread=1)
    assert pool([])["score_mean"] is pool([])["read_mean"] is pool([])["coverage"] is None
    assert pool([])["score_sum"] == 0


def answer(level: str, right: bool | None, **tags: str) -> ResponseScored:
    return ResponseScored(
        id="r",
        model="m",
        protocol="vlm2",
        outcome=OutcomeKind.UNSCORED if right is None else OutcomeKind.SCORED,
        reason="unreadable_reply" if right is None else "",
        score=None if right is None else float(right),
        tags={"sequence": "s1", "task": "t", "level": level} | tags,
    )


def of(*answers: ResponseScored, seconds: float = math.inf) -> list[Scored]:
    return score_outcomes(((Place(Path("live"), at), one) for at, one in enumerate(answers)), seconds)


@given(st.permutations([("coarse", False), ("fine", True), ("fine", True)]))
def test_a_sequence_is_scored_once_its_last_answer_is_there(answers):
    said = [answer(level, right, questions="3") for level, right in answers]
    # Two of three answers are right, and the metric is 0.
    assert of(*said) == [Scored(task="t", score=0.0, read=0.0, questions=3)]
    (early,) = of(*said[:-1])
    assert early.score is None and early.reason == "group_timed_out: 2 of 3 came"


def test_what_never_completes_and_what_comes_too_late_have_their_reasons():
    said = [answer("coarse", True, questions="3"), answer("fine", True, questions="3")]
    late = msgspec.structs.replace(said[1], recorded_at=101.0)
    for answers in ([*said, late], [late, *said]):
        found = of(*answers, seconds=100)
        assert [one.reason for one in found] == ["group_timed_out: 2 of 3 came", "group_late: 1 of 3 came"]
        assert [one.score for one in of(*answers, seconds=101)] == [1.0]


def test_a_sequence_that_is_asked_again_is_another_group():
    said = [answer("coarse", True, questions="2"), answer("fine", True, questions="2")]
    again = [msgspec.structs.replace(one, recorded_at=5.0, score=0.0) for one in said]
    assert [one.score for one in of(*said, *again)] == [1.0, 0.0]
    with pytest.raises(FileFormatError, match="s1 has two coarse questions"):
        of(said[0], said[0], said[1])


@given(scored)
def test_sum_and_mean(found):
    pooled = tally(found)
    assert pooled["sequences"] == len(found)
    assert 0 <= pooled["score_sum"] <= len(found)
    if pooled["score_mean"] is not None:
        scored = pooled["sequences"] - pooled["unscored"]
        assert pooled["score_mean"] * scored == pytest.approx(pooled["score_sum"])
    tasks = pooled["by_task"].values()
    assert math.fsum(one["score_sum"] for one in tasks) == pytest.approx(pooled["score_sum"])
    assert sum(one["sequences"] for one in tasks) == len(found)
    assert sum(pooled["unscored_by_reason"].values()) == pooled["unscored"]


def test_replies_are_read():
    asked = ImageSequence(
        sequence="1",
        task="count",
        coarse=Asked(
            question="How many distinct shirts are there?", answer="There are three shirts.", truth="3"
        ),
        fine=(
            Asked(question="Is the first shirt red?", answer="Yes, it is.", truth="yes"),
            Asked(question="Is the second shirt red?", answer="Yes.", truth="no"),
            Asked(question="Is the third shirt red?", answer="Hard to tell.", truth="no"),
        ),
    )
    assert score_sequence(asked) == Scored(task="count", score=1 / 3, read=0.5, questions=4, unread=1)
