"""CHAIR by hand and by property; table 6's accuracies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.chair.scoring import Caption, Judged, accuracy, chair

NAMES = st.frozensets(st.sampled_from("abcdef"))
CAPTIONS = st.lists(st.builds(Caption, mentioned=NAMES, present=NAMES), max_size=6)


def caption(mentioned: str, present: str) -> Caption:
    return Caption(mentioned=frozenset(mentioned), present=frozenset(present))


def judged(detected: str, flagged: str, mentioned: str, hallucinated: str) -> Judged:
    return Judged(
        detected=frozenset(detected),
        flagged=frozenset(flagged),
        mentioned=frozenset(mentioned),
        hallucinated=frozenset(hallucinated),
    )


def test_by_hand():
    found = chair([caption("ab", "bcd"), caption("c", "c"), caption("", "ab")])
    assert (found.chair_s, found.chair_i) == (1 / 3, 1 / 3)
    assert (found.faithfulness, found.coverage) == (pytest.approx(2 / 3), 2 / 6)
    assert (found.captions, found.mentioned, found.hallucinated) == (3, 3, 1)


def test_nothing_is_no_number():
    assert chair([]).chair_s is None
    silent = chair([caption("", "")])
    assert (silent.chair_s, silent.chair_i, silent.faithfulness, silent.coverage) == (0.0, None, None, None)


@given(CAPTIONS, st.randoms())
def test_bounds_and_order(captions, random):
    found = chair(captions)
    for value in (found.chair_s, found.chair_i, found.faithfulness, found.coverage):
        assert value is None or 0 <= value <= 1
    assert chair(random.sample(captions, len(captions))) == found


@given(CAPTIONS)
def test_repeating_the_corpus_changes_no_rate(captions):
    once, twice = chair(captions), chair(captions * 2)
    assert (once.chair_s, once.chair_i, once.coverage) == (twice.chair_s, twice.chair_i, twice.coverage)


def test_a_wrong_flag_costs_a_right_one():
    found = accuracy([judged("ab", "ab", "abc", "a"), judged("c", "", "cd", "d")])
    assert (found.faithfulness, found.coverage) == (0.0, 3 / 5)
    assert accuracy([judged("a", "ab", "a", "c")]).faithfulness == -2.0
    assert accuracy([]).faithfulness is None


@given(st.lists(st.builds(Judged, detected=NAMES, flagged=NAMES, mentioned=NAMES, hallucinated=NAMES)))
def test_no_accuracy_passes_one(judgements):
    found = accuracy(judgements)
    assert found.faithfulness is None or found.faithfulness <= 1
    assert found.coverage is None or 0 <= found.coverage <= 1
