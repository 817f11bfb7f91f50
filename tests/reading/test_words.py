"""Words, their places, and windows of long answers."""

from __future__ import annotations

from groundwatch.reading.words import WINDOW, passages, split_words


def test_words_say_where_they_stand() -> None:
    text = "It isn't 3.5 m, the cat's\n\n\n$12.40\n"
    words = split_words(text)
    assert " ".join(word.text for word in words) == "It isn't 3.5 m , the cat 's \n $12.40"
    assert all(text[word.start : word.end] == word.text for word in words)


def test_a_long_answer_is_cut_at_sentences() -> None:
    answer = "The red car is old. " * 200
    windows = passages("What?", answer)
    assert len(windows) > 2
    words = [word for window in windows for word in window.words[window.split :]]
    assert words == split_words(answer)
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
