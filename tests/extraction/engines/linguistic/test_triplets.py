"""Triplets read off facts."""

from __future__ import annotations

import pytest

from groundwatch.errors import GroundwatchError
from groundwatch.events import Claim, ResponseRecorded
from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine
from groundwatch.extraction.engines.linguistic.triplets import triplets
from groundwatch.protocols.trihe.protocol import TriHe


@pytest.mark.parametrize(
    ("category", "text", "parts"),
    [
        ("relation", "The man is riding a horse.", ("man", "riding", "horse")),
        ("relation", "The cup is on the table.", ("cup", "on", "table")),
        ("relation", "The traffic light hangs over a street.", ("traffic light", "hangs over", "street")),
        ("relation", "The boy has a red hat.", ("boy", "has", "red hat")),
        ("relation", "The cat is in the middle of the room.", ("cat", "in the middle of", "room")),
        ("relation", "The man is not holding a cup.", ("man", "is not holding", "cup")),
        ("relation", "The box is larger than the ball.", ("box", "larger than", "ball")),
        ("relation", "The box is as big as the ball.", ("box", "as big as", "ball")),
        ("relation", "The box is the same color as the ball.", ("box", "the same color as", "ball")),
        ("relation", "The tree is at the top right.", ("tree", "at", "top right")),
        ("color", "The horse is brown.", ("horse", "is", "brown")),
        ("other", "The trucks are parked.", ("trucks", "are", "parked")),
        ("other", "The chairs spread out.", ("chairs", "is", "spreading out")),
        ("count", "There are two hens.", ("hens", "are", "two")),
        ("entity", "There is a dog.", None),
        ("other", "", None),
        ("relation", "The.", None),
    ],
)
def test_a_fact_as_a_triplet(category, text, parts):
    found = triplets([Claim(text=text, category=category, unit=3)])
    assert [claim.parts for claim in found] == ([] if parts is None else [parts])
    assert all(claim.unit == 3 for claim in found)


def test_what_is_said_twice_is_one_triplet():
    claim = Claim(text="The cup is on the table.", category="relation")
    assert len(triplets([claim, claim])) == 1


async def test_the_engine_finds_them():
    answer = "A man is riding a brown horse on the beach."
    response = ResponseRecorded(id="1", model="m", answer=answer)
    (found,) = await LinguisticEngine().extract([response], TriHe())
    assert not isinstance(found, GroundwatchError)
    assert {("man", "riding", "horse"), ("horse", "is", "brown")} <= {claim.parts for claim in found.claims}
    assert len(found.units) == 1
