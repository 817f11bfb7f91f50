"""Conclusions as triplets, and which questions ask for them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from groundwatch.events import ResponseRecorded
from groundwatch.extraction.engines.linguistic.decomposer import atomic_facts
from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine
from groundwatch.extraction.engines.linguistic.inferences import asks_for_conclusion, inferences
from groundwatch.language.subsentences import split
from groundwatch.protocols.trihe.protocol import TriHe

CASES = yaml.safe_load((Path(__file__).parent / "data" / "inferences.yaml").read_text("utf-8"))


def test_clauses_are_read_as_one_triplet_each() -> None:
    missed = []
    for case in CASES:
        texts = [case["answer"][span.start : span.end] for span in split(case["answer"])]
        found = [[one.subject, one.relation, one.object] for one in inferences(texts, case["question"], ())]
        if found != case["triplets"]:
            missed.append((case["answer"], found))
    assert not missed


def test_what_states_a_fact_concludes_nothing_more() -> None:
    texts = ["There is a dog", "The man is riding a horse", "In the background"]
    assert inferences(texts, "", atomic_facts(texts, [True] * 3)) == ()


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("What might the person be doing?", True),
        ("Why is the man sitting?", True),
        ("Is it likely that the shop is open?", True),
        ("Can the horse roam freely?", True),
        ("Can you describe this image?", False),
        ("Could you please tell me what I can see?", False),
        ("What objects can be seen?", False),
        ("What is the man holding?", False),
        ("Describe the image.", False),
        ("", False),
    ],
)
def test_which_questions_ask_for_a_conclusion(question: str, asks: bool) -> None:
    assert asks_for_conclusion(question) is asks


async def test_an_answer_that_only_concludes_has_triplets() -> None:
    answer = "Yes, the children could be waiting for a train."
    response = ResponseRecorded(id="1", model="m", answer=answer, prompt="Are they waiting for something?")
    (found,) = await LinguisticEngine().extract([response], TriHe())
    assert [(one.unit, one.parts, one.category) for one in found.claims] == [
        (1, ("children", "waiting", "for a train"), "inference")
    ]
