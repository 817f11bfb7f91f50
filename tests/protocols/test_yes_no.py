"""Free-form replies read as yes or no."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import cases

from groundwatch.protocols.questions import REASONS, Reading, read_reply
from groundwatch_benchmarks.methods.yes_no import read_as_published

CASES = cases(__file__)
QUESTION = "Is there a dog in the image?"


def test_each_reply_is_read() -> None:
    found = {reply: read_reply(reply, QUESTION).answer for word in ("yes", "no") for reply in CASES[word]}
    assert found == {reply: word for word in ("yes", "no") for reply in CASES[word]}


def test_neither_has_a_reason() -> None:
    wanted = {reply: Reading(None, reason) for reason in REASONS for reply in CASES[reason]}
    assert {reply: read_reply(reply, QUESTION) for reply in wanted} == wanted


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


def test_the_published_reading() -> None:
    wanted = {reply: word for word in ("yes", "no") for reply in CASES[f"published_{word}"]}
    assert {reply: read_as_published(reply) for reply in wanted} == wanted


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("**Yes**", "yes"),
        ("__No__", "no"),
        ("Answer: yes", "yes"),
        ("**Final answer:** No", "no"),
        ('{"answer": "no"}', "no"),
        ('{"answer": true, "why": "no cat"}', "yes"),
        ('```json\n{"reasoning": "There is no cat.", "answer": "Yes"}\n```', "yes"),
        ("$\\boxed{\\text{No}}$", "no"),
        ("\\(\\text{Yes}\\)", "yes"),
        ("```answer\nNo\n```", "no"),
        ("It may be \\boxed{yes}, but no: \\boxed{No}", "no"),
        ("<think>No dog? No. Wait, there it is.</think>Yes.", "yes"),
        ("I see no dog.\n</think>\n\nYes", "yes"),
        ("Okay, the user asks about a dog. Let me look: no dog here? Wait.\n\nYes.", "yes"),
        ("<answer>no</answer>", "no"),
    ],
)
def test_what_models_put_around_a_reply_is_no_reply(reply, answer):
    assert read_reply(reply, "Is there a dog in the image?").answer == answer


def test_reasoning_alone_is_no_reply():
    assert read_reply("<think>Yes, there is a dog, so").answer is None
