"""GC@T and what follows from it, by example, by the published table and as properties."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwatch.protocols.genception.protocol import gc_each
from groundwatch_benchmarks.methods.genception.suite import Chain, by_category, drift, gc_at, mean_gc, ranking

LEADERBOARD = Path(__file__).parents[5] / "shared" / "data" / "genception" / "leaderboard.json"

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


TABLE_2 = files("groundwatch_benchmarks.methods.genception").joinpath("table-2.json")
PRINTED = msgspec.json.decode(TABLE_2.read_bytes())


CATEGORIES = [
    name.removesuffix(".acc")
    for column in PRINTED["columns"]
    if (name := column["name"]).endswith(".acc") and name not in ("visual.acc", "textual.acc")
]


def printed() -> dict[str, dict[str, float | None]]:
    names = [column["name"] for column in PRINTED["columns"]]
    return {row["model"]: dict(zip(names, row["values"], strict=True)) for row in PRINTED["rows"]}


def chain_of(model: str, category: str, gc: Sequence[float]) -> Chain:
    """A chain with this GC@1, GC@3 and GC@5, where they are given."""
    s = [gc[0]]
    for t, value in zip((3, 5), gc[1:], strict=False):
        rest = value * t * (t + 1) / 2 - sum(at * one for at, one in enumerate(s, start=1))
        s += [rest / (t - 1 + t)] * 2
    return Chain(image=category, model=model, category=category, similarities=tuple(s))


def test_table_2s_ranks_follow_from_its_scores_by_category():
    rows = printed()
    models = {
        model: [
            chain_of(model, name, [gc for t in (1, 3, 5) if (gc := row.get(f"{name}.gc{t}")) is not None])
            for name in CATEGORIES
        ]
        for model, row in rows.items()
    }
    assert mean_gc(models["GPT-4V"], 3) == pytest.approx(0.351, abs=0.0005)
    found = ranking(models, 5)
    assert found["categories"] == {"visual": 10, "textual": 4}
    assert found["gc_rank"] == {model: pytest.approx(row["gc_rank"], abs=0.01) for model, row in rows.items()}
    assert found["mean"] is None, "textual chains have three rounds"
    assert ranking(models, 3)["mean"] == {
        model: pytest.approx(row["all.gc3"], abs=0.001) for model, row in rows.items()
    }


def test_models_are_ranked_on_what_all_of_them_have():
    one = {"a": [chain_of("a", "Count", [0.5]), chain_of("a", "ocr", [0.1])]}
    two = one | {"b": [chain_of("b", "count", [0.6]), chain_of("b", "my own", [0.9])]}
    assert ranking(two, 5) == {
        "categories": {"visual": 1},
        "mean": None,
        "gc_rank": {"a": 2.0, "b": 1.0},
    }
    assert ranking(two, 1)["mean"] == {"a": 0.5, "b": 0.6}
    assert ranking({"a": [chain_of("a", "my own", [0.9])]}, 1)["gc_rank"] is None


@pytest.mark.skipif(not LEADERBOARD.is_file(), reason="the shared leaderboard is not on this machine")
def test_the_leaderboards_means_come_out():
    short = ("Exist", "Count", "Posi", "Col", "Post", "Cel", "Sce", "Lan", "Art", "Comm")
    short += ("Code", "Num", "Tran", "OCR")
    scores = {one["name"]: one["scores"] for one in msgspec.json.decode(LEADERBOARD.read_bytes())["models"]}
    models = {
        model: [
            chain_of(model, full, [found[name]] * 2) for name, full in zip(short, CATEGORIES, strict=True)
        ]
        for model, found in scores.items()
    }
    assert ranking(models, 3)["mean"] == {
        model: pytest.approx(found["Mean"], abs=0.001) for model, found in scores.items()
    }
