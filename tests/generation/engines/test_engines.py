"""What every generation engine keeps to."""

from __future__ import annotations

import pytest
from tests.support.chains import seed_picture

from groundwatch.errors import GroundwatchError, SettingsError, Unscorable
from groundwatch.generation.engines import build
from groundwatch.generation.engines.base import Generated, GenerationEngine
from groundwatch.runtime.images import check_image
from groundwatch.runtime.settings import IntakeSettings, StageSettings

RED = "The cell in row 1, column 2 is red."


@pytest.fixture(params=["", "none", "stand-in"])
def engine(request: pytest.FixtureRequest) -> GenerationEngine:
    """Every kind of engine."""
    return build(StageSettings(engine=request.param))


async def test_one_result_for_each_in_order(engine: GenerationEngine) -> None:
    made = await engine.generate([RED, "Nothing.", RED])
    assert len(made) == 3
    assert [isinstance(one, Generated | GroundwatchError) for one in made] == [True] * 3
    if isinstance(made[0], Generated):
        assert made[0] == made[2] != made[1]
    vectors = await engine.encode([seed_picture(1), seed_picture(2)])
    assert len(vectors) == 2
    assert await engine.generate([]) == [] and await engine.encode([]) == []
    await engine.close()


def test_the_judge_has_the_prompts_digest(engine: GenerationEngine) -> None:
    assert engine.judge("a") == engine.judge("a") != engine.judge("b")


async def test_no_engine_says_so() -> None:
    engine = build(StageSettings())
    for result in (*await engine.generate([RED]), *await engine.encode([seed_picture(1)])):
        assert isinstance(result, Unscorable) and result.reason == "not_configured"


async def test_the_stand_in_paints_what_the_text_names() -> None:
    engine = build(StageSettings(engine="stand-in"))
    red, wrong = await engine.generate([RED, "The cell in row 9, column 0 is red, row 1, column 1 is mauve."])
    assert isinstance(red, Generated) and isinstance(wrong, Generated)
    assert check_image(red.image, IntakeSettings()).width == 64
    one, other, empty = await engine.encode([red.image, wrong.image, red.image])
    assert one == empty != other
    assert any(one) and any(other)
    (unread,) = await engine.encode([b"no image"])
    assert isinstance(unread, Unscorable) and unread.reason == "unreadable_image"


def test_an_unknown_engine_lists_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"'generation.engine': no engine 'x'; known are none, stand-in"):
        build(StageSettings(engine="x"))
