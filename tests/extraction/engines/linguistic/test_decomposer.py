from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("textblob")
pytest.importorskip("lemminflect")

from groundwatch.events import Claim
from groundwatch.extraction.engines.linguistic.decomposer import decompose
from groundwatch.extraction.engines.linguistic.outline import outline


def claims(answer: str) -> tuple[Claim, ...]:
    texts = [unit.text for unit in outline(answer)]
    return decompose(texts, [True] * len(texts))


def facts(answer: str) -> list[str]:
    return [claim.text for claim in claims(answer)]


def test_states_entities_relations_colors_and_other_attributes() -> None:
    found = claims("A tall woman is pushing a green stroller.")
    assert [(claim.text, claim.category) for claim in found] == [
        ("There is a woman.", "entity"),
        ("The woman is tall.", "other"),
        ("There is a stroller.", "entity"),
        ("The stroller is green.", "color"),
        ("The woman is pushing a stroller.", "relation"),
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The image shows a fox.", ["There is a fox."]),
        ("There are three kites in the sky.", ["There are three kites.", "The kites are in the sky."]),
        ("The photo features a herd of goats.", ["There are goats."]),
        ("The main subject of the photo is an old lighthouse.", ["There is a lighthouse."]),
        ("The color of the bucket is blue.", ["The bucket is blue."]),
        ("A pilot is wearing a black and white scarf.", ["The scarf is black and white."]),
        ("A dancer and a drummer are laughing.", ["The dancer is laughing.", "The drummer is laughing."]),
        ("A tray, which is placed on a stool, is round.", ["The tray is placed on a stool."]),
        ("The image features a monkey holding a banana.", ["The monkey is holding a banana."]),
        ("A zebra can be seen near the gate.", ["The zebra is near the gate."]),
        ("A lamp with a paper shade stands there.", ["The lamp has a paper shade."]),
        ("The farmer's tractor is rusty.", ["The farmer has a tractor.", "The tractor is rusty."]),
        ("A cup is filled with pencils.", ["There are pencils.", "The cup is filled with pencils."]),
        ("There are also two pigeons on the roof.", ["There are two pigeons."]),
        ("A kitten with big eyes, sitting in a basket.", ["The kitten is sitting in a basket."]),
        ("There is a hot dog on a plate.", ["There is a hot dog."]),
        ("A hen is on a shelf or a box.", ["There is a shelf or a box.", "The hen is on a shelf or a box."]),
        ("The paintings are displayed in a hall.", ["The paintings are displayed in a hall."]),
        ("Two swans, one near the shore and another far away.", ["One swan is near the shore."]),
        ("A diver in a blue suit who is holding a lamp.", ["The diver is holding a lamp."]),
        ("A guard with gloves and a red belt is waving.", ["The guard has a belt.", "The guard is waving."]),
        ("A clown in a wig and a juggler are singing.", ["The clown is singing.", "The juggler is singing."]),
        ("A tarp covers the barrels.", ["The tarp covers the barrels."]),
        ("An oar lies on the sand.", ["The oar lies on the sand."]),
        ("The lady waves while riding a camel.", ["The lady waves.", "The lady is riding a camel."]),
        ("A boy carries a pail and feeds a lamb.", ["The boy carries a pail.", "The boy feeds a lamb."]),
        ("A nurse and a doctor stand in a tent.", ["The nurse stands in a tent."]),
        ("Both guards wear boots.", ["Both guards wear boots."]),
        ("Most of the tiles are cracked.", ["There are tiles.", "Most tiles are cracked."]),
        ("Two of the four geese are asleep.", ["There are four geese.", "Two geese are asleep."]),
        ("A watering can is under the sink.", ["There is a watering can."]),
        ("A milk bottling machine is near.", ["There is a milk bottling machine."]),
        ("He wears a pair of green mittens.", ["There is a pair of mittens.", "The mittens are green."]),
        ("A crate is placed on the dock next to a boat.", ["The crate is next to a boat."]),
        ("A stamp is on the boy's sleeve and collar.", ["There is a sleeve.", "There is a collar."]),
        ("The shape of the dish is oval.", ["The dish is oval."]),
        ("A faded railing in red and white hides the pier.", ["There is a railing."]),
        ("He is holding a rope.", ["There is a person.", "The person is holding a rope."]),
        ("The photo shows a parking lot.", ["There is a parking lot."]),
        ("Vans are parked in parking spaces.", ["The vans are parked in parking spaces."]),
        ("The monks present appear to be waving.", ["The monks are waving."]),
        ("A boy is in a cape and a mask.", ["The boy is in a cape.", "The boy is in a mask."]),
        ("A clock hangs on the wall above the stove.", ["The clock is above the stove."]),
        ("A TV is on a crate.", ["There is a TV."]),
        ("The image captures a moment of a boxer on a mat.", ["The boxer is on a mat."]),
        ("A 30 year old nurse is here.", ["There is a nurse."]),
        ("Two monks on a tram looking out the door.", ["The monks are looking out the door."]),
        ("There are two goats on the lawn near the fence.", ["The goats are near the fence."]),
        ("The attic has a trunk in the corner, under a rug.", ["The trunk is under a rug."]),
        ("A camel is about to drink a pail placed on a mat.", ["The pail is placed on a mat."]),
    ],
)
def test_understands_what_captions_do(answer: str, expected: list[str]) -> None:
    assert set(expected) <= set(facts(answer))


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        ("A nurse is standing by a bed. She is reading a letter.", "The nurse is reading a letter."),
        ("A boy is on a swing. He is wearing a cap.", "The boy is wearing a cap."),
        ("A girl feeds a horse. It is brown.", "The horse is brown."),
        ("Some children play ball. They are wearing boots.", "The children are wearing boots."),
        ("A kite is flying, with a ribbon attached to it.", "The ribbon is attached to the kite."),
        ("The image depicts a sailor, wearing a hat.", "The sailor is wearing a hat."),
        ("A king and a queen sit here. They are wearing crowns.", "The people are wearing crowns."),
        ("Some ducks swim, one on a log and the others in reeds. They are wet.", "The ducks are wet."),
        ("A jockey naps, with their feet bare. They are wearing a vest.", "The jockey is wearing a vest."),
        ("A monk is in a van with a lamb standing next to it.", "The lamb is standing next to the van."),
        ("A boy and a girl run. A goat is behind them.", "The goat is behind the people."),
    ],
)
def test_pronouns_and_missing_subjects_mean_the_entity(answer: str, fact: str) -> None:
    assert fact in facts(answer)


@pytest.mark.parametrize(
    ("answer", "absent"),
    [
        ("The man is not wearing a helmet.", "There is a helmet."),
        ("A bike without a saddle leans on a wall.", "There is a saddle."),
        ("There is no dog in the yard.", "There is a dog."),
        ("The lake is not frozen.", "The lake is frozen."),
        ("The picture shows a duck.", "There is a picture."),
        ("The sailor might be holding a rope.", "The sailor is holding a rope."),
        ("A man is getting ready to open a door.", "The man opens a door."),
        ("The scene has a peaceful atmosphere.", "There is an atmosphere."),
        ("The farmer cuts the bread with a saw.", "The bread has a saw."),
        ("The sailor stands in a cabin with a parrot on a perch.", "The sailor has a parrot."),
        ("A guard with gloves and a red belt is waving.", "The belt is waving."),
        ("A crate is placed on the dock next to a boat.", "The dock is next to a boat."),
        ("The gate is a garden gate.", "The gate is a garden gate."),
        ("Two swans, one on the left side and another on the right.", "One swan is on the left side."),
        ("These colours feature a monk.", "The colours have a monk."),
        ("The purpose of the shelf includes a lamp.", "The purpose includes a lamp."),
        ("A screen is on a crate, ideal for watching a play.", "The screen is watching a play."),
        ("Vans are parked in parking spaces.", "The vans are parking spaces."),
        ("The cups are arranged in a neat manner.", "The cups are arranged in a manner."),
        ("There is a hammer. He is waving.", "The hammer is waving."),
        ("A king is here. She is waving.", "The king is waving."),
        ("The sailor can repair the mast.", "The sailor repairs the mast."),
        ("A pilot, having climbed a ladder, waves.", "The pilot has."),
        ("There are stools, with some being used by monks.", "The stools have stools."),
        ("The girl is enjoying the experience.", "The girl is enjoying the experience."),
    ],
)
def test_states_nothing_that_is_denied_guessed_or_no_thing(answer: str, absent: str) -> None:
    assert absent not in facts(answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The box is larger than the ball.", ["The box is larger than the ball."]),
        ("The box is much smaller than the ball.", ["The box is smaller than the ball."]),
        (
            "The pole is taller than the hut and the cart.",
            ["The pole is taller than the hut.", "The pole is taller than the cart."],
        ),
        ("The box is more colorful than the ball.", ["The box is more colorful than the ball."]),
        ("The ball is smaller and darker than the box.", ["The ball is smaller and darker than the box."]),
        ("The box is as big as the ball.", ["The box is as big as the ball."]),
        ("The box is the same color as the ball.", ["The box is the same color as the ball."]),
        ("The box has the same size as the ball.", ["The box has the same size as the ball."]),
        ("There is a box that is larger than the ball.", ["The box is larger than the ball."]),
        (
            "A ball is in a box. It is smaller than the box.",
            ["The ball is in a box.", "The ball is smaller than the box."],
        ),
        (
            "A box larger than the ball is on a raft.",
            ["The box is larger than the ball.", "The box is on a raft."],
        ),
    ],
)
def test_a_comparison_is_a_relation(answer: str, expected: list[str]) -> None:
    assert [claim.text for claim in claims(answer) if claim.category == "relation"] == expected


def test_what_is_larger_than_a_house_needs_no_house() -> None:
    assert facts("The crate is larger than a house.") == [
        "There is a crate.",
        "The crate is larger than a house.",
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The tree is at the top right.", ["The tree is at the top right."]),
        ("There is a ball at the upper left.", ["The ball is at the upper left."]),
        ("There is a ball at the top left of the image.", ["The ball is at the top left of the image."]),
        ("There is a red ball in the top left corner.", ["The ball is in the top left corner."]),
        ("A large crate is in the bottom right corner.", ["The crate is in the bottom right corner."]),
        ("The moon is in the lower right.", ["The moon is in the lower right."]),
        (
            "At the bottom there is a cup and a jug.",
            ["The cup is at the bottom.", "The jug is at the bottom."],
        ),
        (
            "A cup is in the top left corner and a jug is in the bottom right corner.",
            ["The cup is in the top left corner.", "The jug is in the bottom right corner."],
        ),
        (
            "At the top there is a red ball on the left and a blue box on the right.",
            [
                "The ball is at the top.",
                "The ball is on the left.",
                "The box is at the top.",
                "The box is on the right.",
            ],
        ),
    ],
)
def test_a_place_in_the_picture_is_a_relation(answer: str, expected: list[str]) -> None:
    assert [claim.text for claim in claims(answer) if claim.category == "relation"] == expected


def test_a_color_and_another_attribute_are_two_facts() -> None:
    found = {claim.text: claim.category for claim in claims("The ball is red and large.")}
    assert found["The ball is red."] == "color"
    assert found["The ball is large."] == "other"
    assert "The cat is black and white." in facts("The cat is black and white.")


def test_each_part_of_a_list_is_counted_by_itself() -> None:
    assert facts("There are two balls and one box.") == ["There are two balls.", "There is a box."]


@pytest.mark.parametrize(
    "answer",
    [
        "It looks like a game.",
        "The shelf is taller than it is wide.",
        "The picture looks as if a child drew it.",
    ],
)
def test_a_likeness_states_no_thing(answer: str) -> None:
    assert not {"game", "child", "wide", "looks"} & {
        word.strip(".") for fact in facts(answer) for word in fact.split()
    }


def test_more_than_a_number_is_no_number() -> None:
    assert facts("There are more than two balls.") == ["There are balls."]


def test_facts_come_from_descriptive_units_only_and_once() -> None:
    texts = ["A goat stands on a hill", "which suggests a farm", "It is white", "A goat stands on a hill"]
    found = decompose(texts, [True, False, True, True])
    assert {claim.unit for claim in found} == {0, 2}
    assert len({claim.text for claim in found}) == len(found)
    assert "The goat is white." in [claim.text for claim in found]


def test_an_analytical_unit_still_names_what_a_pronoun_means() -> None:
    found = decompose(["Perhaps a waiter is near", "He is carrying a tray"], [False, True])
    assert "The waiter is carrying a tray." in [claim.text for claim in found]


@pytest.mark.parametrize(
    "answer",
    [
        *("", "...", "😀😀", "שלום עולם", "一只狗", "\ud800", "\x00\x1b[0m", "1 2 3", "'s of and"),
        *("The " * 2_000, "a" * 50_000, "of the of the " * 3_000, "red and " * 2_000, "x's " * 2_000),
        "the man's " * 2_000,
    ],
)
def test_no_text_breaks_it(answer: str) -> None:
    for claim in claims(answer):
        assert claim.text.endswith(".")


words = st.sampled_from(
    [
        "a",
        "the",
        "two",
        "some",
        "his",
        "'s",
        "man",
        "dogs",
        "it",
        "they",
        "one",
        "others",
        "red",
        "wooden",
        "is",
        "are",
        "not",
        "wearing",
        "placed",
        "with",
        "of",
        "in",
        "on",
        "which",
        "and",
        "or",
        "there",
        "while",
        "image",
        "scene",
        "pair",
        "group",
        "side",
        "left",
        "to",
        "sitting",
        "visible",
        "closer",
        "no",
        "each",
        "other",
        "can",
        "be",
        "seen",
    ]
)


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=80), st.lists(words, max_size=30).map(" ".join)))
def test_claims_are_sentences_of_known_categories(answer: str) -> None:
    for claim in claims(answer):
        assert claim.text.endswith(".")
        assert claim.text[:1] == claim.text[:1].upper()
        assert claim.category in {"entity", "relation", "color", "count", "other"}
