"""One system of real processes for all fault tests, and what became of an undisturbed run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.faults.harness import NATS, SERVICES, System, responses, sending, system

COUNT = 2_000


@pytest.fixture(scope="session")
def running() -> Iterator[System]:
    """A started system, shared: each test leaves it whole."""
    with system() as started:
        yield started


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails half way does not take the next ones along."""
    yield
    if "running" not in request.fixturenames:
        return
    running: System = request.getfixturevalue("running")
    for name in (NATS, *SERVICES):
        if not running.children[name].alive:
            running.children[name].start()
    running.wait_ready(*SERVICES)


@pytest.fixture(scope="session")
def undisturbed(running: System) -> dict[str, dict[str, Any]]:
    """By id, the outcomes of a run in which nothing happened."""
    with sending(running, responses("undisturbed", COUNT)):
        pass
    ledger = running.settle()
    assert ledger.balanced and not ledger.in_flight, ledger
    return running.outcomes("undisturbed")
