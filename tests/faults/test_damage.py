"""A short campaign of interrupted erasures and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.campaign.damage import KINDS, damage


@pytest.mark.parametrize("seed", range(len(KINDS)))
async def test_an_erasure_counts_once_and_damage_is_told(tmp_path: Path, seed: int) -> None:
    found = await damage(tmp_path, rounds=1, seed=seed)
    assert found["ok"], found["forbidden"]
