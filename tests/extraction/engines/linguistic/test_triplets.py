"""Triplets read off facts."""

from __future__ import annotations

import pytest

from groundwatch.errors import GroundwatchError
from groundwatch.events import Claim, ResponseRecorded
from groundwatch.extraction.engines.linguistic.decomposer import atomic_facts, decompose
from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine
from groundwatch.extraction.engines.linguistic.rendering import AtomicFact, triplets
from groundwatch.protocols.trihe.protocol import TriHe


@pytest.mark.parametrize(
    ("category", "fact", "parts"),
    [
        ("relation", ("The man", "is riding", "a horse"), ("man", "riding", "horse")),
        ("relation", ("The cup", "is on", "the table"), ("cup", "on", "table")),
        (
            "relation",
            ("The traffic light", "hangs over", "a street"),
            ("traffic light", "hangs over", "street"),
        ),
        ("relation", ("The boy", "has", "a hat"), ("boy", "has", "hat")),
        ("relation", ("The cat", "is in the middle of", "the room"), ("cat", "in the middle of", "room")),
        ("relation", ("The man", "is not holding", "a cup"), ("man", "is not holding", "cup")),
        ("relation", ("The box", "is larger than", "the ball"), ("box", "larger than", "ball")),
        ("relation", ("The box", "is the same color as", "the ball"), ("box", "the same color as", "ball")),
        ("relation", ("The tree", "is at", "the top right"), ("tree", "at", "top right")),
        ("color", ("The horse", "is", "brown"), ("horse", "is", "brown")),
        ("other", ("The trucks", "are parked", ""), ("trucks", "are", "parked")),
        ("other", ("The chairs", "spread out", ""), ("chairs", "is", "spreading out")),
        ("count", ("hens", "are", "two"), ("hens", "are", "two")),
        ("count", ("birds", "are", "a few"), ("birds", "are", "a few")),
        ("other", ("The person", "has left", ""), None),
        ("entity", ("", "", "a dog"), None),
    ],
)
def test_a_fact_as_a_triplet(category, fact, parts):
    subject, relation, object_ = fact
    made = AtomicFact(text="", category=category, unit=3, subject=subject, relation=relation, object=object_)
    found = triplets([made])
    assert [claim.parts for claim in found] == ([] if parts is None else [parts])
    assert all(claim.unit == 3 for claim in found)


def test_a_triplet_counts_once_in_each_sub_sentence_that_says_it():
    said = atomic_facts(["The cup is on the table"] * 2, [True, True])
    first, second = (one for one in said if one.relation == "is on")
    assert [claim.unit for claim in triplets([first, first, second])] == [0, 1]


def test_what_one_protocol_reads_of_facts_stays_out_of_claims():
    claims = decompose(["The cup is on the table"], [True])
    assert claims and {type(claim) for claim in claims} == {Claim}


async def test_the_engine_finds_them():
    answer = "A man is riding a brown horse on the beach."
    response = ResponseRecorded(id="1", model="m", answer=answer)
    (found,) = await LinguisticEngine().extract([response], TriHe())
    assert not isinstance(found, GroundwatchError)
    assert {("man", "riding", "horse"), ("horse", "is", "brown")} <= {claim.parts for claim in found.claims}
    assert len(found.units) == 1
