"""The shared lexicon: lemmas, synonyms, broader concepts, values and noun phrases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import cases

from groundwatch.language.lexicon import Attribute, lexicon, noun_phrases
from groundwatch.language.tokens import plain_words

CASES = cases(__file__)
WORDS = lexicon()


def concept(text: str) -> str:
    return WORDS.concept(tuple(text.split()))


def test_plurals_have_their_singular() -> None:
    assert {plural: WORDS.singular(plural) for plural in CASES["singulars"]} == CASES["singulars"]


def test_synonyms_are_one_concept() -> None:
    found = {(one, other): (concept(one), concept(other)) for one, other in CASES["synonyms"].items()}
    assert {names: two for names, two in found.items() if two[0] != two[1]} == {}


def test_a_narrow_concept_is_a_broad_one_and_not_the_reverse() -> None:
    both = {narrow: (concept(narrow), concept(broad)) for narrow, broad in CASES["broader"].items()}
    assert [pair for pair in both.values() if not WORDS.is_a(*pair)] == []
    assert [pair for pair in both.values() if WORDS.is_a(*reversed(pair))] == []


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


def test_noun_phrases_name_a_concept_and_how_many() -> None:
    found = []
    for text, *_ in CASES["phrases"]:
        phrases = noun_phrases(plain_words(text), WORDS)
        found += [[text, phrase.concept, phrase.low, phrase.high] for phrase in phrases]
    assert found == CASES["phrases"]


def test_adjectives_before_a_list_belong_together() -> None:
    first, second = noun_phrases(plain_words("a red and black umbrella and two gloves"), WORDS)
    assert first.attributes == (Attribute("color", "red"), Attribute("color", "black"))
    assert (second.concept, second.low) == ("glove", 2)


@given(st.text(max_size=200))
def test_any_text_has_noun_phrases_or_none(text: str) -> None:
    for phrase in noun_phrases(plain_words(text), WORDS):
        assert phrase.concept
