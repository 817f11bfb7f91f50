"""Equations 6 and 7: worked examples, bounds, order, duplicates and empty sets."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.valor.scoring import Counts, Matched, Subset, count, ordered
from groundwatch_benchmarks.methods.valor.suite import pool

WORDS = st.sampled_from(["dog", "cat", "the man", "person", "Ground", "court", "tree", "(red, apple)"])
PAIRS = st.lists(st.tuples(WORDS, WORDS), max_size=8).map(tuple)
RESPONSES = st.builds(
    Matched,
    image_id=st.just("1"),
    generated=st.lists(WORDS, max_size=8).map(tuple),
    reference=st.lists(st.lists(WORDS, min_size=1, max_size=3).map(tuple), max_size=6).map(tuple),
    matched=PAIRS,
    broader=PAIRS,
)
SUBSETS = st.sampled_from(list(Subset))
UNRANKED = st.sampled_from([subset for subset in Subset if subset is not Subset.RELATION_COMPARATIVE])


def response(generated, reference, matched=(), broader=()) -> Matched:
    return Matched(
        image_id="1",
        generated=tuple(generated),
        reference=tuple((one,) if isinstance(one, str) else tuple(one) for one in reference),
        matched=tuple(dict(matched).items()) if isinstance(matched, dict) else tuple(matched),
        broader=tuple(dict(broader).items()) if isinstance(broader, dict) else tuple(broader),
    )


def test_objects_by_hand():
    found = count(
        response(
            ["couch", "sofa", "people", "dragon"],
            ["sofa", "man", "woman"],
            {"couch": "sofa", "sofa": "sofa"},
            {"people": "man"},
        ),
        Subset.OBJECT_EXISTENCE,
    )
    assert (found.faithfulness, found.coverage) == (3 / 4, 1 / 3)


def test_what_is_named_twice_counts_once_above_and_below_the_line():
    again = response(["a dog", "Dog", "cat", "Cat"], ["dog", "The dog"], {"dog": "dog"})
    assert count(again, Subset.OBJECT_EXISTENCE) == Counts(faithful=1, generated=2, covered=1, reference=1)
    ranked = response(["bed", "A bed", "cup", "bird"], ["bed", "bed", "cup"], {"bed": "bed", "cup": "cup"})
    assert count(ranked, Subset.RELATION_COMPARATIVE) == Counts(
        faithful=2, generated=3, covered=2, reference=2
    )


def test_in_the_order_of_tables_14_and_15_an_attribute_meets_only_its_own_number():
    said = ["(red, car)", "(blue, bus)", "(red, car)", "(white, van)"]
    there = ["(blue, bus)", "(red, car)", "(red, car)", "(white, van)"]
    one = response(said, there, [(text, text) for text in said])
    assert count(one, Subset.ATTRIBUTE_OBJECT).faithful == 4
    assert count(one, Subset.ATTRIBUTE_OBJECT, in_order=True) == Counts(
        faithful=2, generated=4, covered=2, reference=4, stray=2
    )


@given(RESPONSES, SUBSETS)
def test_order_finds_no_more(one: Matched, subset: Subset):
    free, held = count(one, subset), count(one, subset, in_order=True)
    assert held.faithful <= free.faithful and held.covered <= free.covered
    assert (held.generated, held.reference) == (free.generated, free.reference)


def test_a_feature_in_both_dictionaries_counts_once():
    found = count(
        response(["people", "x"], ["man"], {"people": "man"}, {"people": "man"}), Subset.OBJECT_EXISTENCE
    )
    assert found == Counts(faithful=1, generated=2, covered=1, reference=1)


def test_a_pair_outside_both_lists_counts_nowhere():
    found = count(
        response(["dog"], ["cat"], {"dog": "horse", "bird": "cat"}, {"animal": "cat"}),
        Subset.OBJECT_EXISTENCE,
    )
    assert found == Counts(faithful=0, generated=1, covered=0, reference=1, stray=3)


def test_two_wordings_of_a_relation_are_one_feature():
    reference = [["bed is left of the lamp", "lamp is right of the bed"], ["rug is below the bed"]]
    matched = {"the bed is left of the lamp": reference[0][0], "lamp is right of bed": reference[0][1]}
    found = count(response(matched, reference, matched), Subset.RELATION_POSITIONAL)
    assert (found.faithfulness, found.coverage) == (1.0, 0.5)


def test_equal_attributes_are_counted_things():
    apples = ["(red, apple)"] * 3
    pair = ("(red, apple)", "(red, apple)")
    found = count(response(apples, [*apples[:2], "(white, table)"], [pair] * 3), Subset.ATTRIBUTE_OBJECT)
    assert (found.faithful, found.generated, found.covered, found.reference, found.stray) == (2, 3, 2, 3, 1)


def test_an_alternative_leaves_room_for_what_has_none():
    reference = [["(white, bag)", "(black, bag)"], ["(white, bag)"]]
    both = ["(white, bag)", "(black, bag)"]
    found = count(response(both, reference, [(one, one) for one in both]), Subset.ATTRIBUTE_PEOPLE)
    assert (found.faithfulness, found.coverage) == (1.0, 1.0)


def test_comparative_counts_the_longest_ordered_subsequence():
    reference = ["sky", ["ground", "court"], "man", "racket"]
    generated = ["man", "sky", "court", "bird", "racket"]
    matched = {"man": "man", "sky": "sky", "court": "court", "racket": "racket"}
    found = count(response(generated, reference, matched), Subset.RELATION_COMPARATIVE)
    assert (found.faithfulness, found.coverage) == (3 / 5, 3 / 4)


def test_a_broader_concept_is_faithful_and_covers_nothing():
    found = count(
        response(["sky", "person"], ["sky", "man"], {"sky": "sky"}, {"person": "man"}),
        Subset.RELATION_COMPARATIVE,
    )
    assert (found.faithfulness, found.coverage) == (1.0, 0.5)


@given(RESPONSES, SUBSETS)
def test_both_stay_between_nothing_and_everything(one: Matched, subset: Subset):
    found = count(one, subset)
    assert 0 <= found.faithful <= found.generated
    assert 0 <= found.covered <= found.reference


@given(RESPONSES, UNRANKED, st.randoms())
def test_order_does_not_matter_where_nothing_is_ranked(one: Matched, subset: Subset, random):
    def shuffled(items):
        return tuple(random.sample(items, len(items)))

    again = Matched(
        image_id="1",
        generated=shuffled(one.generated),
        reference=shuffled(one.reference),
        matched=shuffled(one.matched),
        broader=shuffled(one.broader),
    )
    first, second = count(one, subset), count(again, subset)
    if subset in (Subset.OBJECT_EXISTENCE, Subset.RELATION_POSITIONAL):
        assert first == second
    assert (first.generated, first.reference) == (second.generated, second.reference)


@given(RESPONSES, st.data())
def test_repeating_a_known_object_changes_nothing(one: Matched, data):
    if not one.reference:
        return
    extra = data.draw(st.sampled_from(one.reference))
    again = Matched(
        image_id="1",
        generated=one.generated,
        reference=(*one.reference, extra),
        matched=one.matched * 2,
        broader=one.broader,
    )
    first, second = count(one, Subset.OBJECT_EXISTENCE), count(again, Subset.OBJECT_EXISTENCE)
    assert (first.faithfulness, first.coverage) == (second.faithfulness, second.coverage)


@given(RESPONSES, SUBSETS)
def test_broader_concepts_never_cover(one: Matched, subset: Subset):
    without = Matched(image_id="1", generated=one.generated, reference=one.reference, matched=one.matched)
    assert count(one, subset).covered == count(without, subset).covered
    assert count(one, subset).faithful >= count(without, subset).faithful


@given(SUBSETS)
def test_nothing_is_no_number(subset: Subset):
    found = pool([count(response([], []), subset)])
    assert (found["faithfulness"], found["coverage"], found["faithfulness_mean"], found["coverage_mean"]) == (
        None,
    ) * 4
    assert (found["responses"], found["unscored"]) == (1, 1)
    assert pool([])["responses"] == 0


def test_a_silent_response_covers_nothing_and_has_no_faithfulness():
    found = pool([Counts(reference=4), Counts(faithful=1, generated=2, covered=2, reference=4)])
    assert (found["faithfulness"], found["coverage"]) == (0.5, 0.25)
    assert (found["faithfulness_mean"], found["coverage_mean"], found["unscored"]) == (0.5, 0.25, 1)


def test_pooled_and_mean_differ():
    found = pool(
        [
            Counts(faithful=1, generated=1, covered=1, reference=10),
            Counts(faithful=0, generated=3, covered=2, reference=2),
        ]
    )
    assert (found["faithfulness"], found["coverage"]) == (0.25, 0.25)
    assert (found["faithfulness_mean"], found["coverage_mean"]) == (0.5, pytest.approx(0.55))


@given(
    st.lists(st.builds(Counts, faithful=st.just(1), generated=st.integers(1, 5)), max_size=6), st.randoms()
)
def test_pooling_takes_any_order(counts, random):
    first, second = pool(counts), pool(random.sample(counts, len(counts)))
    assert first["faithfulness"] == second["faithfulness"]
    assert first["faithfulness_mean"] == pytest.approx(second["faithfulness_mean"])


@given(st.lists(st.integers(0, 6), max_size=7))
def test_ordered_is_the_longest_rising_subsequence(ranks):
    def rises(chosen):
        return all(first < second for first, second in pairwise(chosen))

    longest = max(size for size in range(len(ranks) + 1) if any(map(rises, combinations(ranks, size))))
    assert ordered(ranks) == longest
