"""The archive's service against a real NATS server."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from tests.archive.conftest import outcome

from groundwatch.archive.outcomes import Archive, rows_after
from groundwatch.archive.place import placed
from groundwatch.archive.query import Session
from groundwatch.archive.service import ArchiveService
from groundwatch.errors import SettingsError
from groundwatch.events import OutcomeKind
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import outgoing, replace_dead
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.runtime.settings import ArchiveSettings, NatsSettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import HEADER_SUPERSEDES, OUTCOMES, subject_of

pytestmark = pytest.mark.usefixtures("clean_streams")


def settings(tmp_path, **changes) -> Settings:
    return Settings(
        archive=ArchiveSettings(**({"url": str(tmp_path / "archive"), "flush_seconds": 0.1} | changes))
    )


async def until(archive: Archive, bus) -> None:
    async with asyncio.timeout(60):
        while True:
            at = await position_of(bus.js, OUTCOMES)
            if at.last and archive.snapshot().position(at.created) >= at.last:
                return
            await asyncio.sleep(0.05)


def asked(archive: Archive, sql: str) -> list[list[object]]:
    with Session(archive.snapshot()) as session:
        return session.ask(sql).rows


async def test_outcomes_are_archived_and_counted(bus, tmp_path):
    metrics = Metrics()
    service = ArchiveService(settings(tmp_path), bus, metrics)
    archive = Archive(str(tmp_path / "archive"))
    await service.start()
    assert service.problems() == []
    for number in range(20):
        await bus.create(outgoing(outcome(number)))
    # Something else writes into our subjects.
    await bus.js.publish(subject_of("outcome", "live", "faithscore", "0" * 32), b"none of ours")
    await until(archive, bus)
    # The table is there a moment before it is counted.
    await service.drain(30)
    assert asked(archive, "SELECT count(DISTINCT response_id), count(*) FROM outcomes") == [[20, 20]]
    assert metrics.archive_rows.labels("outcomes")._value.get() == 20
    assert metrics.archive_unreadable.labels("undecodable")._value.get() == 1


async def test_headers_that_are_none_of_ours_hold_up_no_archive(bus, tmp_path):
    service = ArchiveService(settings(tmp_path), bus, Metrics())
    archive = Archive(str(tmp_path / "archive"))
    for number, sequence in enumerate(("²", "9" * 30, "9" * 5_000)):
        named = {HEADER_SUPERSEDES: f"faithscore:{sequence}:dead_letter"}
        await bus.create(outgoing(outcome(number)).carrying(named))
    await service.start()
    await until(archive, bus)
    await service.drain(30)
    assert asked(archive, "SELECT count(*) FROM outcomes") == [[3]]


async def test_a_retried_dead_letter_replaces_its_outcome(bus, tmp_path):
    service = ArchiveService(settings(tmp_path), bus, Metrics())
    archive = Archive(str(tmp_path / "archive"))
    dead = outcome(
        3, outcome=OutcomeKind.UNSCORED, reason="dead_letter", score=None, claims=(), recorded_at=0.0
    )
    await bus.create(outgoing(dead))
    await bus.create(outgoing(outcome(4)))
    await service.start()
    await until(archive, bus)
    await service.drain(5)
    assert asked(archive, "SELECT outcome FROM outcomes WHERE response_id = 'response-3'") == [["unscored"]]
    await replace_dead(bus, outgoing(outcome(3)))
    # A query sees it before the archive has it.
    from groundwatch.archive.query import Tail

    at = await position_of(bus.js, OUTCOMES)
    tail = Tail(tmp_path, ("version",))
    await tail.read(rows_after(bus, at, archive.snapshot().position(at.created)))
    with Session(archive.snapshot(), tail) as session:
        assert session.ask("SELECT response_id, outcome FROM outcomes ORDER BY ALL").rows == [
            ["response-3", "scored"],
            ["response-4", "scored"],
        ]
    again = ArchiveService(settings(tmp_path), bus, Metrics())
    await again.start()
    await until(archive, bus)
    await again.drain(5)
    assert asked(archive, "SELECT outcome FROM outcomes WHERE response_id = 'response-3'") == [["scored"]]


async def test_a_stream_made_anew_is_another_one(bus, tmp_path, monkeypatch):
    monkeypatch.setattr("groundwatch.archive.service.MONITOR_SECONDS", 0.2)
    service = ArchiveService(settings(tmp_path), bus, Metrics())
    archive = Archive(str(tmp_path / "archive"))
    await bus.create(outgoing(outcome(1)))
    await service.start()
    await until(archive, bus)
    await bus.js.delete_stream(OUTCOMES)
    await provision(bus.js)
    await bus.create(outgoing(outcome(2)))
    await until(archive, bus)
    await service.drain(5)
    assert asked(archive, "SELECT response_id, sequence FROM outcomes ORDER BY ALL") == [
        ["response-1", 1],
        ["response-2", 1],
    ]


async def test_streams_without_an_event_are_no_problem_once_nats_is_back(own_server, tmp_path):
    bus = Bus(NatsSettings(url=own_server.url, publish_timeout=0.5), name="archive")
    await bus.connect()
    await provision(bus.js)
    service = ArchiveService(settings(tmp_path), bus, Metrics())
    await service.start()
    own_server.kill()
    await own_server.wait()
    async with asyncio.timeout(60):
        while not any("cannot write" in problem for problem in service.problems()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await own_server.restart()
    async with asyncio.timeout(60):
        while service.problems():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await service.drain(5)
    await bus.close()


async def test_draining_writes_what_was_read(bus, tmp_path):
    service = ArchiveService(settings(tmp_path, flush_seconds=600.0), bus, Metrics())
    await service.start()
    await bus.create(outgoing(outcome(1)))
    async with asyncio.timeout(60):
        while True:
            if service.held == 2:  # for the table of outcomes and for that of events
                break
            await asyncio.sleep(0.05)
    with structlog.testing.capture_logs() as logs:
        await service.drain(20)
    assert [line for line in logs if line["event"] == "task.failed"] == []
    assert len(Archive(str(tmp_path / "archive")).snapshot().files()) == 1


def test_where_the_archive_lies(tmp_path):
    assert placed(Settings(), tmp_path).archive.url == str(tmp_path / "archive")
    assert placed(settings(tmp_path, url="off"), tmp_path).archive.url == ""
    assert placed(settings(tmp_path, url="s3://bucket/a"), tmp_path).archive.url == "s3://bucket/a"


def test_a_service_without_a_place_is_refused():
    with pytest.raises(SettingsError, match=r"archive\.url"):
        ArchiveService(Settings(), None, Metrics())  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["nonsense://here"])
def test_a_place_that_cannot_be_is_refused(url):
    with pytest.raises(SettingsError, match=r"archive\.url"):
        ArchiveService(Settings(archive=ArchiveSettings(url=url)), None, Metrics())  # type: ignore[arg-type]
