"""What can be asked for, and what is refused in one line."""

from __future__ import annotations

import pytest
from tests.replay.conftest import response

from groundwatch.errors import UsageError
from groundwatch.replay.spec import Selection, Spec, pace
from groundwatch.times import read_moment
from groundwatch.topology import Address


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"run": "live"}, "another name"),
        ({"run": "a.b"}, "letters, digits"),
        ({"run": ""}, "letters, digits"),
        ({"run": "x" * 65}, "at most 64"),
        ({"stage": "judging"}, "there are extraction, verification, matching, scoring"),
        ({"stage": "captioning"}, "from scoring on"),
        ({"stage": "generation"}, "from scoring on"),
        ({"protocols": ("nothing",)}, "no protocol 'nothing'"),
        ({"protocols": ("genception",)}, "from scoring on"),
        ({"since": 5.0, "until": 5.0}, "the end is not after the beginning"),
        ({"max_cost": float("nan")}, "max_cost nan"),
        ({"source": "a b"}, "letters, digits"),
    ],
)
def test_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        Spec(**({"run": "r"} | changes)).check()
    assert "\n" not in str(caught.value)


def test_chains_are_scored_again() -> None:
    Spec(run="r", protocols=("genception",), stage="scoring").check()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86_400.0),
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T01:01:00+01:00", 60.0),
        ("90", 90.0),
        ("2h", 1e6 - 7_200),
        ("1.5d", 1e6 - 129_600),
    ],
)
def test_moments(text: str, seconds: float) -> None:
    assert read_moment(text, "--since", 1e6) == seconds


@pytest.mark.parametrize("text", ["yesterday", "", "-5", "nan", "1y"])
def test_no_moment(text: str) -> None:
    with pytest.raises(UsageError, match="--since"):
        read_moment(text, "--since", 1e6)


def test_paces() -> None:
    assert [pace(text) for text in ("1x", "10x", "0.5x", "2", "max")] == [1.0, 10.0, 0.5, 2.0, 0.0]
    for text in ("0x", "fast", "-1x", "infx", "nan"):
        with pytest.raises(UsageError, match="write 1x, 10x"):
            pace(text)


def test_selection_by_response() -> None:
    spec = Spec(run="r", models=("a",), tenants=("t",), since=10.0, until=20.0)
    selection = Selection(spec)
    wanted = response("1", model="a", tenant="t", recorded_at=10.0)
    assert selection.response(wanted)
    for changes in ({"model": "b"}, {"tenant": "u"}, {"recorded_at": 9.9}, {"recorded_at": 20.0}):
        assert not selection.response(
            response("1", **({"model": "a", "tenant": "t", "recorded_at": 10.0} | changes))
        )


def test_sampling_is_by_seed_and_key_alone() -> None:
    first, again = Selection(Spec(run="r", seed=1)), Selection(Spec(run="other", seed=1))
    other = Selection(Spec(run="r", seed=2))
    keys = [response(str(number)).key for number in range(200)]
    assert [first.hash(key) for key in keys] == [again.hash(key) for key in keys]
    assert [first.hash(key) for key in keys] != [other.hash(key) for key in keys]
    half = Selection(Spec(run="r", seed=1, below=1 << 63))
    kept = sum(half.subject(Address("recorded", "live", key)) for key in keys)
    assert 60 < kept < 140


def test_chains_are_left_out_of_recorded_responses() -> None:
    selection = Selection(Spec(run="r"))
    both = ("genception", "faithscore")
    assert selection.asked(both) == (("faithscore",), 1)
    assert Selection(Spec(run="r", protocols=("pope",))).asked(both) == ((), 0)
