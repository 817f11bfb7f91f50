"""VALOR's features from answers, by rules."""

from __future__ import annotations

import pytest

from groundwatch.events import ResponseRecorded
from groundwatch.extraction.engines.base import Extraction
from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.valor.protocol import PROTOCOLS
from groundwatch.protocols.valor.scoring import Subset

SCENE = (
    "The image shows two green apples on a white table. A red cup is to the left of the apples. "
    "A man in a blue jacket sits behind the table."
)


@pytest.fixture(scope="module")
def engine() -> LinguisticEngine:
    return LinguisticEngine()


async def found(engine: LinguisticEngine, subset: Subset, answer: str) -> list[str]:
    (result,) = await engine.extract([ResponseRecorded(id="1", model="m", answer=answer)], PROTOCOLS[subset])
    assert isinstance(result, Extraction)
    return [claim.text for claim in result.claims]


async def test_objects_are_things_in_the_singular(engine: LinguisticEngine):
    objects = await found(engine, Subset.OBJECT_EXISTENCE, SCENE)
    assert {"apple", "table", "cup", "man", "jacket"} <= set(objects) and "image" not in objects


async def test_attributes_count_things_and_leave_people_out(engine: LinguisticEngine):
    pairs = await found(engine, Subset.ATTRIBUTE_OBJECT, SCENE)
    assert sorted(pairs) == ["(green, apple)", "(green, apple)", "(red, cup)", "(white, table)"]


async def test_what_is_said_twice_is_one_feature(engine: LinguisticEngine):
    answer = "The car is red. The car is red. The car is beside a tree. The car is beside a tree."
    assert await found(engine, Subset.ATTRIBUTE_OBJECT, answer) == ["(red, car)"]
    assert len(await found(engine, Subset.RELATION_POSITIONAL, answer)) == 1


async def test_the_whole_caption_is_read(engine: LinguisticEngine):
    """Also what FaithScore leaves out as analysis: table 8 takes "all the objects from the captions"."""
    answer = "A bus is on the street. The umbrellas indicate that it might rain soon."
    assert {"bus", "street", "umbrella"} <= set(await found(engine, Subset.OBJECT_EXISTENCE, answer))
    (read,) = await engine.extract([ResponseRecorded(id="1", model="m", answer=answer)], FaithScore())
    assert isinstance(read, Extraction) and "umbrella" not in str(read.claims)


async def test_what_people_wear_is_their_attribute(engine: LinguisticEngine):
    assert await found(engine, Subset.ATTRIBUTE_PEOPLE, SCENE) == ["(blue, jacket)"]


async def test_relations_are_places(engine: LinguisticEngine):
    relations = await found(engine, Subset.RELATION_POSITIONAL, SCENE)
    assert "The cup is to the left of the apples" in relations


async def test_sizes_follow_the_order_of_speech(engine: LinguisticEngine):
    answer = "A bed is the largest. Then there is a lamp. The smallest thing is a book."
    ranked = await found(engine, Subset.RELATION_COMPARATIVE, answer)
    assert ranked[:2] == ["bed", "lamp"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The box is larger than the ball.", ["box", "ball"]),
        ("The ball is smaller than the box.", ["box", "ball"]),
        ("There is a cup, a ball and a box. The box is bigger than the ball.", ["cup", "box", "ball"]),
        ("The ball is smaller than the box. The box is smaller than the ball.", ["ball", "box"]),
    ],
)
async def test_what_is_said_to_be_larger_ranks_first(
    engine: LinguisticEngine, answer: str, expected: list[str]
):
    assert await found(engine, Subset.RELATION_COMPARATIVE, answer) == expected


async def test_than_is_no_object(engine: LinguisticEngine):
    objects = await found(engine, Subset.OBJECT_EXISTENCE, "The box is taller than the ball.")
    assert objects == ["box", "ball"]
    assert await found(engine, Subset.RELATION_POSITIONAL, "The box is taller than the ball.") == []


async def test_an_answer_without_words_has_no_features(engine: LinguisticEngine):
    assert await found(engine, Subset.OBJECT_EXISTENCE, "") == []
