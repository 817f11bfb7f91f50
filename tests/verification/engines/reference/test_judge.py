"""What the reference judge says of claims, by kind of claim and of reference."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import cases

from groundwatch.events import Decision, KnownFact, Reference
from groundwatch.verification.engines.reference import Knowledge, Rules, Ruling, rule

CASES = cases(__file__)
SUPPORTED, REFUTED, UNDECIDED = Decision.SUPPORTED, Decision.REFUTED, Decision.UNDECIDED

PARK = Reference(
    complete=True,
    objects=(
        "man",
        "dog",
        "dogs",
        "bench",
        "park",
        "hat",
        "umbrella",
        "shirt",
        "car",
        "table",
        "wine bottle",
    ),
    triplets=(
        ("man", "sitting on", "bench"),
        ("man", "wearing", "hat"),
        ("hat", "is", "black"),
        ("man", "holding", "umbrella"),
        ("umbrella", "is", "light blue"),
        ("man", "wearing", "shirt"),
        ("shirt", "is", "green"),
        ("dogs", "count", "two"),
        ("dog", "lying on", "grass"),
        ("dog", "is", "brown"),
        ("dog", "next to", "man"),
        ("bench", "to the left of", "table"),
        ("car", "behind", "bench"),
        ("car", "is", "red"),
        ("sandwich", "on", "table"),
        ("table", "is", "wooden"),
        ("lamp", "above", "table"),
    ),
)

PEOPLE_SAID = Reference(
    facts=tuple(
        KnownFact(text=text, holds=holds)
        for text, holds in (
            ("There is a dog.", False),
            ("A woman is riding a bicycle.", True),
            ("The bicycle is red.", True),
            ("There are three apples.", True),
            ("The hat is gray.", True),
            ("The woman is smiling.", True),
            ("There is a table.", True),
            ("The table is round.", False),
            ("A cat is sitting on the table.", True),
            ("There is a bird.", True),
            ("The bird is on the fence.", False),
            ("The shirt is white.", True),
            ("The shirt is blue.", True),
            ("There are two shirts.", True),
            ("There is no car.", True),
        )
    )
)


def judged(text: str, reference: Reference) -> Ruling:
    return rule(text, Rules(Knowledge(reference)))


def decisions(texts: Iterable[str], reference: Reference) -> dict[str, str]:
    return {text: judged(text, reference).decision.value for text in texts}


@pytest.mark.parametrize(
    ("section", "decision"), [("supported", SUPPORTED), ("refuted", REFUTED), ("open", UNDECIDED)]
)
def test_a_complete_reference_decides_what_it_would_name(section: str, decision: Decision) -> None:
    assert decisions(CASES[section], PARK) == dict.fromkeys(CASES[section], decision.value)


def test_facts_decide_and_absence_leaves_open() -> None:
    assert decisions(CASES["people_said"], PEOPLE_SAID) == CASES["people_said"]


def test_a_broader_name_does_not_support_a_narrower_one() -> None:
    known = Reference(objects=("person",), complete=True)
    assert judged("There is a man.", known).decision is UNDECIDED
    known = Reference(objects=("person", "woman"), complete=True)
    assert judged("There is a man.", known).decision is REFUTED


def test_evidence_is_the_item_that_was_used() -> None:
    assert judged("The hat is white.", PARK).evidence == "hat is black"
    assert judged("The dog is brown.", PEOPLE_SAID).evidence == "There is a dog."


def test_relations_that_a_complete_reference_does_not_state() -> None:
    """Refuted only when the same thing is said of somebody or something else there."""
    known = Reference(
        complete=True,
        objects=("man", "woman", "hat", "cups", "lamp", "kitchen", "pan", "swing"),
        triplets=(("man", "wearing", "hat"), ("man", "holding", "pan"), ("cup", "is", "blue")),
    )
    assert decisions(CASES["unstated"], known) == CASES["unstated"]


def test_what_is_stated_of_all_of_them_excludes_another_place_and_of_one_of_them_does_not() -> None:
    known = Reference(
        complete=True,
        objects=("lanterns", "pier", "geese", "goose", "fence"),
        triplets=(
            ("lanterns", "count", "two"),
            ("lanterns", "hanging above", "pier"),
            ("geese", "count", "six"),
            ("goose", "behind", "fence"),
        ),
        facts=(
            KnownFact(text="There are five mugs.", holds=True),
            KnownFact(text="Two mugs are on the shelf.", holds=True),
            KnownFact(text="Some mugs are on the table.", holds=True),
            KnownFact(text="The mugs are in front of the jug.", holds=True),
        ),
    )
    assert judged("The lanterns are below the pier.", known).decision is REFUTED
    assert judged("The lantern is under the pier.", known).decision is REFUTED
    assert judged("The geese are in front of the fence.", known).decision is UNDECIDED
    assert judged("The mugs are under the shelf.", known).decision is UNDECIDED
    assert judged("The mugs are under the table.", known).decision is UNDECIDED
    assert judged("The mugs are behind the jug.", known).decision is REFUTED


def test_one_thing_said_in_two_ways() -> None:
    known = Reference(
        complete=True,
        objects=("sky", "clouds", "mountain", "child", "fishing rod", "rod", "fish"),
        triplets=(
            ("sky", "is", "blue"),
            ("sky", "with", "clouds"),
            ("clouds", "is", "white"),
            ("mountain", "covered with", "snow"),
            ("child", "holding", "rod"),
            ("child", "is", "waiting"),
        ),
    )
    assert decisions(CASES["reworded"], known) == CASES["reworded"]


def test_who_bites_whom_matters() -> None:
    known = Reference(facts=(KnownFact(text="The boy is chasing the girl.", holds=True),))
    assert judged("The girl is chased by the boy.", known).decision is SUPPORTED
    assert judged("The girl is chasing the boy.", known).decision is UNDECIDED


def test_a_reference_that_contradicts_itself_decides_nothing() -> None:
    known = Reference(
        facts=(KnownFact(text="There is a cup.", holds=True), KnownFact(text="There is a cup.", holds=False))
    )
    assert judged("There is a cup.", known).decision is UNDECIDED


NOUNS = st.sampled_from(["dog", "cat", "man", "red car", "wooden table", "umbrella", "glorp", "two birds"])
SENTENCES = st.one_of(
    st.builds("There is a {}.".format, NOUNS),
    st.builds("The {} is {}.".format, NOUNS, st.sampled_from(["red", "large", "sitting", "zorby", "open"])),
    st.builds("The {} is next to the {}.".format, NOUNS, NOUNS),
    st.builds("The {} is holding a {}.".format, NOUNS, NOUNS),
    st.text(alphabet=st.characters(categories=("L", "N", "P", "Zs", "So")), min_size=1, max_size=40),
)
FACTS = st.dictionaries(SENTENCES, st.booleans(), min_size=1, max_size=8)


@given(FACTS)
def test_a_fact_equal_to_a_known_one_has_its_truth(facts: dict[str, bool]) -> None:
    text, holds = next(iter(facts.items()))
    known = Reference(facts=(KnownFact(text=text, holds=holds),))
    assert judged(text, known).decision is (SUPPORTED if holds else REFUTED)


@given(FACTS, st.randoms(), SENTENCES, st.booleans())
def test_the_order_of_the_reference_does_not_matter(
    facts: dict[str, bool], random: st.DataObject, claim: str, complete: bool
) -> None:
    items = [KnownFact(text=text, holds=holds) for text, holds in facts.items()]
    first = judged(claim, Reference(facts=tuple(items), objects=("cat", "person"), complete=complete))
    random.shuffle(items)
    second = judged(claim, Reference(facts=tuple(items), objects=("person", "cat"), complete=complete))
    assert first == second


@given(FACTS, NOUNS, st.booleans())
def test_negation_flips_existence(facts: dict[str, bool], noun: str, complete: bool) -> None:
    known = Reference(
        facts=tuple(KnownFact(text=text, holds=holds) for text, holds in facts.items()), complete=complete
    )
    opposite = {SUPPORTED: REFUTED, REFUTED: SUPPORTED, UNDECIDED: UNDECIDED}
    positive, negative = judged(f"There is a {noun}.", known), judged(f"There is no {noun}.", known)
    assert negative.decision is opposite[positive.decision]


@given(FACTS, NOUNS)
def test_absence_refutes_in_complete_references_only(facts: dict[str, bool], noun: str) -> None:
    true = tuple(KnownFact(text=text, holds=True) for text in facts if "is" in text)
    open_, closed = Reference(facts=true), Reference(facts=true, complete=True)
    claim = f"There is a {noun}."
    if judged(claim, open_).decision is SUPPORTED:
        assert judged(claim, closed).decision is SUPPORTED


TOKENS = (
    "a an the there is are no not two several of on in to left right next with wearing has made red "
    "light color dog man men image and , 's that which by group pair wooden standing sky it"
)
WORDS = st.sampled_from(TOKENS.split())


@given(st.lists(WORDS, max_size=14).map(" ".join), st.booleans())
def test_word_salad_is_judged_without_failing(text: str, complete: bool) -> None:
    known = Reference(facts=(KnownFact(text=text, holds=True),), objects=(text,), complete=complete)
    assert judged(text, known).decision in Decision
    assert judged(text, Reference(triplets=((text, text, text),), complete=True)).decision in Decision


@given(st.text(alphabet=st.characters(), max_size=100))
def test_unusual_text_is_judged_without_failing(text: str) -> None:
    assert judged(text, PARK).decision in Decision
    assert judged(text, Reference(facts=(KnownFact(text=text, holds=True),))).decision in Decision


@pytest.mark.parametrize(
    "piece",
    ["x", "the dog ", "a, ", "big ", "(", "'", "next to ", "\ud800", "🐶", "كلب ", "is not ", "a's of "],
)
@pytest.mark.timeout(60)
@pytest.mark.slow
def test_a_million_characters_take_linear_time(piece: str) -> None:
    """Quadratic work on this text would take minutes."""
    text = "There is a " + piece * (1_000_000 // len(piece))
    assert judged(text, PARK).decision in Decision
    assert judged(text, Reference(facts=(KnownFact(text=text, holds=True),))).decision in Decision
