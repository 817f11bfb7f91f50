"""The archive writer killed −9 while it writes, and a disk that is full: the archive equals the stream."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.archive.conftest import DAY, outcome

from groundwatch.archive.outcomes import Archive, row_of
from groundwatch.archive.query import Session
from groundwatch.archive.service import ArchiveService
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing
from groundwatch.runtime.delivery.streams import position_of, read_stream
from groundwatch.runtime.settings import ArchiveSettings, RetrySettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTCOMES

PATIENCE = 180.0


async def fill(bus: Bus, first: int, end: int) -> None:
    """Put outcomes into the stream as scoring would."""
    receipts = []
    for number in range(first, end):
        receipts.append(await bus.start_create(outgoing(outcome(number, recorded_at=DAY + number))))
        if len(receipts) == 500:
            for receipt in receipts:
                await receipt
            receipts = []
    for receipt in receipts:
        await receipt


async def beyond(archive: Archive, number: int) -> None:
    """Wait until the archive has a later state than this one."""
    while True:
        if archive.snapshot().version > number:
            return
        await asyncio.sleep(0.02)


async def settled(bus: Bus, archive: Archive) -> None:
    """Wait until the archive has come to the end of the stream."""
    deadline = time.monotonic() + PATIENCE
    while True:
        at = await position_of(bus.js, OUTCOMES)
        if archive.snapshot().position(at.created) >= at.last:
            return
        assert time.monotonic() < deadline, f"{archive.snapshot().position(at.created)} of {at.last}"
        await asyncio.sleep(0.1)


async def archived_as_streamed(bus: Bus, archive: Archive) -> int:
    """Every outcome of the stream is in the archive once, with all of its claims. How many there are."""
    at = await position_of(bus.js, OUTCOMES)
    wanted, claims = [], []
    async for read in read_stream(bus.js, OUTCOMES):
        row = row_of(read, at.created)
        wanted.append([row.sequence, row.event.id, row.event.outcome.value, row.event.score])
        claims += [
            [row.sequence, number, claim.text, claim.decision.value, claim.probability]
            for number, claim in enumerate(row.event.claims)
        ]
    with Session(archive.snapshot()) as session:
        assert session.ask(
            "SELECT sequence, response_id, outcome, score FROM outcomes ORDER BY ALL"
        ).rows == (sorted(wanted, key=lambda one: one[0]))
        found = session.ask("SELECT sequence, claim, text, verdict, probability FROM claims ORDER BY ALL")
        assert found.rows == claims
    return len(wanted)


class Writer:
    """`groundwatch serve archive` in a process of its own, in which `before` is run first."""

    def __init__(self, url: str, folder: Path, *, before: str = "", **archive: str) -> None:
        self._code = f"{before}\nfrom groundwatch.cli import main; main()"
        self._log = (folder / "archive.log").open("a")
        self._environment = os.environ | {
            "GROUNDWATCH_NATS__URL": url,
            "GROUNDWATCH_ARCHIVE__URL": str(folder / "archive"),
            "GROUNDWATCH_ARCHIVE__FLUSH_ROWS": "50",
            "GROUNDWATCH_ARCHIVE__FLUSH_SECONDS": "0.2",
            "GROUNDWATCH_ARCHIVE__MERGE_FILES": "3",
            **{f"GROUNDWATCH_ARCHIVE__{name.upper()}": value for name, value in archive.items()},
        }
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self._code, "serve", "archive"],
            env=self._environment,
            stdout=self._log,
            stderr=self._log,
        )

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.mark.usefixtures("clean_streams")
@pytest.mark.parametrize(("count", "kills"), [(1_000, 1), pytest.param(4_000, 3, marks=pytest.mark.slow)])
async def test_a_killed_writer_writes_everything_once(nats_server, bus, tmp_path, count, kills):
    archive = Archive(str(tmp_path / "archive"))
    await fill(bus, 0, count)
    writer = Writer(nats_server.url, tmp_path)
    chance = random.Random(3)
    try:
        for _ in range(kills):
            before = archive.snapshot().version
            async with asyncio.timeout(PATIENCE):
                await beyond(archive, before)
            # In the middle of one of the next additions, most likely.
            await asyncio.sleep(chance.random() * 0.3)
            writer.end(signal.SIGKILL)
            writer.start()
        await settled(bus, archive)
        await fill(bus, count, count + 20)
        await settled(bus, archive)
        assert writer.end(signal.SIGTERM) == 0
    finally:
        if writer.process.poll() is None:
            writer.end(signal.SIGKILL)
    assert await archived_as_streamed(bus, archive) == count + 20


@pytest.mark.usefixtures("clean_streams")
async def test_on_a_full_disk_the_stream_keeps_what_waits(bus, small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 4_150_000)
    metrics = Metrics()
    service = ArchiveService(
        Settings(
            archive=ArchiveSettings(url=str(small_disk / "archive"), flush_rows=1_000, flush_seconds=0.2),
            retry=RetrySettings(first_delay=0.1, max_delay=0.2),
        ),
        bus,
        metrics,
    )
    archive = Archive(str(small_disk / "archive"))
    await fill(bus, 0, 3_000)
    await service.start()
    try:
        deadline = time.monotonic() + PATIENCE
        full = metrics.archive_failures.labels("disk_full")
        while full._value.get() < 3:
            assert time.monotonic() < deadline, service.problems()
            await asyncio.sleep(0.05)
        assert "No space left on device" in " ".join(service.problems())
        at = await position_of(bus.js, OUTCOMES)
        assert archive.snapshot().position(at.created) < at.last
        ballast.unlink()
        await settled(bus, archive)
        assert await archived_as_streamed(bus, archive) == 3_000
        # The attempts have left nothing behind.
        named = {file.path for file in archive.snapshot().files()}
        assert {name for name in archive.store.names() if name.startswith("day=")} == named
        while service.problems():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    finally:
        await service.drain(10)
