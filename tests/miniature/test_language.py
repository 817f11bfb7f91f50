"""What is said of a scene is read back as what is in it, by the world's own grammar."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.miniature import language
from groundwatch.miniature.language import holds
from groundwatch.miniature.world import Scene, Thing, changed, scenes
from groundwatch_benchmarks.miniature_facts import COARSE, pair_questions
from tools.miniature import answers

SEEDS = st.integers(0, 2**40)
MANNERS = st.integers(0, len(language.PROMPTS) - 1)
COUNTED = 2
"""The manner that gives numbers and colors in place of whole things."""


@given(SEEDS, MANNERS)
def test_a_right_answer_is_read_without_rest_and_holds(seed: int, manner: int) -> None:
    shown = next(scenes(seed))
    text = answers.answer(shown, manner)
    stated = language.read(text)
    assert stated.unread == ()
    assert stated.facts
    assert all(holds(shown, fact) is True for fact in stated.facts)
    found = language.truth(text, shown)
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
    found = language.truth(answers.answer(other, manner), shown)
    assert found.things_found < len(shown.things) or found.wrong_things


def _phrases(shown: Scene) -> set[str]:
    """What can be told apart where no places are said."""
    return {language.phrase(thing) for thing in shown.things}


def test_truth_counts_what_is_wrong() -> None:
    shown = Scene(things=(Thing(kind="ball", color="red", size="small", place="top left"),), seed=0)
    found = language.truth(
        "There is a small blue ball in the top left corner. A large red moon is in the top right corner. "
        "It looks calm and simple. Colorless ideas sleep.",
        shown,
    )
    assert (found.facts, found.false_facts) == (8, 5)
    assert (found.things, found.wrong_things, found.things_found) == (2, 2, 0)
    assert found.false_kinds == ("moon",)
    assert found.kinds_named == {"ball", "moon"}


def test_what_is_no_english_of_this_world_is_unread() -> None:
    assert language.read("The moon sings loudly. nonono").unread == ("The moon sings loudly.", "nonono")
    assert language.truth("Hello.", Scene(things=(), seed=0)).rate is None


@given(SEEDS, st.integers(0, 2))
def test_questions_about_two_scenes(seed: int, changes: int) -> None:
    first = next(scenes(seed))
    second = changed(first, changes, Random(seed))
    (coarse, same), *fine = pair_questions(first, second, Random(seed), 6)
    assert (coarse, same) == (COARSE, changes == 0)
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


SHOWN = Scene(
    things=(
        Thing(kind="ball", color="red", size="small", place="top left"),
        Thing(kind="box", color="blue", size="large", place="top right"),
        Thing(kind="ball", color="green", size="large", place="bottom left"),
    ),
    seed=0,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("There is a ball.", True),
        ("There is a moon.", False),
        ("There are balls.", True),
        ("There are boxes.", False),
        ("There is a red ball.", True),
        ("There is a red box.", False),
        ("There are two balls.", True),
        ("There is one ball.", False),
        ("There are three objects.", True),
        ("There are three objects in the picture.", True),
        ("The ball is red.", True),
        ("The ball is blue.", False),
        ("The moon is red.", False),
        ("The balls are red.", False),
        ("The box is in the top right corner.", True),
        ("The box is at the top right.", True),
        ("The box is in the top left corner.", False),
        ("The box is on the right.", True),
        ("The ball is to the left of the box.", True),
        ("The box is to the left of the ball.", False),
        ("The green ball is below the box.", True),
        ("The red ball is below the box.", False),
        ("The box is larger than the ball.", True),
        ("The box is smaller than the ball.", False),
        ("There is a small red ball in the top left corner.", True),
        ("There is a large red ball in the top left corner.", False),
        ("It looks calm and simple.", None),
        ("The ball sings.", None),
        ("", None),
    ],
)
def test_holds(text: str, expected: bool | None) -> None:
    assert holds(SHOWN, text) is expected
