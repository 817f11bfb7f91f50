"""Backups and restores of a whole system: what was recorded stays recorded, each once."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import nats
import nats.errors
import pytest
from tests.faults.servers import servers
from tests.partitions.conftest import numbers, send, settings, until
from tests.support.backup import back_up, restore

from groundwatch.archive import cooling, service
from groundwatch.erasure.erasing import Eraser
from groundwatch.erasure.finding import Stores, subject
from groundwatch.gateway.core import look_up
from groundwatch.gateway.intake import known_ids
from groundwatch.ledger.ledger import audit
from groundwatch.ledger.proof import prove
from groundwatch.runtime.delivery.streams import LABEL
from groundwatch.runtime.local.servers import NatsServer, free_port
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores import repeats
from groundwatch.system.connecting import with_nats
from groundwatch.system.up import System, whole_system
from groundwatch.topology import ARCHIVED

pytestmark = pytest.mark.slow

COLD = [f"cold{number}" for number in range(12)]
HOT = [f"hot{number}" for number in range(4)]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, seconds in (
        (cooling, "COOL_SECONDS", 0.2),
        (service, "COOL_SECONDS", 0.2),
        (known_ids, "LOOK_SECONDS", 0.1),
        (repeats, "HOLD_SECONDS", 2.0),
        (repeats, "CURRENT_SECONDS", 1.5),
    ):
        monkeypatch.setattr(module, name, seconds)


@asynccontextmanager
async def running(
    url: str, folder: Path, *, hot_days: float, replicas: int = 1
) -> AsyncIterator[tuple[System, httpx.AsyncClient]]:
    archive = ArchiveSettings(url=str(folder / "archive"), hot_days=hot_days, flush_seconds=0.1)
    given = with_nats(settings(1, archive=archive), url)
    given = given.model_copy(update={"nats": given.nats.model_copy(update={"replicas": replicas})})
    async with (
        whole_system(given, folder / "work") as system,
        httpx.AsyncClient(base_url=system.gateway_url, timeout=60) as client,
    ):
        yield system, client


async def recorded_and_cooled(server: NatsServer, folder: Path) -> None:
    """Responses of which some have left the streams, and some have not."""
    async with running(server.url, folder, hot_days=1e-9) as (system, client):
        assert {await send(client, name) for name in COLD} == {"recorded"}

        async def cold() -> bool:
            return not any([sum(await numbers(system, kind)) for kind in ARCHIVED])

        await until(cold)
    async with running(server.url, folder, hot_days=1.0) as (system, client):
        assert {await send(client, name) for name in ("gone", *HOT)} == {"recorded"}
        ledger = await audit(system.bus.js, cold=system.bus.cold, settle=60.0)
        assert (ledger.responses, ledger.balanced) == (17, True)
        stores = Stores.of(system.settings.archive)
        await Eraser(system.bus.js, subject("gone", None, None), stores, wait=60.0).erase()
        ledger = await audit(system.bus.js, cold=system.bus.cold, settle=60.0)
        assert (ledger.responses, ledger.erased, ledger.balanced) == (16, 1, True)


async def check_nothing_is_forgotten(url: str, folder: Path, *, replicas: int = 1) -> None:
    async with running(url, folder, hot_days=1.0, replicas=replicas) as (system, client):
        names = [*COLD, *HOT]
        assert [await send(client, name) for name in names] == ["duplicate"] * len(names)
        assert {await send(client, name, "Another.") for name in names} == {"conflict"}
        for name in names:
            found = await look_up(system.bus, "default", name)
            assert found is not None and found["outcomes"] and not found["waiting"]
        assert await send(client, "new") == "recorded"
        ledger = await audit(system.bus.js, cold=system.bus.cold, settle=60.0)
        assert (ledger.responses, ledger.scored, ledger.erased, ledger.balanced) == (17, 17, 1, True)
        proof = await prove(system.bus.js, cold=system.bus.cold, settle=60.0)
        assert (proof.differences, proof.unproven) == ((), ())


@pytest.mark.parametrize("way", ["files", "snapshots", "snapshots without consumers", "snapshots of before"])
async def test_a_restored_system_knows_all_that_was_recorded(
    own_server: NatsServer, tmp_path: Path, way: str
) -> None:
    await recorded_and_cooled(own_server, tmp_path)
    other = NatsServer(tmp_path / "other")
    if way == "files":
        await own_server.stop()
        shutil.copytree(own_server.data_dir / "jetstream", other.data_dir / "jetstream")
        await other.start()
    else:
        backup = tmp_path / "backup"
        await back_up(own_server.url, backup, consumers=way != "snapshots without consumers")
        await own_server.stop()
        await other.start()
        await restore(other.url, backup, without=(LABEL,) if way == "snapshots of before" else ())
    try:
        await check_nothing_is_forgotten(other.url, tmp_path)
    finally:
        await other.stop()


async def test_one_server_becomes_three(own_server: NatsServer, tmp_path: Path) -> None:
    await recorded_and_cooled(own_server, tmp_path)
    await back_up(own_server.url, tmp_path / "backup")
    await own_server.stop()
    ports = [free_port() for _ in range(3)]
    children = servers(tmp_path, tmp_path / "stores", ports)
    urls = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
    try:
        for child in children:
            child.start()
        await until(partial(has_leader, ports[0]))
        await restore(f"nats://127.0.0.1:{ports[0]}", tmp_path / "backup")
        await check_nothing_is_forgotten(urls, tmp_path, replicas=3)
        client = await nats.connect(urls.split(","))
        js = client.jetstream()
        for info in await js.streams_info():
            assert info.config.num_replicas == 3 and len(info.cluster.replicas) == 2, info.config.name
            for consumer in await js.consumers_info(info.config.name):
                # Those that are not durable go with who reads.
                assert not consumer.config.durable_name or consumer.config.num_replicas == 3
        await client.close()
    finally:
        for child in children:
            child.end(patience=20)


async def has_leader(port: int) -> bool:
    """Whether the cluster of this server has come together."""
    with contextlib.suppress(OSError, nats.errors.Error):
        client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
        try:
            await client.jetstream().account_info()
        finally:
            await client.close()
        return True
    return False
