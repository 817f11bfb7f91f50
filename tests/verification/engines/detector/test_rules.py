"""What boxes decide of statements: by literal cases, by arithmetic, and in scenes whose boxes are known."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import cases

from groundwatch.events import Box, Decision, Verdict
from groundwatch.language.statements import statement
from groundwatch.miniature import world
from groundwatch.miniature.language import article, counted, holds
from groundwatch.models.settings import DetectorSettings
from groundwatch.verification.engines.detector import Boxes, Photograph, Sight, counts, names, within

SETTINGS = DetectorSettings()
CASES = cases(__file__)


def boxes_of(rows: list[Any], texts: list[str], images: int = 1, attributes: Any = ()) -> Boxes:
    """Everything that the statements name was asked for."""
    asked = {name for text in texts for name in names(statement(text), attributes)}
    seen: dict[str, list[Sight]] = {name: [] for name in asked}
    colors = {}
    for label, x0, y0, x1, y1, chance, color, *image in rows:
        box = Box(x0=x0, y0=y0, x1=x1, y1=y1, score=chance, label=label, image=image[0] if image else 0)
        seen.setdefault(label, []).append(Sight(box, chance))
        colors[box] = color
    settings = DetectorSettings(attributes=attributes)
    return Boxes(seen, settings, lambda box: (colors[box], ""), images=images)


def test_statements_are_decided_as_boxes_show_them() -> None:
    wrong = []
    for name, case in CASES.items():
        for decision in Decision:
            given = case.get("images", 1), case.get("attributes", ())
            decided = boxes_of(case["boxes"], case[decision.value], *given).decide
            wrong += [
                (name, decision.value, text, found.decision.value, found.probability, found.evidence)
                for text in case[decision.value]
                if (found := decided(text)).decision is not decision
            ]
    assert wrong == []


STREET = CASES["street"]["boxes"]


def of_street(text: str) -> Verdict:
    return boxes_of(STREET, [text]).decide(text)


def test_the_boxes_are_the_evidence() -> None:
    assert [box.label for box in of_street("There are two dogs.").boxes] == ["dog", "dog"]
    [red] = of_street("The car is blue.").boxes
    assert (red.x0, red.y1, red.label) == (0.35, 0.70, "car")
    assert {box.label for box in of_street("The lamp is left of the umbrella.").boxes} == {"lamp", "umbrella"}
    assert of_street("There is a cat.").boxes == ()
    assert [box.label for box in of_street("There is no car.").boxes] == ["car"]


def test_what_is_there_is_an_object_and_two_boxes_apart_are_objects() -> None:
    text = "There are objects."
    assert names(statement(text)) == {"object"}
    assert of_street(text).decision is Decision.SUPPORTED
    one_thing = [row for row in STREET if row[0] == "car"][:1]
    assert boxes_of(one_thing, [text]).decide(text).decision is Decision.UNDECIDED


def test_a_place_needs_no_name_that_the_detector_takes() -> None:
    """The lexicon's "top" is a shirt, of which a detector need know nothing to see what is at the top."""
    text = "The car is at the top."
    everything = boxes_of(STREET, [text])
    taken = {name: sights for name, sights in everything._seen.items() if name != "shirt"}
    without = Boxes(taken, SETTINGS, everything._color_of)
    assert without.decide(text) == everything.decide(text)
    assert without.decide(text).decision is not Decision.UNDECIDED
    red = "The top is red."
    assert "takes no name" in without.decide(red).evidence


def test_what_is_undecided_has_a_reason() -> None:
    for text in CASES["street"]["undecided"]:
        assert of_street(text).evidence.startswith("undecided: "), text


def test_what_the_detector_takes_no_name_of_is_undecided() -> None:
    boxes = Boxes({"dog": []}, SETTINGS, lambda box: ("", ""))
    assert boxes.decide("There is a cat.").decision is Decision.UNDECIDED
    assert boxes.decide("There is a dog.").decision is Decision.REFUTED


chances = st.lists(st.floats(0, 1), max_size=12)


@given(chances)
def test_numbers_have_probabilities(several: list[float]) -> None:
    odds = counts(several)
    assert len(odds) == len(several) + 1
    assert sum(odds) == pytest.approx(1) and min(odds) >= 0
    assert sum(number * odd for number, odd in enumerate(odds)) == pytest.approx(sum(several), abs=1e-9)


def dogs(several: list[float]) -> list[Any]:
    return [["dog", at / 20, 0.1, (at + 1) / 20, 0.2, one, ""] for at, one in enumerate(several)]


@given(chances)
def test_a_denial_is_the_other_way_round(several: list[float]) -> None:
    yes, no = "There is a dog.", "There is no dog."
    boxes = boxes_of(dogs(several), [yes])
    said, denied = boxes.decide(yes), boxes.decide(no)
    assert said.probability is not None and denied.probability is not None
    assert said.probability + denied.probability == pytest.approx(1)
    pairs = {("supported", "refuted"), ("refuted", "supported"), ("undecided", "undecided")}
    assert (said.decision.value, denied.decision.value) in pairs


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_higher_score_is_more_probable(one: float, other: float) -> None:
    settings = DetectorSettings(slope=2.0, intercept=-1.0)
    low, high = sorted((one, other))
    assert 0 <= settings.probability(low) <= settings.probability(high) <= 1
    assert DetectorSettings().probability(0.3) == pytest.approx(0.3)


@given(st.floats(0, 1))
def test_a_place_is_there_or_elsewhere(at: float) -> None:
    left, right = within(at, ((0.0, 0.5),)), within(at, ((0.5, 1.0),))
    assert left + right == pytest.approx(1)
    # At the borders themselves the last bit of 0.5 - 0.45 decides.
    assert (left > 0.9) == (at < 0.45) or at == pytest.approx(0.45)
    assert (right > 0.9) == (at > 0.55) or at == pytest.approx(0.55)


def test_known_boxes_decide_scenes_as_they_are() -> None:
    """What is wrong here would be the rules' or the palette's fault, for no detector takes part."""
    wrong, undecided, asked = [], 0, 0
    for at, shown in enumerate(islice(world.scenes(4 * 10**9), 40)):
        first, *_, last = *shown.things, shown.things[0]
        statements = [
            *(f"There is {article(kind)} {kind}." for kind in world.KINDS),
            *(
                f"There {'is' if number == 1 else 'are'} {counted(first.kind, number)}."
                for number in (1, 2, 3)
            ),
            *(f"The {first.kind} is {color}." for color in world.COLORS),
            *(f"The {last.kind} is in the {place} corner." for place in world.PLACES),
            *(f"The {last.kind} is on the {side}." for side in ("left", "right")),
        ]
        photograph = Photograph(world.png(shown))
        seen: dict[str, list[Sight]] = {kind: [] for kind in world.KINDS}
        for thing, (x0, y0, x1, y1) in zip(shown.things, world.boxes(shown), strict=True):
            box = Box(x0=x0, y0=y0, x1=x1, y1=y1, score=0.97, label=thing.kind)
            seen[thing.kind].append(Sight(box, 0.97))
        boxes = Boxes(seen, SETTINGS, lambda box, shown=photograph: shown.color(box))
        for text in statements:
            found, true = boxes.decide(text), holds(shown, text)
            asked += 1
            if found.decision is Decision.UNDECIDED:
                undecided += 1
            elif (found.decision is Decision.SUPPORTED) != true:
                wrong.append((at, text, found))
    assert wrong == []
    assert undecided < 0.1 * asked
