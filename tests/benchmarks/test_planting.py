from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.events import Reference
from groundwatch.language.subsentences import split
from groundwatch.protocols.planted import Kind
from groundwatch_benchmarks.planting import (
    APART,
    FEWEST,
    MOST,
    RATES,
    Caption,
    base,
    comparable,
    plant,
    rank,
    words,
)

REFERENCE = Reference(
    objects=("woman", "umbrella", "taxi", "dogs", "bench", "coat", "street"),
    triplets=(
        ("umbrella", "is", "red"),
        ("coat", "is", "black"),
        ("woman", "wearing", "coat"),
        ("woman", "sitting on", "bench"),
        ("dogs", "count", "three"),
        ("taxi", "behind", "bench"),
    ),
    complete=True,
)
CAPTION = Caption(
    (
        "A woman in a black coat is sitting on a bench.",
        "An old red umbrella lies on the street, and three small dogs are near it.",
        "A taxi is parked behind the bench.",
    ),
    REFERENCE,
)


def planted(kind: Kind, seed: int = 1):
    return plant(CAPTION, Random(seed), {kind: 1.0})


@pytest.mark.parametrize(
    ("kind", "unit", "instead_of"),
    [
        (Kind.COLOR, 1, "red"),
        (Kind.CLOTHING, 0, "black"),
        (Kind.COUNT, 2, "three"),
        (Kind.ACTION, 0, "sitting"),
        (Kind.POSITION, 3, "behind"),
    ],
)
def test_words_are_exchanged_where_the_reference_speaks_of_them(kind: Kind, unit: int, instead_of: str):
    found = planted(kind)
    one = next(one for one in found.planted if one.unit == unit)
    assert (one.kind, one.instead_of) == (kind, instead_of)
    span = split(found.answer)[unit]
    said = found.answer[span.start : span.end]
    assert one.text in said and instead_of not in said.split()


@pytest.mark.parametrize("kind", [Kind.OBJECT, Kind.THING])
def test_things_that_are_not_there_are_inserted(kind: Kind):
    found = planted(kind)
    assert len(found.planted) == len(CAPTION.sentences)
    spans = split(found.answer)
    for one in found.planted:
        name = one.text.partition(" ")[2]
        assert name.casefold() in found.answer[spans[one.unit].start : spans[one.unit].end].casefold()
        assert name not in REFERENCE.objects
    assert len({one.text for one in found.planted}) == len(found.planted)


def test_an_article_follows_its_word():
    answers = {planted(Kind.COLOR, seed).answer for seed in range(40)}
    plain = Caption(("A red umbrella lies there.",), REFERENCE)
    answers |= {plant(plain, Random(seed), {Kind.COLOR: 1.0}).answer for seed in range(40)}
    orange = Caption(("An orange taxi waits.",), Reference(triplets=(("taxi", "is", "orange"),)))
    answers |= {plant(orange, Random(seed), {Kind.COLOR: 1.0}).answer for seed in range(40)}
    for answer in answers:
        assert " a orange" not in answer and not answer.startswith(("A orange", "An blue", "An green"))


def test_nothing_is_planted_at_rate_zero():
    found = plant(CAPTION, Random(3), dict.fromkeys(RATES, 0.0))
    assert (found.answer, found.planted) == (" ".join(CAPTION.sentences), ())


def test_no_room_is_no_hallucination():
    bare = Caption(("Something is there.",), Reference())
    assert plant(bare, Random(1), {Kind.COLOR: 1.0, Kind.COUNT: 1.0, Kind.POSITION: 1.0}).planted == ()


@given(st.integers(0, 10_000), st.sets(st.sampled_from(list(RATES))))
def test_the_same_seed_plants_the_same_and_says_where(seed: int, kinds: set[Kind]):
    rates = {kind: RATES[kind] for kind in kinds}
    found = plant(CAPTION, Random(seed), rates)
    assert found == plant(CAPTION, Random(seed), rates)
    assert {one.kind for one in found.planted} <= kinds
    assert len(found.planted) <= len(CAPTION.sentences)
    spans = split(found.answer)
    for one in found.planted:
        assert one.text.casefold() in found.answer[spans[one.unit].start : spans[one.unit].end].casefold()


@pytest.mark.parametrize(
    ("name", "single"), [("two women", "woman"), ("shelves", "shelf"), ("glass", "glass"), ("", "")]
)
def test_names_are_compared_by_their_last_word(name: str, single: str):
    assert base(name) == single


METRES = words().metres
NAMES = st.sets(st.sampled_from(sorted(METRES)), max_size=12)


@given(NAMES, st.integers(0, 1000))
def test_what_is_compared_is_far_apart_and_from_large_to_small(names: set[str], seed: int):
    found = comparable([*names, "love"], Random(seed))
    assert found == () or FEWEST <= len(found) <= MOST
    assert set(found) <= names
    assert all(METRES[one] >= APART * METRES[other] for one, other in pairwise(found))
    assert found == comparable([*sorted(names, reverse=True), "love"], Random(seed))


@given(NAMES, st.integers(0, 1000), st.booleans())
def test_things_are_first_said_in_order_but_for_the_two_exchanged(names: set[str], seed: int, wrong: bool):
    things = comparable(names, Random(seed))
    if not things:
        return
    found = rank(things, Random(seed), wrong=wrong)
    words = found.answer.casefold().replace(".", " ").replace(",", " ") + " "
    said = sorted(things, key=lambda name: words.index(f" {name} "))
    expected = list(things)
    if wrong:
        assert found.exchanged is not None
        first, second = (things.index(name) for name in found.exchanged)
        assert first < second
        expected[first], expected[second] = expected[second], expected[first]
    else:
        assert found.exchanged is None
    assert said == expected
    assert found == rank(things, Random(seed), wrong=wrong)


def test_one_thing_cannot_be_compared():
    with pytest.raises(ValueError, match="nothing to compare"):
        rank(["dog"], Random(0), wrong=False)
