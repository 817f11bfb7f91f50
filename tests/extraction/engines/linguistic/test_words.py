"""The classes of words that the rules ask for are those of the data."""

from __future__ import annotations

import re
from pathlib import Path

import groundwatch
from groundwatch.extraction.engines.linguistic import words


def test_the_rules_ask_for_classes_that_there_are_and_for_all_of_them() -> None:
    texts = [path.read_text("utf-8") for path in Path(groundwatch.__file__).parent.rglob("*.py")]
    asked = {name for text in texts for name in re.findall(r"\bw\.([A-Z_]+)\b", text)}
    own = set(re.findall(r'LISTS\["([A-Z_]+)"\]', Path(words.__file__).read_text("utf-8")))
    assert asked | own == words.LISTS.keys() | {"NUMBERS"}
    assert all(isinstance(getattr(words, name), frozenset) for name in asked)
