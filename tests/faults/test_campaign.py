"""A short campaign of faults, and one of hostile input: nothing forbidden comes of either."""

from __future__ import annotations

import json

import pytest
from tests.faults.campaign.hostile.run import hostile
from tests.faults.campaign.run import campaign

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def test_seconds_of_faults_lose_and_double_nothing() -> None:
    told = await campaign(minutes=0.2, seed=20, lanes=3)
    assert told["ok"], json.dumps(told, indent=1)
    assert told["halves"]["calls"] > 5
    assert told["acknowledged"] > 20 and told["faults"] > 5 and told["ledger"]["balanced"]


async def test_hostile_input_is_answered_as_promised() -> None:
    told = await hostile(inputs=350, seed=20)
    assert told["ok"], json.dumps(told, indent=1)
    assert told["inputs"] > 350 and told["recorded"] > 10
