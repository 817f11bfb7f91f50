"""VALOR through the running system: every subset scored, and the ledger balances."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from groundwatch.events import OutcomeKind, ResponseScored
from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.protocols.valor.scoring import Subset
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.system.up import whole_system

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# To import it takes seconds, in every process that collects tests.
if find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence_transformers", allow_module_level=True)

TABLE = "There are two green apples on a white table. A man in a blue jacket sits behind the table."
REFERENCES: dict[str, tuple[list[str], float, float]] = {
    Subset.OBJECT_EXISTENCE: (["apple", "desk", "man", "coat", "lamp"], 1.0, 0.8),
    Subset.ATTRIBUTE_OBJECT: (["(green, apple)", "(green, apple)", "(white, table)"], 1.0, 1.0),
    Subset.ATTRIBUTE_PEOPLE: (["(blue, coat)", "(black, shoes)"], 1.0, 0.5),
    Subset.RELATION_COMPARATIVE: (["man", "table / desk", "apple"], 0.25, 1 / 3),
}


def body(subset: str, objects: list[str], answer: str = TABLE) -> dict[str, Any]:
    return {
        "id": f"{subset}-{len(answer)}",
        "model": "m",
        "answer": answer,
        "reference": {"objects": objects},
        "protocols": [f"valor-{subset}"],
    }


async def test_every_subset_is_scored_and_nothing_is_lost(tmp_path: Path) -> None:
    bodies = [body(subset, objects) for subset, (objects, _, _) in REFERENCES.items()]
    bodies.append(body("relation-positional", ["apples are on the table | table is under the apples"]))
    bodies.append(body("object-existence", ["lamp"], answer=""))
    async with whole_system(Settings(gateway=GatewaySettings(port=0)), tmp_path) as system:
        async with httpx.AsyncClient(base_url=system.gateway_url, timeout=30) as http:
            for one in bodies:
                assert (await http.post("/v1/responses", json=one)).status_code in (200, 202)
        ledger = await _settled(system)
        assert ledger.balanced and ledger.recorded == len(bodies)
        assert (ledger.scored, ledger.unscored) == (len(bodies) - 1, 1)
        found = await _outcomes(system)
    for subset, (_, faithfulness, coverage) in REFERENCES.items():
        outcome = found[f"{subset}-{len(TABLE)}"]
        assert outcome.judges["matching"].engine == "semantic"
        assert outcome.score == outcome.values["faithfulness"]
        assert outcome.values["coverage"] == pytest.approx(coverage), (subset, outcome.claims)
        assert outcome.score == pytest.approx(faithfulness)
    assert found["object-existence-0"].outcome is OutcomeKind.UNSCORED
    assert found["object-existence-0"].reason == "no_features"


async def _settled(system: Any) -> Ledger:
    for _ in range(600):
        ledger = await audit(system.bus.js)
        if not ledger.in_flight and ledger.recorded:
            break
        await asyncio.sleep(0.1)
    return ledger


async def _outcomes(system: Any) -> dict[str, ResponseScored]:
    from groundwatch.events import LIVE
    from groundwatch.runtime.delivery.outcomes import read_outcomes

    return {outcome.id: outcome async for outcome in read_outcomes(system.bus, LIVE, follow=False)}
