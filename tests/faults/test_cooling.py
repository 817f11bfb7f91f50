"""The archive killed −9 around purging, and on a full disk: what left a stream is in the archive."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest
from tests.faults.test_archive import PATIENCE, Writer, fill
from tests.runtime.conftest import eventually

from groundwatch.archive.events import Events
from groundwatch.archive.service import ArchiveService
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import position_of, read_stream
from groundwatch.runtime.settings import ArchiveSettings, RetrySettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import EXTRACTED, OUTCOMES, subject_of

COOLED = (EXTRACTED, OUTCOMES)


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
    """Every message is in the archive or its stream; in the archive once."""
    for stream in COOLED:
        held = [read.sequence async for read in read_stream(bus.js, stream)]
        archived = sequences(url, stream)
        assert len(archived) == len(set(archived))
        assert sorted({*archived, *held}) == list(range(1, number + 1))


async def until_left(bus: Bus, stream: str, sequence: int) -> None:
    """Wait until the stream has let go of everything up to there."""

    async def left() -> bool:
        return (await position_of(bus.js, stream)).first > sequence

    await eventually(left, within=PATIENCE)


@pytest.mark.slow
@pytest.mark.usefixtures("clean_streams")
async def test_killed_around_purging_nothing_is_lost(nats_server, bus, tmp_path):
    url = str(tmp_path / "archive")
    chance = random.Random(7)
    writer = Writer(nats_server.url, tmp_path, hot_days="1e-9")
    count = 0
    try:
        for _ in range(3):
            before = len(sequences(url, OUTCOMES))
            await put(bus, count, count + 600)
            count += 600
            await eventually(lambda before=before: len(sequences(url, OUTCOMES)) > before, within=PATIENCE)
            writer.end(signal.SIGKILL)
            await check_nothing_is_lost(bus, url, count)
            first = (await position_of(bus.js, OUTCOMES)).first
            # It cools at once when it starts, and a minute later.
            writer.start()
            await until_left(bus, OUTCOMES, first)
            await asyncio.sleep(chance.random() * 0.05)
            writer.end(signal.SIGKILL)
            await check_nothing_is_lost(bus, url, count)
            writer.start()
    finally:
        writer.end(signal.SIGKILL)
    await check_nothing_is_lost(bus, url, count)


@pytest.mark.usefixtures("clean_streams")
async def test_a_full_disk_lets_nothing_go(bus, small_disk, monkeypatch):
    monkeypatch.setattr("groundwatch.archive.cooling.COOL_SECONDS", 0.05)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 4_150_000)
    url, metrics = str(small_disk / "archive"), Metrics()
    settings = Settings(
        archive=ArchiveSettings(url=url, flush_rows=1_000, flush_seconds=0.2, hot_days=1e-9),
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
        ballast.unlink()
        for stream in COOLED:
            await until_left(bus, stream, 2_000)
        await check_nothing_is_lost(bus, url, 2_000)
    finally:
        await service.drain(10)
