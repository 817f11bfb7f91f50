"""AMBER through the running system: each response is judged by what it carries, and the ledger balances."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from groundwatch.events import LIVE, Decision
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.system.up import whole_system
from groundwatch_benchmarks.methods.amber.scoring import Annotation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# To import it takes seconds, in every process that collects tests.
if find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence_transformers", allow_module_level=True)

KNOWN = Annotation(
    truth=("dog", "person"),
    hallu=("cat",),
    associated={"person": ("man", "woman")},
    listed=frozenset({"dog", "person", "man", "woman", "cat", "tree", "light"}),
    safe=frozenset({"light"}),
)
SKY = "Is there a sky in this image?"


def body(name: str, answer: str, protocol: str = "amber", **changes: Any) -> dict[str, Any]:
    return {"id": name, "model": "m", "answer": answer, "protocols": [protocol], **changes}


async def test_every_response_has_its_outcome(tmp_path: Path) -> None:
    reference = msgspec.to_builtins(KNOWN.reference())
    sky = {"prompt": SKY, "reference": {"facts": [{"text": SKY, "holds": False}]}}
    bodies = [
        body("said", "A woman and a cat stand in the light. The cat sleeps.", reference=reference),
        body("nothing", "It is a fine day.", reference=reference),
        body("unknown", "A dog."),
        body("sky", "No.", "amber-existence", **sky),
        body("grass", "Yes.", "amber-relation", **sky),
    ]
    async with whole_system(Settings(gateway=GatewaySettings(port=0)), tmp_path) as system:
        async with httpx.AsyncClient(base_url=system.gateway_url, timeout=30) as http:
            for one in bodies:
                assert (await http.post("/v1/responses", json=one)).status_code in (200, 202)
        for _ in range(600):
            ledger = await audit(system.bus.js)
            if not ledger.in_flight and ledger.recorded == len(bodies):
                break
            await asyncio.sleep(0.1)
        found = {outcome.id: outcome async for outcome in read_outcomes(system.bus, LIVE, follow=False)}
    assert ledger.balanced and (ledger.scored, ledger.unscored) == (3, 2)
    said = found["said"]
    assert said.score == pytest.approx(1 / 2) and said.judges["matching"].engine == "amber"
    assert said.values == {
        **dict.fromkeys(("answers", "hal", "covered", "targets_named", "targets"), 1),
        **dict.fromkeys(("hallucinated", "target_mentions", "annotated"), 2),
        "mentioned": 4,
    }
    decided = [(claim.text, claim.decision) for claim in said.claims]
    assert decided == [
        ("woman", Decision.SUPPORTED),
        ("cat", Decision.REFUTED),
        ("light", Decision.SUPPORTED),
        ("cat", Decision.REFUTED),
    ]
    assert found["nothing"].reason == "nothing_to_verify" and found["nothing"].values["annotated"] == 2
    assert found["unknown"].reason == "no_reference"
    assert (found["sky"].score, found["grass"].score) == (1, 0)
