"""The gate, the sums and the questions of the metric on VLM²-Bench."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.vlm2.dataset import ABSENT, Cue, ask, build
from groundwatch.protocols.vlm2.scoring import (
    COARSE_UNREADABLE,
    FINE_UNREADABLE,
    NO_FINE_QUESTION,
    Asked,
    ImageSequence,
    Scored,
    gate,
    pool,
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
        reason=st.just("fine_unreadable"),
    ),
    max_size=20,
)


@given(rights)
def test_the_accuracy_behind_the_gate(fine):
    assert gate(True, fine) == (sum(fine) / len(fine), "")


@given(maybe)
def test_a_wrong_coarse_answer_gives_0(fine):
    assert gate(False, fine) == (0.0, "")


@given(maybe)
def test_an_unread_coarse_answer_gives_no_score(fine):
    assert gate(None, fine) == (None, COARSE_UNREADABLE)


@given(st.sampled_from([True, False, None]), maybe)
def test_bounds_and_reasons(coarse, fine):
    score, reason = gate(coarse, fine)
    assert (score is None) == bool(reason)
    assert score is None or 0 <= score <= 1


@given(maybe, st.randoms(), st.integers(1, 3))
def test_order_and_repetition_of_questions_do_not_matter(fine, random, times):
    shuffled = fine * times
    random.shuffle(shuffled)
    once, again = gate(True, fine)[0], gate(True, shuffled)[0]
    assert again == (None if once is None else pytest.approx(once))


def test_nothing_to_count():
    assert gate(True, []) == (None, NO_FINE_QUESTION)
    assert gate(True, [None]) == (None, FINE_UNREADABLE)
    assert pool([])["score_mean"] is None
    assert pool([])["score_sum"] == 0


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
    assert score_sequence(asked) == Scored(task="count", score=0.5, unread=1)


CUES = [
    Cue(image=1, subject="shirt", attribute="color", value="red"),
    Cue(image=2, subject="shirt", attribute="color", value="blue"),
    Cue(image=1, subject="sign", attribute="text", value="OPEN"),
    Cue(image=2, subject="Shirt", attribute="size", value="small"),
    Cue(image=1, subject="dog", attribute="presence", value="present"),
    Cue(image=2, subject="dog", attribute="presence", value=ABSENT),
]


def test_questions_by_template():
    assert {one.question: one.truth for one in build(CUES)} == {
        "In image 1, is the shirt red?": "yes",
        "In image 1, is the shirt blue?": "no",
        "In image 2, is the shirt blue?": "yes",
        "In image 2, is the shirt red?": "no",
        'In image 1, does the sign show the text "OPEN"?': "yes",
        "In image 2, is the size of the Shirt small?": "yes",
        "In image 1, is there a dog?": "yes",
        "In image 2, is there a dog?": "no",
    }


cues = st.lists(
    st.builds(
        Cue,
        image=st.integers(1, 3),
        subject=st.sampled_from(["cap", "Cap"]),
        attribute=st.sampled_from(["color", "text", "size"]),
        value=st.sampled_from(["a", "b", "B"]),
    ),
    max_size=8,
)


@given(cues, st.integers(0, 3))
def test_truths_hold_and_a_seed_repeats(found, seed):
    questions = build(found, seed=seed)
    own = {ask(cue) for cue in found}
    assert all((one.question in own) == (one.truth == "yes") for one in questions)
    assert len({one.question for one in questions}) == len(questions)
    assert build(found, seed=seed) == questions
