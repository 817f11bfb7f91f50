"""Damaged files of the archive: whoever asks for what was in them is told which, in one line, and in time."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.archive.conftest import add, row
from tests.ledger.test_incremental import several
from tests.support.archived import holding
from tests.support.cooling import cool

from groundwatch.archive.answers import AnswerIndex
from groundwatch.archive.cold import ColdEvents
from groundwatch.archive.images import ArchivedImages, DamagedImage
from groundwatch.archive.outcomes import Archive, rows_after
from groundwatch.archive.query import Session
from groundwatch.archive.service import ArchiveService
from groundwatch.archive.store import LostFileError
from groundwatch.errors import TransientError, UsageError
from groundwatch.gateway.answers import AnswerSearch
from groundwatch.ledger.ledger import audit
from groundwatch.ledger.proof import prove
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import position_of
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ArchiveSettings, Settings
from groundwatch.runtime.stores.tombstones import Erased
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTCOMES, RESPONSES

HANG_SECONDS = 60

Harm = Callable[[Path], object]


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-30])


def flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for at in random.Random(len(data)).sample(range(4, len(data) // 2), len(data) // 20):
        data[at] ^= 0xFF
    file.write_bytes(data)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def data_files(place: Path) -> list[Path]:
    """Of the table of outcomes."""
    return sorted(place.glob("outcomes/day=*/*.parquet"))


def logs(place: Path) -> list[Path]:
    return sorted((place / "outcomes" / "_delta_log").glob("*.json"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    found = tmp_path / "archive"
    archive = Archive(str(found))
    for first in (1, 21, 41):
        add(archive, [row(number) for number in range(first, first + 20)])
    return found


def ask(place: Path, sql: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "groundwatch", "query", sql, "--archive-only"],
        env=os.environ | {"GROUNDWATCH_ARCHIVE__URL": str(place)},
        cwd=place.parent,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


@pytest.mark.parametrize("harm", [Path.unlink, cut, flipped, empty])
def test_a_query_names_the_file_that_is_damaged(place: Path, harm: Harm) -> None:
    harmed = data_files(place)[0]
    harm(harmed)
    with pytest.raises(UsageError) as raised, Session(Archive(str(place)).snapshot()) as session:
        session.ask("SELECT * FROM claims")
    line = str(raised.value)
    assert "\n" not in line
    assert str(harmed) in line and "sequences" in line and "put it back from the backup" in line
    assert harmed.parent.name.removeprefix("day=") in line


def test_the_command_says_so_in_a_line_and_does_not_wait_for_a_pipe(place: Path) -> None:
    harmed = data_files(place)[0]
    pipe(harmed)
    done = ask(place, "SELECT * FROM claims")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert str(harmed) in line


@pytest.mark.parametrize(
    ("harm", "number"),
    # Nobody can tell a log without its end from one that has not come so far.
    [*itertools.product((cut, empty, pipe), (1, -1)), (Path.unlink, 1)],
)
def test_a_query_names_the_file_of_the_log_that_is_damaged(place: Path, harm: Harm, number: int) -> None:
    harmed = logs(place)[number]
    harm(harmed)
    with pytest.raises(UsageError) as raised:
        Archive(str(place)).snapshot()
    told = str(raised.value)
    assert harmed.name in told and "put this file back from the backup" in told and "\n" not in told
    assert "<unknown>" not in told


def test_a_log_that_is_gone_is_no_empty_archive(place: Path) -> None:
    shutil.rmtree(place / "outcomes" / "_delta_log")
    for file in data_files(place):
        os.utime(file, (0, 0))
    archive = Archive(str(place))
    with pytest.raises(UsageError, match="is gone, and its files are there"):
        archive.check_started()
    assert "is gone, and its files are there" in archive.problem()


@pytest.mark.parametrize("harm", [Path.unlink, cut, pipe])
def test_lookups_name_the_file_and_the_day(place: Path, harm: Harm) -> None:
    answers = AnswerIndex(ArchiveSettings(url=str(place)), ())
    assert answers.problem() == ""
    harmed = data_files(place)[0]
    harm(harmed)
    with pytest.raises(TransientError) as raised:
        answers.refresh()
    assert harmed.name in str(raised.value) and "put it back" in str(raised.value)
    assert harmed.name in answers.problem()


def test_a_pipe_in_the_folder_holds_up_no_search_for_bytes(place: Path) -> None:
    for name in ("pipe", "_delta_log/pipe", f"{data_files(place)[0].parent.name}/pipe.parquet"):
        os.mkfifo(place / "outcomes" / name)
    archive = Archive(str(place))
    assert holding(archive.store, [b"response-3"]) != []
    with Session(archive.snapshot()) as session:
        assert session.ask("SELECT count(*) FROM outcomes").rows == [[60]]
    (place / "images").mkdir()
    os.mkfifo(place / "images" / ("0" * 64))
    with pytest.raises(DamagedImage):
        ArchivedImages(ArchiveSettings(url=str(place))).get("0" * 64)


def test_a_change_of_a_damaged_file_is_refused_in_a_line(place: Path) -> None:
    archive = Archive(str(place))
    cut(data_files(place)[0])
    from groundwatch.archive.table import Erasure

    with pytest.raises(LostFileError, match="put it back"):
        archive.erase(Erasure(tenant="tenant-1"))


@pytest.mark.parametrize("harm", [Path.unlink, cut, flipped])
async def test_the_full_audit_reads_every_file_of_every_table(
    bus: Bus, clean_streams: None, nats_server: NatsServer, tmp_path: Path, harm: Harm
) -> None:
    await several(bus, 6)
    archive = Archive(str(tmp_path))
    at = await position_of(bus.js, OUTCOMES)
    rows = [one async for one in rows_after(bus, at, 0)]
    archive.add(rows, created=at.created, position=at.last)
    for stream in (RESPONSES, OUTCOMES):
        await cool(bus, str(tmp_path), stream)
    past = ColdEvents(ArchiveSettings(url=str(tmp_path)))
    assert (await audit(bus.js, cold=past)).balanced
    assert (await prove(bus.js, cold=past)).lost_files == ()
    (harmed,) = data_files(tmp_path)
    harm(harmed)
    proof = await prove(bus.js, cold=past)
    assert (proof.ledger.balanced, proof.differences) == (True, ())
    (lost,) = proof.lost_files
    assert (lost.path, lost.first, lost.last) == (str(harmed.relative_to(tmp_path)), 1, 6)
    if harm is not Path.unlink:
        return
    names = {"GROUNDWATCH_NATS__URL": nats_server.url, "GROUNDWATCH_ARCHIVE__URL": str(tmp_path)}
    done = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-m", "groundwatch", "audit", "--full"],
        env=os.environ | names,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 1
    assert f"lost: {lost.path}" in done.stdout and "put it back" in done.stdout
    assert len(done.stderr.splitlines()) == 1


async def test_rows_that_a_table_has_lost_without_a_trace_are_a_loss(
    bus: Bus, clean_streams: None, tmp_path: Path
) -> None:
    """The last transaction of the log is gone: to whoever reads it the table is whole."""
    await several(bus, 6)
    for stream in (RESPONSES, OUTCOMES):
        await cool(bus, str(tmp_path), stream, files=2)
    past = ColdEvents(ArchiveSettings(url=str(tmp_path)))
    log = sorted((tmp_path / "events" / "_delta_log").glob("*.json"))
    for file in log[2:]:
        file.unlink()
    await several(bus, 1, first=6)
    ledger = await audit(bus.js, cold=past)
    assert [(lost.first, lost.last) for lost in ledger.lost_responses] == [(4, 6)]
    assert not ledger.balanced


@pytest.mark.parametrize("harm", [cut, empty])
async def test_damage_of_the_archive_is_a_note(
    bus: Bus, clean_streams: None, place: Path, monkeypatch: pytest.MonkeyPatch, harm: Harm
) -> None:
    monkeypatch.setattr("groundwatch.gateway.answers.CHECK_SECONDS", 0.0)
    monkeypatch.setattr("groundwatch.gateway.answers.REFRESH_SECONDS", 0.05)
    monkeypatch.setattr("groundwatch.archive.service.MAINTAIN_SECONDS", 0.05)
    settings = Settings(archive=ArchiveSettings(url=str(place)))
    erased = Erased(bus.js)
    search = AnswerSearch(bus, AnswerIndex(settings.archive, ()), erased, ())
    service = ArchiveService(settings, bus, Metrics())
    search.start()
    await service.start()
    await several(bus, 1)
    from tests.runtime.conftest import eventually

    await eventually(lambda: search.complete)
    assert (search.problem, service.notes()) == ("", [])
    harmed = logs(place)[-1] if harm is empty else data_files(place)[0]
    kept = harmed.read_bytes()
    harm(harmed)
    await eventually(lambda: harmed.name in search.problem)
    await eventually(lambda: harmed.name in " ".join(service.notes()))
    harmed.write_bytes(kept)
    await eventually(lambda: not search.problem and not service.notes())
    await service.drain(5.0)
    await search.stop()


async def test_a_table_that_is_gone_whole_hides_no_damage_of_the_other(
    bus: Bus, clean_streams: None, tmp_path: Path
) -> None:
    await several(bus, 6)
    await cool(bus, str(tmp_path), RESPONSES)
    past = ColdEvents(ArchiveSettings(url=str(tmp_path)))
    (harmed,) = (tmp_path / "events").glob("stream=*/day=*/*.parquet")
    cut(harmed)
    assert not (tmp_path / "outcomes").exists()
    (lost,) = await past.lost_files()
    assert lost.path == str(harmed.relative_to(tmp_path))
