"""A NATS server that comes back with an older state, and gives sequences a second time to other messages."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.archive.conftest import outcome
from tests.runtime.conftest import eventually
from tests.support.cooling import write

from groundwatch.archive.cold import cold_events
from groundwatch.archive.cooling import Cooling
from groundwatch.archive.events import Events
from groundwatch.archive.service import ArchiveService
from groundwatch.archive.writer import Continuity
from groundwatch.errors import TransientError
from groundwatch.gateway.intake.known_ids import KnownIds
from groundwatch.keys import response_key
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import LABEL, label, own_metadata, position_of, read_stream
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings, RetrySettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import COPIED, OUTCOMES, RESPONSES

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


async def archived_before(bus: Bus, url: str, created: int, last: int, *, moved: float = 0.0) -> None:
    """Write the first outcomes of the stream as those of one that was created then, so much later."""
    reads = [read async for read in read_stream(bus.js, OUTCOMES, last_sequence=last)]
    write(url, OUTCOMES, created, [msgspec.structs.replace(read, time=read.time + moved) for read in reads])


@pytest.fixture
async def unlabelled(bus: Bus, clean_streams: None) -> None:
    """Streams as new, which nothing says of when they were created."""
    for stream in COPIED:
        config = (await bus.js.stream_info(stream)).config
        metadata = {name: text for name, text in own_metadata(config).items() if name != LABEL}
        await bus.js.update_stream(config.evolve(metadata=metadata))


def continuity(bus: Bus, url: str) -> Continuity:
    return Continuity(bus, lambda: Events(url))


@pytest.mark.usefixtures("unlabelled")
@pytest.mark.parametrize("left", [0, 5, 10])
async def test_a_restored_stream_is_known_again_by_its_messages(bus: Bus, tmp_path: Path, left: int) -> None:
    url = str(tmp_path / "archive")
    await put(bus, 1, 12)
    await archived_before(bus, url, 1_000_000, 10)
    await archived_before(bus, url, 2_000_000, 9, moved=-60.0)
    await bus.js.purge_stream(OUTCOMES, seq=left + 1)
    made = (await position_of(bus.js, OUTCOMES)).made
    at = await continuity(bus, url).check(OUTCOMES)
    assert (at.created, at.made, at.labelled) == (1_000_000, made, True)
    # Everybody knows now, and provisioning leaves it so.
    await provision(bus.js, archived=True)
    assert await position_of(bus.js, OUTCOMES) == at


@pytest.mark.usefixtures("unlabelled")
@pytest.mark.parametrize("archived", [True, False])
async def test_a_stream_that_was_made_anew_is_a_new_one(bus: Bus, tmp_path: Path, archived: bool) -> None:
    url = str(tmp_path / "archive")
    await put(bus, 1, 12)
    if archived:
        await archived_before(bus, url, 1_000_000, 10, moved=-60.0)
    at = await continuity(bus, url).check(OUTCOMES)
    assert at.created == at.made and at.labelled


@pytest.mark.usefixtures("unlabelled")
async def test_where_nothing_tells_which_stream_it_is_nothing_goes_and_everything_says_so(
    bus: Bus, tmp_path: Path
) -> None:
    url = str(tmp_path / "archive")
    for stream, subject in ((OUTCOMES, "outcome.live.p"), (RESPONSES, "recorded.live")):
        for number in range(20):
            await bus.js.publish(f"gw.{subject}.{response_key('default', str(number))}", b"{}")
        reads = [read async for read in read_stream(bus.js, stream, last_sequence=5)]
        write(url, stream, 1_000_000, reads)
        await bus.js.purge_stream(stream, seq=11)

    bus.cold = cold_events(settings_of(url).archive)
    service = ArchiveService(settings_of(url), bus, Metrics())
    gateway = KnownIds(bus, Metrics())
    await service.start()
    await gateway.start()
    try:
        await eventually(
            lambda: any("nothing of GW_RESPONSES tells" in one for one in service.problems()),
            within=PATIENCE,
        )
        with pytest.raises(TransientError, match="nothing of GW_RESPONSES tells whether it is the stream"):
            await Cooling(settings_of(url), bus, Metrics(), service._archived).cool()
        assert "nothing says that it is the present one" in gateway.problem
        with pytest.raises(TransientError, match="nothing says that it is the present one"):
            await audit(bus.js, cold=cold_events(settings_of(url).archive))
        assert (await position_of(bus.js, RESPONSES)).first == 11
        assert Events(url).creations(RESPONSES) == {1_000_000}

        # What the line says to do.
        told = next(one for one in service.problems() if "nothing of GW_RESPONSES tells" in one)
        assert f" {LABEL}:1000000 if it was restored" in told
        for stream in (RESPONSES, OUTCOMES):
            await label(bus.js, stream, 1_000_000)
        await eventually(lambda: not service.problems() and not gateway.problem, within=PATIENCE)
        assert gateway.is_same(RESPONSES, response_key("default", "0"), "") is True
    finally:
        bus.cold = None
        await gateway.stop()
        await service.drain(30)
