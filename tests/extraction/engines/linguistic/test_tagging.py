from __future__ import annotations

import pytest

pytest.importorskip("textblob")
pytest.importorskip("lemminflect")

from tests.support.cases import cases

from groundwatch.extraction.engines.linguistic.tagging import tag

CASES = cases(__file__)


def tags(text: str) -> list[tuple[str, str]]:
    return [(token.lower, token.tag) for token in tag(text)]


def test_tags_as_captions_mean_it() -> None:
    assert [[text, word, dict(tags(text))[word]] for text, word, _ in CASES["tags"]] == CASES["tags"]


def test_marks_of_lists_and_other_scripts_are_no_words() -> None:
    assert [word for word, _ in tags("1. שלום A dog 狗")] == ["a", "dog"]
