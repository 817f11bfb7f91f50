"""What is said of a scene is read back as what is in it, by the world's own grammar."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.miniature import language, questions, reading
from groundwatch.miniature.reading import holds
from groundwatch.miniature.world import Scene, Thing, changed, scenes

SEEDS = st.integers(0, 2**40)
MANNERS = st.integers(0, len(language.PROMPTS) - 1)
COUNTED = 2
"""The manner that gives numbers and colors in place of whole things."""


@given(SEEDS, MANNERS)
def test_a_right_answer_is_read_without_rest_and_holds(seed: int, manner: int) -> None:
    shown = next(scenes(seed))
    text = language.answer(shown, manner)
    stated = reading.read(text)
    assert stated.unread == ()
    assert stated.facts
    assert all(holds(shown, fact) is True for fact in stated.facts)
    found = reading.truth(text, shown)
    assert found.rate == 0
    assert found.wrong_things == 0
    if manner != COUNTED:
        assert found.things_found == len(shown.things)


@given(SEEDS, MANNERS)
def test_an_answer_about_another_scene_is_told_apart(seed: int, manner: int) -> None:
    shown = next(scenes(seed))
    other = changed(shown, 1, Random(seed))
    if manner == COUNTED or _phrases(other) == _phrases(shown):
        return
    found = reading.truth(language.answer(other, manner), shown)
    assert found.things_found < len(shown.things) or found.wrong_things


def _phrases(shown: Scene) -> set[str]:
    """What can be told apart where no places are said."""
    return {language.phrase(thing) for thing in shown.things}


def test_truth_counts_what_is_wrong() -> None:
    shown = Scene(things=(Thing(kind="ball", color="red", size="small", place="top left"),), seed=0)
    found = reading.truth(
        "There is a small blue ball in the top left corner. A large red moon is in the top right corner. "
        "It looks calm and simple. Colorless ideas sleep.",
        shown,
    )
    assert (found.facts, found.false_facts) == (8, 5)
    assert (found.things, found.wrong_things, found.things_found) == (2, 2, 0)
    assert found.false_kinds == ("moon",)
    assert found.kinds_named == {"ball", "moon"}


def test_what_is_no_english_of_this_world_is_unread() -> None:
    assert reading.read("The moon sings loudly. nonono").unread == ("The moon sings loudly.", "nonono")
    assert reading.truth("Hello.", Scene(things=(), seed=0)).rate is None


@given(SEEDS, st.integers(0, 2))
def test_questions_about_two_scenes(seed: int, changes: int) -> None:
    first = next(scenes(seed))
    second = changed(first, changes, Random(seed))
    (coarse, same), *fine = questions.pair_questions(first, second, Random(seed), 6)
    assert (coarse, same) == (questions.COARSE, changes == 0)
    assert sum(truth for _, truth in fine) == len(fine) / 2
    for question, truth in fine:
        shown = second if question.startswith("In image 2") else first
        words = question.removesuffix("?").split(", ", 1)[1]
        text = words.replace("is there", "There is").replace("is the", "The")
        if text.startswith("The "):
            subject, value = text.rsplit(" ", 1)
            text = f"{subject} is {value}"
        assert holds(shown, f"{text}.") is truth, question


@pytest.mark.parametrize("manner", range(len(language.PROMPTS)))
def test_prompts_of_a_manner_belong_to_it_alone(manner: int) -> None:
    others = {prompt for at, prompts in enumerate(language.PROMPTS) if at != manner for prompt in prompts}
    assert not others & set(language.PROMPTS[manner])
