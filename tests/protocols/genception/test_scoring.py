"""GC@T and what follows from it, by example, by the published table and as properties."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.genception.scoring import (
    Chain,
    by_category,
    drift,
    gc_at,
    gc_each,
    gc_rank,
    mean_gc,
    overall,
    ranks,
)

LEADERBOARD = Path(__file__).parents[4] / "shared" / "data" / "genception" / "leaderboard.json"

cosines = st.lists(st.floats(-1, 1), max_size=8)
chains = st.lists(
    st.builds(
        Chain,
        image=st.text("ab", min_size=1, max_size=2),
        similarities=cosines.map(tuple),
        category=st.sampled_from(["count", "ocr", ""]),
    ),
    max_size=10,
)


def test_equation_3_by_hand():
    assert gc_at([0.9, 0.6, 0.3], 3) == pytest.approx((0.9 + 1.2 + 0.9) / 6)


@given(cosines.filter(bool))
def test_gc_at_1_is_the_first_similarity(found):
    assert gc_at(found, 1) == found[0]


@given(cosines, st.integers(1, 9))
def test_bounds_and_short_chains(found, t):
    gc = gc_at(found, t)
    assert (gc is None) == (len(found) < t)
    if gc is not None:
        assert min(found[:t]) - 1e-12 <= gc <= max(found[:t]) + 1e-12


@given(cosines)
def test_every_t_at_once(found):
    assert list(gc_each(found)) == pytest.approx([gc_at(found, t) for t in range(1, len(found) + 1)])


@given(st.floats(-1, 1), st.integers(1, 9))
def test_a_chain_that_does_not_drift(value, t):
    assert gc_at([value] * t, t) == pytest.approx(value)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6))
def test_later_iterations_weigh_more(found):
    assert gc_at(sorted(found), len(found)) >= gc_at(sorted(found, reverse=True), len(found)) - 1e-12


def test_t_starts_at_1():
    with pytest.raises(ValueError, match="at least one"):
        gc_at([0.5], 0)


@given(chains, st.integers(1, 5), st.randoms())
def test_means_are_over_chains_in_any_order_and_number(found, t, random):
    mean = mean_gc(found, t)
    shuffled = found * 2
    random.shuffle(shuffled)
    assert mean_gc(shuffled, t) == (None if mean is None else pytest.approx(mean))
    assert (mean is None) == all(len(chain.similarities) < t for chain in found)


@given(chains)
def test_categories_part_the_chains(found):
    assert sum(len(group) for group in by_category(found).values()) == len(found)


@given(chains)
def test_drift_says_how_many_chains_it_rests_on(found):
    points = drift(found)
    assert [point["t"] for point in points] == list(range(1, len(points) + 1))
    assert [point["n"] for point in points] == sorted((point["n"] for point in points), reverse=True)
    assert all(point["gc"] == pytest.approx(mean_gc(found, point["t"])) for point in points)


def test_nothing_drifts_nowhere():
    assert drift([]) == []
    assert mean_gc([], 1) is None


def test_the_weighted_rank_of_table_2():
    means = {
        "visual": {
            1: {"GPT-4V": 0.491, "mPLUG-Owl2": 0.366, "LLaVA-13B": 0.366, "LLaVA-7B": 0.339},
            3: {"GPT-4V": 0.393, "mPLUG-Owl2": 0.287, "LLaVA-13B": 0.264, "LLaVA-7B": 0.255},
            5: {"GPT-4V": 0.335, "mPLUG-Owl2": 0.243, "LLaVA-13B": 0.220, "LLaVA-7B": 0.215},
        },
        "textual": {
            1: {"GPT-4V": 0.375, "mPLUG-Owl2": 0.284, "LLaVA-13B": 0.291, "LLaVA-7B": 0.252},
            3: {"GPT-4V": 0.246, "mPLUG-Owl2": 0.181, "LLaVA-13B": 0.174, "LLaVA-7B": 0.149},
        },
    }
    found = gc_rank(means, {"visual": 10, "textual": 4})
    assert {name: round(rank, 2) for name, rank in found.items()} == {
        "GPT-4V": 1.0,
        "mPLUG-Owl2": 2.14,
        "LLaVA-13B": 2.62,
        "LLaVA-7B": 4.0,
    }


def test_a_model_that_is_missing_has_no_rank():
    with pytest.raises(ValueError, match="not every model has GC@3 in group 'v'"):
        gc_rank({"v": {1: {"a": 1, "b": 0}, 3: {"a": 1}}}, {"v": 2})


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), st.floats(-1, 1), min_size=1))
def test_ranks_begin_at_1_and_follow_the_scores(scores):
    found = ranks(scores)
    assert min(found.values()) == 1
    assert all((found[a] < found[b]) == (scores[a] > scores[b]) for a in scores for b in scores)


@pytest.mark.skipif(not LEADERBOARD.is_file(), reason="the shared leaderboard is not on this machine")
def test_the_leaderboards_means_come_out():
    short = ("Exist", "Count", "Posi", "Col", "Post", "Cel", "Sce", "Lan", "Art", "Comm")
    for model in msgspec.json.decode(LEADERBOARD.read_bytes())["models"]:
        scores = model["scores"]
        visual = sum(scores[name] for name in short) / len(short)
        assert visual == pytest.approx(scores["VisMean"], abs=0.001)
        groups = {"visual": scores["VisMean"], "textual": scores["TextMean"]}
        assert overall(groups, {"visual": 10, "textual": 4}) == pytest.approx(scores["Mean"], abs=0.001)
