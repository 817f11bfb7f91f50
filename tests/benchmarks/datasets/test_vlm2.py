"""Questions by template from the cues of an image sequence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groundwatch_benchmarks.datasets.vlm2 import ABSENT, Cue, ask, build

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
