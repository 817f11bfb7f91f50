"""The shipped engines under the same knives: fewer answers, real judgements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.faults.harness import NATS, SERVICES, System, sending, system

import groundwatch.demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# To import it takes seconds, in every process that collects tests.
if find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence_transformers", allow_module_level=True)

COUNT = 120


def answers(tenant: str) -> list[bytes]:
    """Answers of the demo with their references."""
    sample = Path(groundwatch.demo.__file__).with_name("answers.jsonl")
    with sample.open("rb") as lines:
        return [
            msgspec.json.encode(
                {**msgspec.json.decode(line), "tenant": tenant, "id": f"r{number}", "images": []}
            )
            for number, line in enumerate(itertools.islice(lines, COUNT))
        ]


@pytest.fixture(scope="module")
def embedded() -> Iterator[System]:
    """A system with the engines that a newcomer gets."""
    with system(engines="real") as started:
        yield started


def test_real_judgements_do_not_change_when_the_judges_are_killed(embedded: System) -> None:
    def outcomes(tenant: str) -> dict[str, dict[str, Any]]:
        ledger = embedded.settle()
        assert ledger.balanced and not ledger.in_flight, ledger
        return embedded.outcomes(tenant)

    def confidences(outcomes: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
        """Taken out of them: which answers are read together changes their last digits."""
        return {
            name: [unit.pop("confidence") for unit in one.get("units", ())] for name, one in outcomes.items()
        }

    with sending(embedded, answers("undisturbed")):
        pass
    undisturbed = outcomes("undisturbed")
    assert len(undisturbed) == COUNT
    assert sum(one["outcome"] == "scored" for one in undisturbed.values()) > COUNT / 2
    assert len({one.get("score") for one in undisturbed.values()}) > 5

    with sending(embedded, answers("killed"), pause=0.5) as sender:
        for number, victim in enumerate(("extraction", "verification", NATS), start=1):
            sender.at(number * 30)
            embedded.kill_and_restart(victim)
        embedded.wait_ready(*SERVICES)
    killed = outcomes("killed")
    before, after = confidences(undisturbed), confidences(killed)
    assert sum(map(len, before.values())) > COUNT
    assert after == {name: pytest.approx(several, abs=0.011) for name, several in before.items()}
    assert killed == undisturbed
