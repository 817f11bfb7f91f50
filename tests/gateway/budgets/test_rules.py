"""Signals: from 0 to 1 whatever comes, and telling what they say they tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.events import ResponseRecorded
from groundwatch.gateway.budgets.rules import SIGNALS, Signals


def response(answer: str = "A dog.", **fields) -> ResponseRecorded:
    return ResponseRecorded(**{"id": "r", "model": "m", "answer": answer} | fields)


@given(
    st.text(max_size=80),
    st.dictionaries(
        st.sampled_from(["suspicion", "mean_logprob"]), st.text(max_size=8) | st.floats().map(str)
    ),
)
def test_every_signal_is_from_0_to_1(answer, tags):
    signals = Signals()
    for name in SIGNALS:
        assert 0 <= signals.largest((name,), response(answer, tags=tags)) <= 1


@pytest.mark.parametrize(
    ("name", "quiet", "loud"),
    [
        ("sent", response(tags={"suspicion": "0.2"}), response(tags={"suspicion": "0.9"})),
        ("logprob", response(tags={"mean_logprob": "-0.1"}), response(tags={"mean_logprob": "-2.5"})),
        ("hedges", response("A dog sits on a red mat."), response("It is possibly a dog, perhaps on a mat.")),
        ("no-image", response(images=("a" * 64,)), response()),
    ],
)
def test_a_signal_is_quiet_or_loud(name, quiet, loud):
    signals = Signals()
    assert signals.largest((name,), quiet) < 0.5 <= signals.largest((name,), loud)
    assert signals.largest(("sent", name), loud) >= 0.5


def test_an_unusual_length_is_one_of_its_own_model():
    signals = Signals()
    for number in range(60):
        signals.largest(("length",), response("word " * (20 + number % 5)))
    assert signals.largest(("length",), response("word " * 22)) < 0.5
    assert signals.largest(("length",), response("word " * 200)) == 1.0
    assert signals.largest(("length",), response("word " * 200, model="other")) == 0.0


def test_what_is_no_signal_says_nothing():
    assert Signals().largest(("gone",), response()) == 0.0
