from __future__ import annotations

from pathlib import Path

import pytest

from groundwatch.errors import UsageError
from groundwatch.protocols.method import Tally, TallyRequest

FILE = Path("nowhere")


@pytest.fixture
def strict() -> Tally:
    return Tally(
        compute=lambda request: dict(request.given),
        needs={"subset": "one of a, b"},
        takes=frozenset({"labels"}),
    )


def test_options_reach_the_tally(strict: Tally):
    found = strict.run("x", TallyRequest(file=FILE, subset="a", labels=Path("l")))
    assert found == {"subset": "a", "labels": Path("l")}


def test_a_missing_option_is_told_with_its_meaning(strict: Tally):
    with pytest.raises(UsageError, match="recorded judgements of x need subset: one of a, b"):
        strict.run("x", TallyRequest(file=FILE))


def test_an_option_that_is_not_read_is_told(strict: Tally):
    with pytest.raises(UsageError, match="recorded judgements of x take no t"):
        strict.run("x", TallyRequest(file=FILE, subset="a", t=3))
