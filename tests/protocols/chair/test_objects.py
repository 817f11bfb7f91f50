"""COCO objects in captions."""

from __future__ import annotations

import pytest

from groundwatch.protocols.chair.objects import classes_of, vocabulary


def names(text: str) -> list[str]:
    return [mention.name for mention in vocabulary().mentions(text)]


def test_there_are_eighty_classes_that_name_themselves():
    assert len(vocabulary().classes) == 80
    for name in vocabulary().classes:
        assert names(f"A photo of {name}.") == [name], name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Two puppies chase a motorbike.", ["dog", "motorcycle"]),
        ("A man holds a hot dog beside a dog.", ["person", "hot dog", "dog"]),
        ("A teddy bear on the bed sheets.", ["teddy bear"]),
        ("The train station has a bus stop.", []),
        ("An orange cat eats an orange.", ["cat", "orange"]),
        ("An orange and an apple.", ["orange", "apple"]),
        ("Women with knives near the geese.", ["person", "knife", "bird"]),
        ("She peels an orange. Birds watch", ["orange", "bird"]),
        ("A slice of carrot cake.", ["cake"]),
        ("A traffic light and a street lamp", ["traffic light"]),
        ("Nothing here", []),
        ("", []),
    ],
)
def test_captions(text: str, found: list[str]):
    assert names(text) == found


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("red umbrella", "umbrella"),
        ("coffee cups", "cup"),
        ("train station", None),
        ("old train station", None),
        ("traffic light", "traffic light"),
        ("polar bear", "bear"),
        ("lamp", None),
        ("", None),
    ],
)
def test_an_annotated_name_is_what_it_ends_with(name: str, kind: str | None):
    assert vocabulary().kind(name) == kind


def test_annotated_names_become_classes():
    assert classes_of(["sofas", "lamp", "Lady", "train station", "woman"]) == {"couch", "person"}
