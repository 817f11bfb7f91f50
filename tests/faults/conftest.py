"""One system of real processes for all fault tests, and what became of an undisturbed run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.harness import NATS, SERVICES, System, responses, sending, system

COUNT = 2_000


@pytest.fixture(scope="package")
def running() -> Iterator[System]:
    """A started system, shared: each test leaves it whole. It ends with them: it costs when idle too."""
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


@pytest.fixture(scope="package")
def undisturbed(running: System) -> dict[str, dict[str, Any]]:
    """By id, the outcomes of a run in which nothing happened."""
    with sending(running, responses("undisturbed", COUNT)):
        pass
    ledger = running.settle()
    assert ledger.balanced and not ledger.in_flight, ledger
    return running.outcomes("undisturbed")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        # A file that a thread still has open keeps nobody waiting.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
