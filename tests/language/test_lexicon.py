"""The shared lexicon: lemmas, synonyms, broader concepts, values and noun phrases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.language.lexicon import Attribute, lexicon, noun_phrases
from groundwatch.language.tokens import plain_words

WORDS = lexicon()


def concept(text: str) -> str:
    return WORDS.concept(tuple(text.split()))


@pytest.mark.parametrize(
    ("plural", "single"),
    [
        ("dogs", "dog"),
        ("boxes", "box"),
        ("buses", "bus"),
        ("cherries", "cherry"),
        ("knives", "knife"),
        ("children", "child"),
        ("women", "woman"),
        ("geese", "goose"),
        ("sheep", "sheep"),
        ("dresses", "dress"),
        ("houses", "house"),
        ("vases", "vase"),
        ("tomatoes", "tomato"),
        ("bus", "bus"),
        ("people", "person"),
        ("glasses", "glasses"),
        ("wine glasses", "wine glass"),
        ("tall wine glasses", "tall wine glass"),
        ("corgis", "corgi"),
        ("surroundings", "surroundings"),
    ],
)
def test_plurals_have_their_singular(plural: str, single: str) -> None:
    assert WORDS.singular(plural) == single


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("bike", "bicycles"),
        ("guy", "gentlemen"),
        ("sofa", "couch"),
        ("doughnuts", "donut"),
        ("mobile phone", "cell phone"),
        ("motorbike", "motorcycles"),
        ("tv", "television"),
        ("road", "street"),
    ],
)
def test_synonyms_are_one_concept(one: str, other: str) -> None:
    assert concept(one) == concept(other)


@pytest.mark.parametrize(
    ("narrow", "broad"),
    [
        ("man", "person"),
        ("puppy", "animal"),
        ("dining chair", "chair"),
        ("baby elephant", "elephant"),
        ("garment bag", "bag"),
        ("saleswoman", "woman"),
        ("cup", "container"),
        ("taxi", "vehicle"),
    ],
)
def test_a_narrow_concept_is_a_broad_one_and_not_the_reverse(narrow: str, broad: str) -> None:
    assert WORDS.is_a(concept(narrow), concept(broad))
    assert not WORDS.is_a(concept(broad), concept(narrow))


@pytest.mark.parametrize("compound", ["hot dog", "teddy bear"])
def test_some_compounds_are_not_what_their_last_word_says(compound: str) -> None:
    assert not WORDS.is_a(concept(compound), concept(compound.split()[-1]))


def test_no_concept_is_broader_than_itself() -> None:
    for word in WORDS.known:
        found = WORDS.concept(tuple(word.split()))
        for broad in WORDS.ancestors(found):
            assert found not in WORDS.ancestors(broad), (found, broad)


def test_shades_entail_their_color_and_exclude_their_opposite() -> None:
    light, dark, plain = (Attribute("color", value) for value in ("light blue", "dark blue", "blue"))
    assert WORDS.entails_value(light, plain)
    assert not WORDS.entails_value(plain, light)
    assert WORDS.conflicting_values(light, dark)
    assert not WORDS.conflicting_values(light, plain)
    assert WORDS.attribute("grey") == WORDS.attribute("gray")


def test_near_colors_do_not_exclude_each_other() -> None:
    assert not WORDS.conflicting_values(Attribute("color", "silver"), Attribute("color", "gray"))
    assert WORDS.conflicting_values(Attribute("color", "red"), Attribute("color", "green"))


@given(st.sampled_from(sorted(WORDS.attributes.kinds)), st.data())
def test_conflict_is_mutual_and_excludes_entailment(kind: str, data: st.DataObject) -> None:
    values = [group[0] for group in WORDS.attributes.kinds[kind].values]
    one = Attribute(kind, data.draw(st.sampled_from(values)))
    other = Attribute(kind, data.draw(st.sampled_from(values)))
    assert WORDS.conflicting_values(one, other) == WORDS.conflicting_values(other, one)
    assert not (WORDS.conflicting_values(one, other) and WORDS.entails_value(one, other))


@pytest.mark.parametrize(
    ("text", "expected", "low", "high"),
    [
        ("two large wooden chairs", "chair", 2, 2),
        ("a group of people", "person", 2, None),
        ("at least three dogs", "dog", 3, None),
        ("several pieces of luggage", "luggage", 3, None),
        ("a pair of dogs", "dog", 2, 2),
        ("a pair of shoes", "footwear", None, None),
        ("a bottle of wine", "wine bottle", None, None),
        ("12 eggs", "egg", 12, 12),
        ("the giraffe's head", "head", None, None),
    ],
)
def test_noun_phrases_name_a_concept_and_how_many(
    text: str, expected: str, low: int | None, high: int | None
) -> None:
    (phrase,) = noun_phrases(plain_words(text), WORDS)
    assert (phrase.concept, phrase.low, phrase.high) == (expected, low, high)


def test_adjectives_before_a_list_belong_together() -> None:
    first, second = noun_phrases(plain_words("a red and black umbrella and two gloves"), WORDS)
    assert first.attributes == (Attribute("color", "red"), Attribute("color", "black"))
    assert (second.concept, second.low) == ("glove", 2)


@given(st.text(max_size=200))
def test_any_text_has_noun_phrases_or_none(text: str) -> None:
    for phrase in noun_phrases(plain_words(text), WORDS):
        assert phrase.concept
