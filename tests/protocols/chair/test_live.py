"""CHAIR through the running system: scored, unscored with its reasons, and the ledger balances."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from groundwatch.events import LIVE, Decision, OutcomeKind
from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.system.up import whole_system

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# To import it takes seconds, in every process that collects tests.
if find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence_transformers", allow_module_level=True)

ANSWER = "A puppy sleeps on the sofa. A cat watches it beside a mug."


def body(name: str, answer: str, *objects: str) -> dict[str, Any]:
    reference = {"reference": {"objects": list(objects)}} if objects else {}
    return {"id": name, "model": "m", "answer": answer, "protocols": ["chair"], **reference}


async def test_every_response_has_its_outcome(tmp_path: Path) -> None:
    bodies = [
        body("said", ANSWER, "dog", "couch", "cup", "person"),
        body("nothing", "It is a sunny day.", "dog"),
        body("unknown", "A dog."),
    ]
    async with whole_system(Settings(gateway=GatewaySettings(port=0)), tmp_path) as system:
        async with httpx.AsyncClient(base_url=system.gateway_url, timeout=30) as http:
            for one in bodies:
                assert (await http.post("/v1/responses", json=one)).status_code in (200, 202)
        ledger = await _settled(system, len(bodies))
        found = {outcome.id: outcome async for outcome in read_outcomes(system.bus, LIVE, follow=False)}
    assert ledger.balanced and ledger.recorded == len(bodies)
    assert (ledger.scored, ledger.unscored) == (1, 2)
    said = found["said"]
    assert (said.outcome, said.score) == (OutcomeKind.SCORED, pytest.approx(3 / 4))
    assert said.judges["matching"].engine == "chair"
    assert said.values["coverage"] == pytest.approx(3 / 4)
    assert [claim.text for claim in said.claims if claim.decision is Decision.REFUTED] == ["cat"]
    assert found["nothing"].reason == "nothing_to_verify"
    assert found["unknown"].reason == "no_reference"


async def _settled(system: Any, recorded: int) -> Ledger:
    for _ in range(600):
        ledger = await audit(system.bus.js)
        if not ledger.in_flight and ledger.recorded == recorded:
            break
        await asyncio.sleep(0.1)
    return ledger
