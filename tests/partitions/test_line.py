"""The whole line over several partitions: from the gateway to the report, lookups and back."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.partitions.conftest import all_judged, numbers, reported, scored, send, settings, until

from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.events import LIVE
from groundwatch.gateway.comparing import compare
from groundwatch.gateway.core import look_up
from groundwatch.keys import home_of, response_key
from groundwatch.ledger.ledger import audit
from groundwatch.ledger.proof import prove
from groundwatch.replay.exports import begin_file, export
from groundwatch.replay.running import begin, delete, dry_run, work
from groundwatch.replay.runs import changed
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.outcomes import read_outcomes
from groundwatch.system.up import whole_system
from groundwatch.topology import OUTCOMES, RESPONSES


async def test_every_partition_carries_its_responses_to_their_outcomes(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(30)]
    async with (
        whole_system(settings(3), tmp_path) as system,
        httpx.AsyncClient(base_url=system.gateway_url) as client,
    ):
        assert {await send(client, name) for name in names} == {"recorded"}
        assert {await send(client, name) for name in names[:5]} == {"duplicate"}
        assert await send(client, names[0], "Another.") == "conflict"
        await until(lambda: all_judged(system, len(names)))
        homes = [home_of(response_key("default", name), 3) for name in names]
        assert await numbers(system, RESPONSES) == [homes.count(one) for one in range(3)]
        assert await numbers(system, OUTCOMES) == [homes.count(one) for one in range(3)]
        assert await scored(system) == sorted(names)
        found = await look_up(system.bus, "default", names[homes.index(2)])
        assert found is not None and found["outcomes"] and not found["waiting"]
        assert found["response"].partition == 2
        await until(lambda: reported(client, len(names)))


@pytest.mark.slow
async def test_a_replay_and_its_comparison_read_all_partitions(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(30)]
    async with (
        whole_system(settings(3), tmp_path) as system,
        httpx.AsyncClient(base_url=system.gateway_url) as client,
    ):
        assert {await send(client, name) for name in names} == {"recorded"}
        await until(lambda: all_judged(system, len(names)))
        bus = system.bus
        planned = await dry_run(bus, Spec(run="again", stage="verification"))
        assert (planned.read, planned.pairs, planned.measured_on) == (30, 30, 30)
        run = await begin(bus, system.settings, Spec(run="again", stage="verification"))
        assert [last - first + 1 for first, last in run.parts] == await numbers(system, RESPONSES)
        done = await work(bus, system.settings, run)
        assert (done.status, done.counts.outcomes) == ("done", 30)
        found = sorted([one.id async for one in read_outcomes(bus, "again", follow=False)])
        assert found == sorted(names)
        both = await compare(bus, LIVE, "again")
        assert both.sections[0].paired == 30
        assert (await changed(bus.history, LIVE, "again")).pairs == 30
        await delete(bus, "again", system.settings.archive)
        assert sum(await numbers(system, OUTCOMES)) == 30


@pytest.mark.slow
async def test_an_export_is_read_into_any_number_of_partitions(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(10)]
    file = tmp_path / "events.gw"
    async with (
        whole_system(settings(3), tmp_path / "three") as system,
        httpx.AsyncClient(base_url=system.gateway_url) as client,
    ):
        assert {await send(client, name) for name in names} == {"recorded"}
        manifest = await export(system.bus.history, Spec(run="x", stage="extraction"), file)
        assert manifest.events == 10
    for partitions in (1, 2):
        async with whole_system(settings(partitions), tmp_path / f"to-{partitions}") as system:
            run = await begin_file(system.bus, system.settings, Spec(run="x", source="x"), file)
            done = await work(system.bus, system.settings, run)
            assert (done.status, done.counts.outcomes) == ("done", 10)
            assert all(await numbers(system, RESPONSES))


@pytest.mark.slow
async def test_the_audit_balances_over_partitions_and_an_erasure_reaches_them(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(30)]
    async with (
        whole_system(settings(3), tmp_path) as system,
        httpx.AsyncClient(base_url=system.gateway_url) as client,
    ):
        assert {await send(client, name) for name in names[:20]} == {"recorded"}
        await until(lambda: all_judged(system, 20))
        js = system.bus.js
        ledger = await audit(js, partitions=3, settle=60.0)
        assert (ledger.responses, ledger.recorded, ledger.scored, ledger.balanced) == (20, 20, 20, True)
        gone = next(name for name in names[:20] if home_of(response_key("default", name), 3) == 2)
        erased = await Eraser(js, subject(gone, None, None), Stores(partitions=3), wait=60.0).erase(
            verify=True
        )
        assert erased.proof is not None and erased.proof.holds
        assert erased.counts[RESPONSES] == erased.counts[OUTCOMES] == 1
        assert await send(client, gone) == "erased"
        assert {await send(client, name) for name in names[20:]} == {"recorded"}
        await until(lambda: all_judged(system, 29))
        ledger = await audit(js, partitions=3, settle=60.0)
        assert (ledger.responses, ledger.scored, ledger.erased, ledger.balanced) == (29, 29, 1, True)
        proof = await prove(js, partitions=3, settle=60.0)
        assert proof.ledger.balanced and not proof.differences
        assert proof.proven + proof.removed >= 3
        run = await begin(system.bus, system.settings, Spec(run="again", stage="scoring"))
        await work(system.bus, system.settings, run)
        of_run = await audit(js, "again", partitions=3)
        assert (of_run.recorded, of_run.scored, of_run.balanced) == (29, 29, True)
