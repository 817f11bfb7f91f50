"""The one tokeniser."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groundwatch.language.tokens import plain_words, tokenise

WORDS = {
    "The man's hat isn't red, it's blue": "The man 's hat is not red , it is blue",
    "can't, won’t, they're": "can not , will not , they are",
    "someone's care": "someone 's care",
    "the dogs' bowls": "the dogs 's bowls",
    "a 'red' car": "a red car",
    "1,000 of 2.5 at 12:30": "1,000 of 2.5 at 12:30",
    "a 5-year-old boy and a 2nd 50-inch TV": "a 5-year-old boy and a 2nd 50-inch TV",
    "3-4 people": "3 4 people",
    "black-and-white U.S. dining_table": "black-and-white U.S dining table",
}


def test_words_numbers_contractions_and_possessives() -> None:
    found = {text: " ".join(tokenise(text)) for text in WORDS}
    assert found == WORDS


def test_plain_words_are_lower_case_and_without_asides() -> None:
    assert plain_words("A Dog (brown), seen from afar") == ["a", "dog", ",", "seen", "from", "afar"]


@given(st.text(max_size=200))
def test_no_word_is_empty_or_has_a_blank(text: str) -> None:
    assert all(word and not word.isspace() and " " not in word for word in tokenise(text))
