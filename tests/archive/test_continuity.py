"""A NATS server that comes back with an older state, and gives sequences a second time to other messages."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.archive.conftest import outcome
from tests.runtime.conftest import eventually

from groundwatch.archive.cooling import Cooling
from groundwatch.archive.events import Events
from groundwatch.archive.service import ArchiveService
from groundwatch.errors import TransientError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings, RetrySettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTCOMES

PATIENCE = 120.0


def settings_of(url: str) -> Settings:
    archive = ArchiveSettings(url=url, flush_seconds=0.1, hot_days=1e-9)
    return Settings(archive=archive, retry=RetrySettings(first_delay=0.1, max_delay=0.2))


async def put(bus: Bus, first: int, last: int) -> None:
    for number in range(first, last + 1):
        await bus.create(outgoing(outcome(number)))


async def archived(bus: Bus, url: str, last: int) -> None:
    """Wait until the archive has the stream up to there."""
    created = (await position_of(bus.js, OUTCOMES)).created

    def there() -> bool:
        return Events(url).snapshot().position(created, OUTCOMES) >= last

    await eventually(lambda: asyncio.to_thread(there), within=PATIENCE)


@pytest.mark.parametrize("restarted", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_what_an_older_server_records_anew_stays_until_it_is_archived(
    own_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    # It looks once at its start, and then when the test does.
    monkeypatch.setattr("groundwatch.archive.cooling.COOL_SECONDS", 3_600.0)
    url, backup = str(tmp_path / "archive"), tmp_path / "backup"
    bus = Bus(NatsSettings(url=own_server.url), name="test")
    await bus.connect()
    await provision(bus.js, archived=True)
    await put(bus, 1, 10)
    await own_server.stop()
    shutil.copytree(own_server.data_dir, backup)
    await own_server.start()
    await bus.until_connected(PATIENCE)
    service = ArchiveService(settings_of(url), bus, Metrics())
    await service.start()
    try:
        await put(bus, 11, 20)
        await archived(bus, url, 20)

        await own_server.stop()
        shutil.rmtree(own_server.data_dir)
        shutil.copytree(backup, own_server.data_dir)
        await own_server.start()
        await bus.until_connected(PATIENCE)
        if restarted:
            await service.drain(30)
            service = ArchiveService(settings_of(url), bus, Metrics())
            await service.start()
        await put(bus, 101, 130)
        await eventually(
            lambda: any("NATS came back with an older state" in one for one in service.problems()),
            within=PATIENCE,
        )
        with pytest.raises(TransientError, match="GW_OUTCOMES is not what was archived, from 20 on"):
            await Cooling(settings_of(url), bus, Metrics(), service._archived).cool()
        assert (await position_of(bus.js, OUTCOMES)).first == 1

        # What the line says to do: an empty place.
        await service.drain(30)
        url = str(tmp_path / "another")
        service = ArchiveService(settings_of(url), bus, Metrics())
        await service.start()
        await archived(bus, url, 40)

        async def gone() -> bool:
            await Cooling(settings_of(url), bus, Metrics(), service._archived).cool()
            return (await position_of(bus.js, OUTCOMES)).first == 41

        await eventually(gone, within=PATIENCE)
        data = Events(url).snapshot().dataset()
        assert data is not None
        rows = data.to_table(columns=["sequence"]).to_pylist()
        assert sorted(row["sequence"] for row in rows) == list(range(1, 41))
    finally:
        await service.drain(30)
        await bus.close()
