"""A stream that does not store: told in readiness with what to do, and mended where we can."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.runtime.conftest import eventually

from groundwatch.errors import NotStored, TransientError
from groundwatch.events import ResponseRecorded
from groundwatch.gateway.budgets import Budgets
from groundwatch.gateway.intake.intake import Intake
from groundwatch.gateway.intake.known_ids import KnownIds
from groundwatch.gateway.intake.submissions import Submission
from groundwatch.gateway.refusals import Refused
from groundwatch.runtime.delivery import publisher
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Stored
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.publisher import StorageHealth
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import NatsSettings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.stores.tombstones import Erased
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system import up as system
from groundwatch.topology import RESPONSES

SUBJECT = "gw.recorded.live.a"


def test_what_is_told_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    found = StorageHealth()
    found.refused(SUBJECT, "wrong last sequence: 3")
    assert found.problems() == [] and not found.needs_restart
    found.refused(SUBJECT, "maximum bytes exceeded")
    assert "'recorded' events is at its limit" in found.problems()[0]
    assert not found.needs_restart and not found.pausing(SUBJECT)
    found.unacknowledged(SUBJECT)
    found.refused("gw.outcome.live.x.b", "insufficient storage resources available")
    assert len(found.problems()) == 2 and found.needs_restart
    assert "free space, then restart" in found.pausing(SUBJECT)
    found.stored(SUBJECT)
    assert len(found.problems()) == 1 and not found.pausing(SUBJECT)
    monkeypatch.setattr(publisher, "REMEMBER_SECONDS", 0.0)
    assert found.problems() == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that can be made small."""
    place = tmp_path / "disk"
    place.mkdir()
    mounting = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "size=8g", "tmpfs", str(place)), capture_output=True
    )
    if mounting.returncode:
        pytest.skip(f"needs the right to mount: {mounting.stderr.decode().strip()}")
    yield place
    subprocess.run(("umount", "--lazy", str(place)), check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(("mount", "-o", f"remount,size={size}", str(disk)), check=True)


@pytest.fixture
async def server(disk: Path) -> AsyncIterator[NatsServer]:
    server = NatsServer(disk / "nats")
    await server.start()
    yield server
    await server.stop()


@pytest.mark.slow
async def test_a_full_disk_is_told_and_mended_when_there_is_room(
    disk: Path, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "ROOM_PAUSE", 0.2)
    bus = Bus(NatsSettings(url=server.url, publish_timeout=1.0), name="gateway")
    await bus.connect()
    await provision(bus.js)
    resize(disk, "1m")
    taken = 0
    with pytest.raises(TransientError):
        for taken in range(50):
            await bus.create(Outgoing(subject=f"gw.recorded.live.{taken}", payload=b"x" * 100_000))
    await eventually(lambda: any("restart that server" in why for why in bus.problems()))
    guard = asyncio.create_task(system._keep_alive(server))
    mending = asyncio.create_task(system.restart_when_there_is_room(server, bus))
    before = server.pid
    await asyncio.sleep(1.0)
    assert server.pid == before, "there is no room yet"
    resize(disk, "8g")
    await eventually(lambda: server.pid not in (None, before) and bus.connected)
    await eventually(lambda: not bus.problems())
    async with asyncio.timeout(20):
        while True:
            try:
                assert await bus.create(Outgoing(subject=SUBJECT, payload=b"x")) is Stored.NEW
                break
            except TransientError:
                await asyncio.sleep(0.1)
    assert (await bus.js.stream_info(RESPONSES)).state.messages == taken + 1, "and nothing is lost"
    for task in (mending, guard):
        task.cancel()
    await bus.close()


async def test_a_stream_at_its_limit_refuses_at_once(own_server: NatsServer) -> None:
    bus = Bus(NatsSettings(url=own_server.url), name="gateway")
    await bus.connect()
    await provision(bus.js)
    config = (await bus.js.stream_info(RESPONSES)).config
    config.max_bytes = 1
    await bus.js.update_stream(config)
    with pytest.raises(NotStored, match="maximum bytes exceeded"):
        await bus.create(Outgoing(subject=SUBJECT, payload=b"x"))
    assert any("is at its limit (maximum bytes exceeded)" in why for why in bus.problems())
    erased, metrics = Erased(bus.js), Metrics()
    known = KnownIds(bus, metrics)
    await erased.start()
    await known.start()
    intake = Intake(GatewaySettings(), bus, metrics, ImageStore(bus.js), Budgets(bus, metrics), erased, known)
    began = time.monotonic()
    response = ResponseRecorded(id="a", tenant="t", model="m", answer="A cat.")
    with pytest.raises(Refused, match="maximum bytes exceeded") as refused:
        await intake.record(Submission(response=response), timeout=30.0)
    assert refused.value.passing
    assert time.monotonic() - began < 15, "it is not tried again for all of its patience"
    config.max_bytes = -1
    await bus.js.update_stream(config)
    assert await bus.create(Outgoing(subject=SUBJECT, payload=b"x")) is Stored.NEW
    assert bus.problems() == []
    await erased.stop()
    await known.stop()
    await bus.close()
