"""Free-form replies read as yes or no."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.pope.replies import (
    BOTH,
    EMPTY,
    REASONS,
    REFUSED,
    UNREADABLE,
    UNSURE,
    read_as_published,
    read_reply,
)

QUESTION = "Is there a dog in the image?"

YES = """Yes|YES!!|**Yes**|1. Yes|yes, but it is small.|Well, yes, there is.|Yes. No cat though.
{"answer": "yes"}|Answer: yes|Yes/No: Yes|I would say yes.|Indeed, a dog lies on the mat.|Of course.
That is correct.|Sure, there's one on the left.|It is.|There is a dog in the image.|A dog is visible.
There is a dog but no cat.|There is no doubt that there is a dog.|The image shows a dog
There appears to be a dog.
Looking closely, I can see a dog in the snow.|It appears that there is a dog.
Certainly not a cat, there is a dog."""
NO = """No|no.|Nope|No, there is a cat.|Based on the image, no.|I'd say no.
The answer is no|<answer>No</answer>
The correct answer is: No.|There is no dog in the image.|There aren't any dogs.|A dog is not visible.
There is a cat but no dog.|I don't see a dog.|I cannot see a dog in the image.|The image does not show a dog.
It isn't there.|Not in this image.|None that I can see.|Unfortunately, no dog is visible.|Certainly not.
Of course not.|Absolutely no dog here|That is not correct.|That's incorrect|No, I'm not sure what you mean
it does not appear that there is a dog|There doesn't appear to be a dog.|I cannot see any dog"""
UNREAD = {
    EMPTY: ["", "  \n", "...", "—"],
    REFUSED: ["I cannot see the image.", "I'm sorry, I can't assist with that.", "No image was provided."],
    UNSURE: [
        "Not sure",
        "I can't say yes or no.",
        "It is hard to tell.",
        "There might be a dog.",
        "No idea.",
        "I do not know",
        "Unknown",
        "maybe yes",
        "I cannot determine whether there is a dog",
    ],
    BOTH: ["Yes and no.", "yes/no", "Yes or no."],
    UNREADABLE: ["Snow covers the ground.", "Knowledge", "yesterday", "Norway", "a cat"],
}


def cases(lines: str) -> list[str]:
    return [one for line in lines.splitlines() for one in line.split("|")]


@pytest.mark.parametrize("reply", cases(YES))
def test_yes(reply):
    assert read_reply(reply, QUESTION).answer == "yes"


@pytest.mark.parametrize("reply", cases(NO))
def test_no(reply):
    assert read_reply(reply, QUESTION).answer == "no"


@pytest.mark.parametrize(
    ("reason", "reply"), [(reason, one) for reason, several in UNREAD.items() for one in several]
)
def test_neither_has_a_reason(reason, reply):
    found = read_reply(reply, QUESTION)
    assert (found.answer, found.reason) == (None, reason)


@given(st.text(max_size=200), st.text(max_size=80))
def test_any_text_is_read_without_fail(reply, question):
    found = read_reply(reply, question)
    assert (found.answer is None) == (found.reason in REASONS)
    assert found.reason == "" or found.reason in REASONS
    assert read_as_published(reply) in ("yes", "no")


@given(st.sampled_from(["yes", "no"]), st.sampled_from(["", ".", "!", ", it is as you say", "\n\nBecause."]))
def test_case_and_tail_do_not_matter(word, tail):
    for written in (word, word.upper(), word.capitalize(), f" {word}", f"*{word}*"):
        assert read_reply(written + tail).answer == word


def test_a_long_reply_costs_little():
    texts = [
        part * 50_000 for part in (",", " ", "no ", "a the ", "unable to ", "as an ai ", "is there a ", "\n")
    ]
    start = time.process_time()
    for text in texts:
        read_reply(text, text)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("reply", "published"),
    [
        ("", "yes"),
        ("Nope", "yes"),
        ("NO", "yes"),
        ("I cannot see the image", "yes"),
        ("Not sure", "yes"),
        ("I am not sure", "no"),
        ("There is a dog, and no cat", "no"),
        ("Yes. There is no cat", "yes"),
        ("No\nthanks", "yes"),
        ("Snow", "yes"),
    ],
)
def test_the_published_reading(reply, published):
    assert read_as_published(reply) == published
