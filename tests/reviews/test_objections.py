"""What somebody says of a fact where they came upon it: kept beside opinions that were drawn, in no rate."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.annotation.conftest import outcome, several
from tests.support.second_opinions import opinion_about

from groundwatch.errors import InputError
from groundwatch.events import Decision, OpinionGiven, ResponseScored
from groundwatch.reviews.agreement import AgreementReader
from groundwatch.reviews.corrected import QueueSamples, rows_of
from groundwatch.reviews.files import lines_of
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import Frame, Item, Items, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing

SPEC = QueueSpec(name="q", protocol="faithscore")
ANSWERS = several(60, seed=3)


def framed() -> Frame:
    frame = Frame(queue="q", drawn=len(ANSWERS))
    for event in ANSWERS:
        frame.add(event, "")
    return frame


def objection(event: ResponseScored, wrong: list[bool], probability: float) -> OpinionGiven:
    said = opinion_about(event, wrong, reviewer="eve", probability=probability)
    return msgspec.structs.replace(said, objection=True)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_objection_moves_a_corrected_rate(data: st.DataObject) -> None:
    """Whatever it says, however many there are, and were it even written as one that was drawn."""
    drawn = [
        opinion_about(event, data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), probability=0.3)
        for event in ANSWERS[: data.draw(st.integers(0, 30))]
        for n in [len(event.claims)]
    ]
    objections = [
        objection(
            event, [not one for one in [True] * len(event.claims)], data.draw(st.sampled_from([0.0, 0.3]))
        )
        for event in data.draw(st.lists(st.sampled_from(ANSWERS), max_size=20))
    ]
    mixed = data.draw(st.permutations([*drawn, *objections]))

    def rows(opinions: list[OpinionGiven]) -> list[object]:
        return list(rows_of(QueueSamples(SPEC, framed(), opinions, lambda tags: "")))

    in_order = [one for one in mixed if not one.objection]
    assert rows(list(mixed)) == rows(in_order)


@pytest.mark.usefixtures("clean_streams")
async def test_it_stands_beside_what_was_drawn_and_is_taken_back(bus: Bus) -> None:
    event = outcome("r1")
    await bus.create(outgoing(event))
    items, opinions = Items(bus), Opinions(bus)
    await Queues(bus).create(SPEC)
    await items.create(
        Item(
            queue="q",
            key=event.key,
            id="r1",
            tenant="default",
            model="lvlm",
            protocol="faithscore",
            probability=0.5,
        )
    )
    await items.complete("q", event.key, opinion_about(event, [False, True], probability=0.5))
    before = await AgreementReader(bus).compute(time.time())
    # At once: neither takes the other's place.
    await asyncio.gather(
        opinions.object_to(event, 1, Decision.SUPPORTED, "ann"),
        opinions.object_to(event, 0, Decision.REFUTED, "ann"),
    )
    drawn, objected = sorted(await opinions.of(event.key), key=lambda one: one.objection)
    assert (drawn.reviewer, drawn.probability, drawn.revision, len(drawn.facts)) == ("ann", 0.5, 1, 2)
    assert (objected.reviewer, objected.probability, objected.queue, objected.revision) == ("ann", 0.0, "", 2)
    assert {fact.claim: fact.decision.value for fact in objected.facts} == {0: "refuted", 1: "supported"}
    after = await AgreementReader(bus).compute(before.at)
    assert msgspec.structs.replace(after, at=0.0) == msgspec.structs.replace(before, at=0.0)
    lines = [line async for line in lines_of(bus, [drawn, objected], "verdicts")]
    assert len(lines) == 2, "of the drawn one alone"
    for claim in (0, 1):
        await opinions.object_to(event, claim, None, "ann")
    assert sorted(len(one.facts) for one in await opinions.of(event.key)) == [0, 2]
    with pytest.raises(InputError, match="no claim 7"):
        await opinions.object_to(event, 7, Decision.REFUTED, "ann")
