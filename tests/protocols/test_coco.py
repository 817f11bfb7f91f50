"""COCO objects in captions."""

from __future__ import annotations

from tests.support.cases import cases

from groundwatch.protocols.chair.protocol import classes_of, vocabulary

CASES = cases(__file__)


def names(text: str) -> list[str]:
    return [mention.name for mention in vocabulary().mentions(text)]


def test_there_are_eighty_classes_that_name_themselves():
    assert len(vocabulary().classes) == 80
    for name in vocabulary().classes:
        assert names(f"A photo of {name}.") == [name], name


def test_captions() -> None:
    assert {text: names(text) for text in CASES["captions"]} == CASES["captions"]


def test_an_annotated_name_is_what_it_ends_with() -> None:
    assert {name: vocabulary().kind(name) for name in CASES["names"]} == CASES["names"]


def test_annotated_names_become_classes():
    assert classes_of(["sofas", "lamp", "Lady", "train station", "woman"]) == {"couch", "person"}
