from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("textblob")
pytest.importorskip("lemminflect")

from tests.support.cases import cases

from groundwatch.events import Claim
from groundwatch.extraction.engines.linguistic.decomposer import decompose
from groundwatch.extraction.engines.linguistic.recogniser import outline

CASES = cases(__file__)


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


def test_understands_what_captions_do() -> None:
    found = {answer: facts(answer) for answer in CASES["understood"]}
    assert {
        answer: [fact for fact in wanted if fact in found[answer]]
        for answer, wanted in CASES["understood"].items()
    } == CASES["understood"]


def test_pronouns_and_missing_subjects_mean_the_entity() -> None:
    assert {
        answer: found for answer, fact in CASES["pronouns"].items() if fact not in (found := facts(answer))
    } == {}


def test_states_nothing_that_is_denied_guessed_or_no_thing() -> None:
    assert [fact for answer, fact in CASES["absent"].items() if fact in facts(answer)] == []


def relations(answer: str) -> list[str]:
    return [claim.text for claim in claims(answer) if claim.category == "relation"]


def test_a_comparison_is_a_relation() -> None:
    assert {answer: relations(answer) for answer in CASES["comparisons"]} == CASES["comparisons"]


def test_what_is_larger_than_a_house_needs_no_house() -> None:
    assert facts("The crate is larger than a house.") == [
        "There is a crate.",
        "The crate is larger than a house.",
    ]


def test_a_place_in_the_picture_is_a_relation() -> None:
    assert {answer: relations(answer) for answer in CASES["places"]} == CASES["places"]


def test_a_color_and_another_attribute_are_two_facts() -> None:
    found = {claim.text: claim.category for claim in claims("The ball is red and large.")}
    assert found["The ball is red."] == "color"
    assert found["The ball is large."] == "other"
    assert "The cat is black and white." in facts("The cat is black and white.")


def test_each_part_of_a_list_is_counted_by_itself() -> None:
    assert facts("There are two balls and one box.") == ["There are two balls.", "There is a box."]


def test_a_likeness_states_no_thing() -> None:
    stated = [fact for answer in CASES["likenesses"] for fact in facts(answer)]
    assert [
        fact for fact in stated if {"game", "child", "wide", "looks"} & set(fact.strip(".").split())
    ] == []


def test_more_than_a_number_is_no_number() -> None:
    assert facts("There are more than two balls.") == ["There are balls."]


def test_facts_come_from_descriptive_units_only_and_as_often_as_they_are_said() -> None:
    texts = ["A goat stands on a hill", "which suggests a farm", "It is white", "A goat stands on a hill"]
    found = decompose(texts, [True, False, True, True])
    said = [[claim.text for claim in found if claim.unit == unit] for unit in range(4)]
    assert said[0] == said[3] == ["There is a goat.", "There is a hill.", "The goat stands on a hill."]
    assert said[1:3] == [[], ["The goat is white."]]


def test_in_one_sub_sentence_a_fact_counts_once() -> None:
    assert facts("There is a cat and a cat.") == ["There is a cat."]


def test_what_a_phrase_takes_for_granted_counts_once() -> None:
    once = {text: facts(answer).count(text) for answer, text in CASES["granted"].items()}
    assert once == dict.fromkeys(once, 1)


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
