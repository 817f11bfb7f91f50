from __future__ import annotations

import pytest

pytest.importorskip("textblob")
pytest.importorskip("lemminflect")

from groundwatch.extraction.engines.linguistic.tagging import tag


def tags(text: str) -> list[tuple[str, str]]:
    return [(token.lower, token.tag) for token in tag(text)]


@pytest.mark.parametrize(
    ("text", "word", "expected"),
    [
        ("The image features a fox", "features", "VBZ"),
        ("A goat standing on a rock", "standing", "VBG"),
        ("A truck parked near a shop", "parked", "VBN"),
        ("A parked truck", "parked", "JJ"),
        ("A cat sitting on a bed", "bed", "NN"),
        ("The woman is wearing glasses", "glasses", "NNS"),
        ("There are teddy bears near the door", "bears", "NNS"),
        ("A tall building with a tower", "building", "NN"),
        ("It's raining", "is", "BE"),
        ("The girl's hat", "'s", "POS"),
        ("A bench in front of a church", "in front of", "IN"),
        ("the man that runs", "that", "W"),
        ("The box is much larger than the ball", "larger than", "IN"),
        ("The box is as big as the ball", "as big as", "IN"),
        ("A tree at the upper left", "left", "NN"),
        ("A tree at the top of the hill", "top", "NN"),
        ("A man in a top hat", "top", "JJ"),
        ("A cooler stands next to the man", "cooler", "NN"),
        ("The blue cooler is on the sand", "cooler", "NN"),
        ("A cooler breeze blows", "cooler", "JJR"),
        ("A smaller boat floats", "smaller", "JJR"),
        ("The older walks his dog", "older", "JJR"),
    ],
)
def test_tags_as_captions_mean_it(text: str, word: str, expected: str) -> None:
    assert dict(tags(text))[word] == expected


def test_marks_of_lists_and_other_scripts_are_no_words() -> None:
    assert [word for word, _ in tags("1. שלום A dog 狗")] == ["a", "dog"]
