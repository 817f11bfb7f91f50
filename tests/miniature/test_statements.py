"""The truth of statements: pairs are what they claim, for every template and any scene."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.miniature import statements
from groundwatch.miniature.world import Scene, Thing, scenes

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
    assert statements.holds(SHOWN, text) is expected


@given(st.integers(0, 2**40))
def test_pairs_are_right_and_wrong(seed: int) -> None:
    shown = next(scenes(seed))
    for name, (right, wrong) in statements.pairs(shown, Random(seed), 12):
        assert statements.holds(shown, right) is True, name
        assert statements.holds(shown, wrong) is False, name


@given(st.integers(0, 2**40), st.sampled_from(sorted(statements.TEMPLATES)))
def test_pairs_follow_weights(seed: int, only: str) -> None:
    weights = {name: float(name == only) for name in statements.TEMPLATES}
    drawn = list(statements.pairs(next(scenes(seed)), Random(seed), 3, weights))
    assert {name for name, _ in drawn} <= {only}


def test_how_many_says_nothing_of_whether_it_holds() -> None:
    random, counts = Random(1), Counter[tuple[str, bool]]()
    for shown in islice(scenes(1), 6000):
        pair = statements.TEMPLATES["count"](shown, random)
        if pair is not None:
            for text, holds in zip(pair, (True, False), strict=True):
                counts[text.split()[2], holds] += 1
    for number in ("one", "two", "three"):
        right, wrong = counts[number, True], counts[number, False]
        assert 0.8 < right / wrong < 1.25, counts
