"""Opinions as files: FaithScore's annotations of one's own traffic."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from tests.annotation.conftest import Publish, outcome
from tests.conftest import BusFactory
from tests.runtime.conftest import record

from groundwatch.events import Decision, FactOpinion, Judge, Label, ResponseRecorded, SubSentence
from groundwatch.reviews.files import lines_of
from groundwatch.reviews.opinions import opinion_on
from groundwatch_benchmarks.methods.faithscore.suite import AnnotatedAnswer, read_annotations, tally_answers

ANSWER = "A ball lies here, perhaps a gift."
UNITS = (
    SubSentence(start=0, end=17, text="A ball lies here,", label=Label.ANALYTICAL),
    SubSentence(start=18, end=33, text="perhaps a gift.", label=Label.DESCRIPTIVE),
)


def fact(text: str, decision: Decision, **more: object) -> FactOpinion:
    return FactOpinion(text=text, category="entity", decision=decision, **more)  # type: ignore[arg-type]


async def test_opinions_go_out_as_faithscores_annotations(
    bus_factory: BusFactory, publish: Publish, tmp_path: Path
) -> None:
    bus = await bus_factory("annotation")
    responses = [
        ResponseRecorded(id="r0", model="lvlm", answer=ANSWER, images=("a" * 64,), protocols=("faithscore",)),
        ResponseRecorded(id="r1", model="lvlm", answer=ANSWER, tags={"image": "7.jpg"}),
    ]
    outcomes = [outcome(one.id, units=UNITS) for one in responses]
    for one in responses:
        await record(bus, one)
    await publish([*outcomes, msgspec.structs.replace(outcomes[1], protocol="tri-he")])
    facts = (
        fact("There is a ball.", Decision.SUPPORTED, claim=0),
        fact("There is a dog.", Decision.REFUTED),
        fact("It is big.", Decision.UNDECIDED),
        fact("It is.", Decision.SUPPORTED, removed=True),
    )
    given = {"facts": facts, "given_at": 1.0}
    opinions = [
        opinion_on(
            outcomes[0], reviewer="ann", labels=(Label.DESCRIPTIVE, Label.ANALYTICAL), mark=3, **given
        ),
        opinion_on(outcomes[1], reviewer="ben", labels=(Label.DESCRIPTIVE, None), **given),
        opinion_on(outcomes[1], reviewer="eve", facts=(), given_at=1.0),
        opinion_on(outcomes[1], reviewer="judge:1", judge=Judge(engine="llm"), **given),
        opinion_on(outcome("gone", units=UNITS), reviewer="ann", **given),
        opinion_on(msgspec.structs.replace(outcomes[1], protocol="tri-he"), reviewer="ann", **given),
    ]
    left_out: list[str] = []
    lines = [line async for line in lines_of(bus, opinions, "faithscore", left_out.append)]
    assert left_out == [
        "that were taken back",
        "of judges",
        "about answers that are kept no longer",
        "about other protocols' claims",
    ]
    assert [(line["reviewer"], line["mark"]) for line in lines] == [("ann", 3), ("ben", None)]
    file = tmp_path / "annotations.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    held = {"There is a ball.": True, "There is a dog.": False}
    first, second = UNITS[0].text, UNITS[1].text
    assert read_annotations(file) == [
        AnnotatedAnswer(
            image="a" * 64,
            answer=ANSWER,
            labels={first: Label.DESCRIPTIVE, second: Label.ANALYTICAL},
            facts=held,
        ),
        AnnotatedAnswer(image="7.jpg", answer=ANSWER, labels={first: Label.DESCRIPTIVE}, facts=held),
    ]
    assert tally_answers(read_annotations(file))["faithscore"] == 0.5
