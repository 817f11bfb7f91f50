"""Several partitions whose events have left the streams: one archive, its ids, one history."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.partitions.conftest import numbers, reported, send, settings, spread, until
from tests.support.llm_server import picture

from groundwatch.archive import cooling, service
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.events import LIVE
from groundwatch.gateway.core import look_up
from groundwatch.gateway.intake import known_ids
from groundwatch.keys import home_of, response_key
from groundwatch.ledger.ledger import audit
from groundwatch.ledger.proof import prove
from groundwatch.replay.running import begin, work
from groundwatch.replay.runs import changed
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores import images, repeats
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.system.connecting import history
from groundwatch.system.up import System, whole_system
from groundwatch.topology import ARCHIVED, RESPONSES

pytestmark = pytest.mark.slow

NAMES = [f"r{number}" for number in range(20)]
assert spread(NAMES, 2)


async def test_what_is_cold_of_all_partitions_is_one_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, seconds in (
        (cooling, "COOL_SECONDS", 0.2),
        (service, "COOL_SECONDS", 0.2),
        (known_ids, "LOOK_SECONDS", 0.1),
        # Nothing leaves before a gateway that takes anything knows of it.
        (repeats, "HOLD_SECONDS", 4.0),
        (repeats, "CURRENT_SECONDS", 3.0),
        (images, "GRACE_SECONDS", 0.0),
    ):
        monkeypatch.setattr(module, name, seconds)
    archive = ArchiveSettings(url=str(tmp_path / "archive"), hot_days=1e-9, flush_seconds=0.1)
    given = settings(2, archive=archive)
    async with (
        whole_system(given, tmp_path / "data") as system,
        httpx.AsyncClient(base_url=system.gateway_url, timeout=60) as client,
    ):
        bus = system.bus
        seen = picture("a dog")
        sent = await client.post("/v1/images", content=seen, headers={"content-type": "image/png"})
        image = sent.json()["sha256"]
        shown = next(name for name in NAMES if home_of(response_key("default", name), 2) == 1)
        body = {"id": shown, "model": "m", "answer": "A dog runs.", "protocols": ["faithscore"]}
        (await client.post("/v1/responses", json=body | {"images": [image]})).raise_for_status()
        others = [name for name in NAMES if name != shown]
        assert {await send(client, name) for name in others} == {"recorded"}

        async def cold() -> bool:
            return not any([sum(await numbers(system, kind)) for kind in ARCHIVED])

        async def image_is_cold() -> bool:
            return await ImageStore(bus.js).stored(image) is None

        await until(lambda: reported(client, len(NAMES)))
        await until(cold)
        await until(image_is_cold)
        assert (await client.get(f"/v1/images/{image}")).content == seen

        assert {await send(client, name) for name in others} == {"duplicate"}
        assert {await send(client, name, "Another.") for name in others} == {"conflict"}
        assert not any(await numbers(system, RESPONSES))
        for name in NAMES:
            found = await look_up(bus, "default", name)
            assert found is not None and found["outcomes"] and not found["waiting"]
        ledger = await audit(bus.js, partitions=2, cold=bus.cold, settle=60.0)
        assert (ledger.responses, ledger.scored, ledger.balanced) == (20, 20, True)
        proof = await prove(bus.js, partitions=2, cold=bus.cold, settle=60.0)
        assert (proof.differences, proof.unproven, proof.lost_files) == ((), (), ())
        assert proof.proven == 2
        async with history(system.settings) as session:
            assert session.ask("SELECT count(DISTINCT key) FROM outcomes").rows == [[20]]

        # A replay reads both partitions from the archive.
        run = await begin(bus, system.settings, Spec(run="again", stage="extraction"))
        assert sum(last - first + 1 for first, last in run.parts) == 20
        done = await work(bus, system.settings, run)
        assert (done.status, done.counts.outcomes) == ("done", 20)
        assert (await changed(bus.history, LIVE, "again")).changed == 0
        found_ids = sorted([one.id async for one in read_outcomes(bus, LIVE, follow=False)])
        assert found_ids == sorted(NAMES)
        of_run = await audit(bus.js, "again", partitions=2, cold=bus.cold)
        assert (of_run.recorded, of_run.scored, of_run.balanced) == (20, 20, True)

        # One that is cold, in the second partition, is erased there with its image.
        stores = Stores.of(archive, partitions=2)
        erased = await Eraser(bus.js, subject(shown, None, None), stores, wait=60.0).erase(verify=True)
        assert erased.proof is not None and erased.proof.holds, erased.proof
        assert erased.counts["images"] == 1
        assert await look_up(bus, "default", shown) is None
        ledger = await audit(bus.js, partitions=2, cold=bus.cold, settle=60.0)
        assert (ledger.responses, ledger.scored, ledger.balanced) == (19, 19, True)
        proof = await prove(bus.js, partitions=2, cold=bus.cold, settle=60.0)
        assert proof.differences == () and proof.proven == 2
        # What comes now is hot beside it.
        assert await send(client, "new") == "recorded"
        await until(lambda: judged(system, "new"))
        assert (await audit(bus.js, partitions=2, cold=bus.cold, settle=60.0)).scored == 20


async def judged(system: System, name: str) -> bool:
    found = await look_up(system.bus, "default", name)
    return found is not None and bool(found["outcomes"])
