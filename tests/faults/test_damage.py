"""A short campaign of interrupted erasures and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.campaign.damage import KINDS, damage
from tests.faults.campaign.tools import printed


@pytest.mark.parametrize("seed", [*range(len(KINDS)), 41225, 41229, 62316])
async def test_an_erasure_counts_once_and_damage_is_told(tmp_path: Path, seed: int) -> None:
    found = await damage(tmp_path, rounds=1, seed=seed)
    assert found["ok"], found["forbidden"]


def test_a_report_is_read_whatever_stands_around_it() -> None:
    assert printed('a warning\n{\n  "scored": 1\n}\nclosed: {"in": 1}\n') == {"scored": 1}
