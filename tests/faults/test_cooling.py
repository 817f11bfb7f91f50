"""Archive and NATS killed −9 in the middle of purging, and a full disk: what left a stream is archived."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest
from tests.faults.test_archive import PATIENCE, Writer, fill
from tests.runtime.conftest import eventually

from groundwatch.archive.cold import cold_events
from groundwatch.archive.events import Events
from groundwatch.archive.service import ArchiveService
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import position_of, read_stream
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings, RetrySettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import EXTRACTED, OUTCOMES, subject_of

COOLED = (EXTRACTED, OUTCOMES)

LITTLE_BY_LITTLE = "from groundwatch.archive import cooling; cooling.COOL_SECONDS = 0.02"
"""So that a kill comes in the middle."""


async def put(bus: Bus, first: int, end: int) -> None:
    """Claims of a run that no stage works at, and outcomes."""
    for number in range(first, end):
        await bus.js.publish(subject_of("extracted", "again", "verification", "pope", f"k{number}"), b"{}")
    await fill(bus, first, end)


def sequences(url: str, stream: str) -> list[int]:
    """Of what the archive has, in order."""
    data = Events(url).snapshot().dataset()
    rows = data.to_table(columns=["stream", "sequence"]).to_pylist() if data is not None else []
    return sorted(row["sequence"] for row in rows if row["stream"] == stream)


async def check_nothing_is_lost(bus: Bus, url: str, number: int) -> None:
    """Every message is in the archive or its stream, in the archive once; who reads both gets each once."""
    past = History(bus.js, cold_events(ArchiveSettings(url=url)))
    for stream in COOLED:
        held = [read.sequence async for read in read_stream(bus.js, stream)]
        archived = sequences(url, stream)
        assert len(archived) == len(set(archived))
        assert sorted({*archived, *held}) == list(range(1, number + 1))
        assert [read.sequence async for read in past.read(stream)] == list(range(1, number + 1))


async def until_left(bus: Bus, stream: str, sequence: int) -> None:
    """Wait until the stream has let go of everything up to there."""

    async def left() -> bool:
        return (await position_of(bus.js, stream)).first > sequence

    await eventually(left, within=PATIENCE)


@pytest.mark.slow
@pytest.mark.usefixtures("clean_streams")
async def test_an_archive_that_is_killed_while_it_cools_loses_nothing(nats_server, bus, tmp_path):
    url = str(tmp_path / "archive")
    chance = random.Random(7)
    writer = Writer(nats_server.url, tmp_path, before=LITTLE_BY_LITTLE, hot_days="1e-9")
    count = 0
    try:
        for _ in range(3):
            before = len(sequences(url, OUTCOMES))
            await put(bus, count, count + 600)
            count += 600
            await eventually(lambda before=before: len(sequences(url, OUTCOMES)) > before, within=PATIENCE)
            writer.end(signal.SIGKILL)
            await check_nothing_is_lost(bus, url, count)
            await put(bus, count, count + 200)
            count += 200
            first = (await position_of(bus.js, OUTCOMES)).first
            writer.start()
            await until_left(bus, OUTCOMES, first)
            await asyncio.sleep(chance.random() * 0.2)
            writer.end(signal.SIGKILL)
            await check_nothing_is_lost(bus, url, count)
            writer.start()
    finally:
        writer.end(signal.SIGKILL)
    await check_nothing_is_lost(bus, url, count)


@pytest.fixture
async def own_bus(own_server: NatsServer):
    """Streams of a server of the test's own: one that makes streams anew may lose a message of theirs."""
    bus = Bus(NatsSettings(url=own_server.url), name="test")
    await bus.connect()
    await provision(bus.js, archived=True)
    yield bus
    await bus.close()


@pytest.mark.slow
async def test_a_server_that_is_killed_while_it_is_cooled_loses_nothing(
    own_server: NatsServer, own_bus, tmp_path, monkeypatch
):
    monkeypatch.setattr("groundwatch.archive.cooling.COOL_SECONDS", 0.02)
    url, bus = str(tmp_path / "archive"), own_bus
    settings = Settings(
        archive=ArchiveSettings(url=url, flush_rows=50, flush_seconds=0.2, merge_files=3, hot_days=1e-9),
        retry=RetrySettings(first_delay=0.1, max_delay=0.2),
    )
    service, chance = ArchiveService(settings, bus, Metrics()), random.Random(11)
    await service.start()
    try:
        for number in (600, 1_200, 1_800):
            await put(bus, number - 600, number)
            await until_left(bus, OUTCOMES, number - 600)
            await asyncio.sleep(chance.random() * 0.2)
            own_server.kill()
            await own_server.wait()
            await own_server.restart()
            await bus.until_connected(PATIENCE)
            await check_nothing_is_lost(bus, url, number)
        for stream in COOLED:
            await until_left(bus, stream, 1_800)
        await check_nothing_is_lost(bus, url, 1_800)
    finally:
        await service.drain(10)


async def test_a_full_disk_lets_nothing_go(own_bus, small_disk, monkeypatch):
    bus = own_bus
    monkeypatch.setattr("groundwatch.archive.cooling.COOL_SECONDS", 0.05)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 4_150_000)
    url, metrics = str(small_disk / "archive"), Metrics()
    # By rows, never by time: a few rows would still find room.
    settings = Settings(
        archive=ArchiveSettings(url=url, flush_rows=1_000, flush_seconds=PATIENCE, hot_days=1e-9),
        retry=RetrySettings(first_delay=0.1, max_delay=0.2),
    )
    service = ArchiveService(settings, bus, metrics)
    await put(bus, 0, 2_000)
    await service.start()
    try:
        full = metrics.archive_failures.labels("disk_full")
        await eventually(lambda: full._value.get() >= 5, within=PATIENCE)
        await check_nothing_is_lost(bus, url, 2_000)
        assert sequences(url, OUTCOMES) == []
        assert any(f"cannot write to {url}: " in one and "No space left" in one for one in service.problems())
        assert metrics.archive_hot_sequence.labels(OUTCOMES)._value.get() == 1
        ballast.unlink()
        for stream in COOLED:
            await until_left(bus, stream, 2_000)
        await check_nothing_is_lost(bus, url, 2_000)
    finally:
        await service.drain(10)
