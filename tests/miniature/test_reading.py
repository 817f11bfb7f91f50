from __future__ import annotations

import pytest

from groundwatch.miniature.reading import holds
from groundwatch.miniature.world import Scene, Thing

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
