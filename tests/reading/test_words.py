"""Words, their places, and windows of long answers."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from groundwatch.reading.words import SHARED, WINDOW, Passage, passages, split_words


def test_words_say_where_they_stand() -> None:
    text = "It isn't 3.5 m, the cat's\n\n\n$12.40\n"
    words = split_words(text)
    assert " ".join(word.text for word in words) == "It isn't 3.5 m , the cat 's \n $12.40"
    assert all(text[word.start : word.end] == word.text for word in words)


def test_a_long_answer_is_cut_at_sentences() -> None:
    answer = "The red car is old. " * 200
    windows = passages("What?", answer)
    assert len(windows) > 2
    words = [word for window in windows for word in window.words[window.fresh :]]
    assert words == split_words(answer)
    assert windows[0].fresh == windows[0].split
    for last, window in pairwise(windows):
        shared = window.words[window.split : window.fresh]
        assert shared == last.words[-len(shared) :] and 0 < len(shared) <= SHARED
        assert shared[0].text == "The"
    for window in windows:
        assert [word.text for word in window.words[: window.split]] == ["What", "?"]
        assert len(window.words) - window.split <= WINDOW
        assert window.words[-1].text == "."


def test_words_without_an_end_are_cut_all_the_same() -> None:
    assert max(len(window.words) for window in passages("", "word " * 5000)) < 512


def test_of_the_options_only_the_chosen_one_is_asked() -> None:
    [passage] = passages("What is it? A. a dog B. a cat", "B")
    assert "cat" in [word.text for word in passage.words]
    assert "dog" not in [word.text for word in passage.words]
    assert passage.characters((passage.split, passage.split)) == (0, 1)
    assert passage.characters((0, 0)) == (0, 0)


@pytest.mark.parametrize(
    "prompt",
    [
        "Which is it?\n(a) a tall dog\n(b) a cat\n(c) none\nAnswer with the letter.",
        "Which is it? A. a tall dog B. a cat C. none",
        "Which is it?\nA) a tall dog   \n\nB)\na cat\nC) none",
    ],
)
def test_options_stand_in_one_line_or_in_many(prompt: str) -> None:
    asked = {}
    for letter in "abc":
        [passage] = passages(prompt, letter)
        asked[letter] = " ".join(word.text for word in passage.words[: passage.split])
    assert asked == {
        "a": "Which is it ? a tall dog",
        "b": "Which is it ? a cat",
        "c": "Which is it ? none",
    }


@pytest.mark.parametrize(
    "reply",
    [
        *("$B$", "   {B} .", "The answer is $ {B}$.", "**B**", "(B) a cat", "The correct option is B."),
        *('{"answer": "B", "explanation": "It purrs."}', '{"confidence": 0.9, "choice": "(B) a cat"}'),
        *("The answer is: **B**", "Correct answer: B", "My final answer is (B).", "[B]", "B\n\nIt purrs."),
    ],
)
def test_a_choice_is_seen_however_latex_wraps_it(reply: str) -> None:
    [passage] = passages("Which is it?\nA. a dog\nB. a cat", reply)
    assert " ".join(word.text for word in passage.words[: passage.split]) == "Which is it ? a cat"


@pytest.mark.parametrize("reply", ["A dog.", "$5", "B side of a record", "A $5 note", '{"name": "B"}'])
def test_what_begins_with_a_letter_is_no_choice(reply: str) -> None:
    [passage] = passages("Which is it?\nA. a dog\nB. a cat", reply)
    assert "dog" in [word.text for word in passage.words[: passage.split]]


@pytest.mark.parametrize(
    ("piece", "size"),
    [(" ", 1_000_000), ("\n", 100_000), ("A. ", 100_000), ("A.", 100_000), ("a) \n", 100_000)],
)
def test_a_megabyte_of_blanks_in_a_prompt_takes_no_long_time(piece: str, size: int) -> None:
    begun = time.process_time()
    prompt = "What is it? A. a dog B. a cat" + piece * (size // len(piece)) + "."
    assert Passage(prompt, "B", []).words
    # A fraction of a second; what goes back over the text takes hours.
    assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    ("prompt", "answer", "read"),
    [
        ("Is there a dog?", "YES", "Yes ."),
        ("Is there a dog?", "**no**", "No ."),
        ("Which?\nA. a cat\nB. a dog", "b.", "( B )"),
        ("Is vitamin B in it?", "B", "B"),
        ("Is there a dog?", "Yes, a dog", "Yes , a dog"),
    ],
)
def test_a_reply_of_one_word_is_read_as_one_of_the_forms_that_were_taught(
    prompt: str, answer: str, read: str
) -> None:
    [passage] = passages(prompt, answer)
    words = passage.words[passage.split :]
    assert " ".join(word.text for word in words) == read
    assert all(0 <= word.start <= word.end <= len(answer) for word in words)
