"""VALOR's features from what is read of answers."""

from __future__ import annotations

import time

import pytest

from groundwatch.events import ResponseRecorded
from groundwatch.extraction.engines.base import Extraction
from groundwatch.extraction.engines.reader import ReaderEngine
from groundwatch.protocols.valor import extraction
from groundwatch.protocols.valor.protocol import PROTOCOLS
from groundwatch.protocols.valor.scoring import Subset

SCENE = (
    "The image shows two green apples on a white table. A red cup is to the left of the apples. "
    "A man in a blue jacket sits behind the table."
)


@pytest.fixture(scope="module")
def engine() -> ReaderEngine:
    return ReaderEngine()


async def found(engine: ReaderEngine, subset: Subset, answer: str) -> list[str]:
    (result,) = await engine.extract([ResponseRecorded(id="1", model="m", answer=answer)], PROTOCOLS[subset])
    assert isinstance(result, Extraction)
    return [claim.text for claim in result.claims]


async def test_objects_are_things_in_the_singular(engine: ReaderEngine):
    objects = await found(engine, Subset.OBJECT_EXISTENCE, SCENE)
    assert {"apple", "table", "cup", "man", "jacket"} <= set(objects) and "image" not in objects


async def test_attributes_count_things_and_leave_people_out(engine: ReaderEngine):
    pairs = await found(engine, Subset.ATTRIBUTE_OBJECT, SCENE)
    assert sorted(pairs) == ["(green, apple)", "(green, apple)", "(red, cup)", "(white, table)"]


async def test_what_is_said_twice_is_one_feature(engine: ReaderEngine):
    answer = "The car is red. The car is red. The car is beside a tree. The car is beside a tree."
    assert await found(engine, Subset.ATTRIBUTE_OBJECT, answer) == ["(red, car)"]
    assert len(await found(engine, Subset.RELATION_POSITIONAL, answer)) == 1


async def test_the_whole_caption_is_read(engine: ReaderEngine):
    """Also what FaithScore leaves out as analysis: table 8 takes "all the objects from the captions"."""
    answer = "A bus is on the street. The umbrellas indicate that it might rain soon."
    assert {"bus", "street", "umbrella"} <= set(await found(engine, Subset.OBJECT_EXISTENCE, answer))


async def test_what_people_wear_is_their_attribute(engine: ReaderEngine):
    assert await found(engine, Subset.ATTRIBUTE_PEOPLE, SCENE) == ["(blue, jacket)"]


async def test_relations_are_places(engine: ReaderEngine):
    relations = await found(engine, Subset.RELATION_POSITIONAL, SCENE)
    assert "The cup is to the left of the apples" in relations


async def test_sizes_follow_the_order_of_speech(engine: ReaderEngine):
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
async def test_what_is_said_to_be_larger_ranks_first(engine: ReaderEngine, answer: str, expected: list[str]):
    assert await found(engine, Subset.RELATION_COMPARATIVE, answer) == expected


async def test_than_is_no_object(engine: ReaderEngine):
    objects = await found(engine, Subset.OBJECT_EXISTENCE, "The box is taller than the ball.")
    assert objects == ["box", "ball"]
    assert await found(engine, Subset.RELATION_POSITIONAL, "The box is taller than the ball.") == []


async def test_an_answer_without_words_has_no_features(engine: ReaderEngine):
    assert await found(engine, Subset.OBJECT_EXISTENCE, "") == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("There isn't a cat. A dog sleeps on a sofa. There is no bird.", ["dog", "sofa"]),
        ("There are five people: three men and two women.", ["people", "man", "woman"]),
    ],
)
async def test_what_is_denied_is_no_object(engine: ReaderEngine, answer: str, expected: list[str]):
    objects = await found(engine, Subset.OBJECT_EXISTENCE, answer)
    assert [name.replace("person", "people") for name in objects] == expected


async def test_each_count_is_of_its_own_things(engine: ReaderEngine):
    answer = "There are three red cups and two blue cups on the table."
    pairs = await found(engine, Subset.ATTRIBUTE_OBJECT, answer)
    assert sorted(pairs) == ["(blue, cup)"] * 2 + ["(red, cup)"] * 3


@pytest.mark.parametrize(
    "answer", ["Five cups: two red, three blue.", "There are five cups: two are red and three are blue."]
)
async def test_parts_of_a_number_are_counted_each(engine: ReaderEngine, answer: str):
    pairs = await found(engine, Subset.ATTRIBUTE_OBJECT, answer)
    assert sorted(pairs) == ["(blue, cup)"] * 3 + ["(red, cup)"] * 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The dog is not larger than the car.", ["car", "dog"]),
        ("The box isn't smaller than the ball.", ["box", "ball"]),
        ("The stool is no taller than the lamp.", ["lamp", "stool"]),
    ],
)
async def test_a_comparison_that_is_denied_ranks_the_other_way(
    engine: ReaderEngine, answer: str, expected: list[str]
):
    assert await found(engine, Subset.RELATION_COMPARATIVE, answer) == expected


async def test_clothes_in_a_coordination_are_each_worn(engine: ReaderEngine):
    answer = "A man is wearing a blue shirt and a red hat. The woman wears black shoes and white pants."
    assert sorted(await found(engine, Subset.ATTRIBUTE_PEOPLE, answer)) == [
        "(black, shoe)",
        "(blue, shirt)",
        "(red, hat)",
        "(white, pants)",
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("To the left of the chair is a table.", "The table is to the left of the chair"),
        ("To the right of the tent stands a goat.", "The goat is to the right of the tent"),
        ("On the left of the image is a dog.", "The dog is on the left of the image"),
        ("The bottles are lined up under the shelves.", "The bottles are under the shelves"),
        ("A cat is in the center.", "The cat is in the center of the image"),
        ("In the center of the image there is a vase.", "The vase is in the center of the image"),
    ],
)
async def test_a_place_is_said_in_many_ways(engine: ReaderEngine, answer: str, expected: str):
    assert expected in await found(engine, Subset.RELATION_POSITIONAL, answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("From largest to smallest:\n1. Table\n2. Chair\n3. Cup", ["table", "chair", "cup"]),
        ("By size:\n3. Cup\n1. Table\n2. Chair", ["table", "chair", "cup"]),
        ("From smallest to largest:\n1. Cup\n2. Chair\n3. Table", ["table", "chair", "cup"]),
        ("The smallest thing is a book. The largest is the bed. There is a lamp.", ["bed", "lamp", "book"]),
        ("There is a cup and a lamp. The second largest object is the chair. The largest is the table.",
         ["table", "chair", "cup", "lamp"]),
        ("The dog is smaller than the tree. The house is larger than the tree.", ["house", "tree", "dog"]),
    ],
)  # fmt: skip
async def test_the_words_rank_and_not_the_order_of_speech(
    engine: ReaderEngine, answer: str, expected: list[str]
):
    assert await found(engine, Subset.RELATION_COMPARATIVE, answer) == expected


def test_the_number_of_an_item_is_found_in_one_look() -> None:
    answer = "Sizes:\n1. The truck\n2) the car 3. a dog\nand a cat"
    number = extraction._item_numbers(answer)
    assert [number(answer.index(name)) for name in ("Sizes", "truck", "car", "dog", "cat")] == [0, 1, 2, 3, 0]
    number = extraction._item_numbers("1. a dog " + "and a dog " * 100_000)
    begun = time.process_time()
    assert {number(at) for at in range(3, 1_000_000, 10)} == {1}
    # What looks through the line for each of them takes minutes.
    assert time.process_time() - begun < 10
