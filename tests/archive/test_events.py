"""The table of events, and the service that writes it, against a real NATS server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pytest
from tests.archive.conftest import DAY, STREAM, outcome
from tests.support.archived import holding

from groundwatch.archive.events import Events, Message
from groundwatch.archive.service import ArchiveService
from groundwatch.archive.store import File
from groundwatch.archive.table import Erasure, due
from groundwatch.archive.writer import Memory
from groundwatch.events import OutcomeKind, ResponseRecorded
from groundwatch.runtime.delivery.outcomes import outgoing, recorded, replace_dead
from groundwatch.runtime.delivery.streams import Read, position_of, read_stream
from groundwatch.runtime.settings import ArchiveSettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ARCHIVED, EXTRACTED, OUTCOMES, RESPONSES, subject_of

Opener = Callable[..., Events]


def message(number: int, *, tenant: str = "default", run: str = "live", stream: str = RESPONSES) -> Message:
    event = ResponseRecorded(id=f"response-{number}", model="m", answer=f"Answer {number}.", tenant=tenant)
    sent = recorded(event)
    kind, *tokens = ("recorded", run, event.key)
    if stream == EXTRACTED:
        kind, *tokens = ("extracted", run, "verification", "faithscore", event.key)
    return Message(
        stream=stream,
        created=STREAM,
        read=Read(
            subject=subject_of(kind, *tokens),
            data=bytes(sent.payload),
            headers=dict(sent.headers),
            sequence=number,
            time=DAY + 600.0 * number + 0.123456,
        ),
    )


def messages(first: int, end: int, **options: str) -> list[Message]:
    return [message(number, **options) for number in range(first, end)]


def add(table: Events, several: list[Message]) -> None:
    table.add(several, created=STREAM, position=several[-1].sequence, stream=several[-1].stream)


def rows(table: Events) -> list[dict[str, object]]:
    data = table.snapshot().dataset()
    found = data.to_table().to_pylist() if data is not None else []
    return sorted(found, key=lambda row: (row["stream"], row["sequence"]))


@pytest.fixture(params=["folder", "s3"])
def open_events(request: pytest.FixtureRequest, tmp_path) -> Opener:
    def opened(**options: object) -> Events:
        if request.param == "folder":
            return Events(str(tmp_path / "archive"), **options)
        return Events(f"s3://bucket/{tmp_path.name}", request.getfixturevalue("s3"), **options)

    return opened


def test_messages_go_in_once_and_as_they_were(open_events: Opener):
    table = open_events(merge_files=3)
    several = messages(1, 200)
    for start in range(0, 199, 40):
        add(table, several[: start + 40])
    add(table, messages(1, 5, stream=EXTRACTED))
    table.maintain()
    assert {(file.stream, file.day.isoformat()) for file in table.snapshot().files()} == {
        (RESPONSES, "2026-03-01"),
        (RESPONSES, "2026-03-02"),
        (EXTRACTED, "2026-03-01"),
    }
    found = [row for row in rows(open_events()) if row["stream"] == RESPONSES]
    assert [row["sequence"] for row in found] == list(range(1, 200))
    for row, one in zip(found, several, strict=True):
        assert row["data"] == one.read.data and dict(row["headers"]) == one.read.headers
        assert row["time"].timestamp() == one.read.time and row["subject"] == one.read.subject
        assert (row["run"], row["kind"], row["key"]) == ("live", "recorded", one.key)
        assert (row["tenant"], row["created"]) == ("default", STREAM)
    state = open_events().snapshot()
    assert (state.position(STREAM, RESPONSES), state.position(STREAM, EXTRACTED)) == (199, 4)
    assert state.position(STREAM + 1, RESPONSES) == 0


def test_bytes_that_are_no_event_are_kept_too(open_events: Opener):
    table = open_events()
    foreign = Message(
        stream=RESPONSES,
        created=STREAM,
        read=Read(subject="gw.recorded.x", data=b"\xff\x00", headers={}, sequence=2, time=DAY),
    )
    add(table, [message(1), foreign, message(3, tenant="acme")])
    table.erase(Erasure(tenant="acme"))
    assert [(row["sequence"], row["tenant"], row["run"]) for row in rows(table)] == [
        (1, "default", "live"),
        (2, None, ""),
    ]


def test_erased_events_leave_no_byte(open_events: Opener):
    table = open_events(merge_files=2)
    several = [*messages(1, 10), *messages(10, 20, tenant="acme"), *messages(20, 24, run="again")]
    add(table, several[:12])
    add(table, several[12:20])
    table.maintain()
    gone = several[7]
    needles = [gone.key.encode(), b"Answer 8."]
    assert holding(table.store, [b"Answer 8."]) and holding(table.store, [gone.key.encode()])
    table.erase(Erasure(keys=(gone.key,), until={STREAM: 99}))
    assert holding(table.store, needles) == []
    table.erase(Erasure(tenant="acme"))
    assert holding(table.store, [b"acme"]) == []
    # What the writer still holds of a run that was deleted, and of what was erased, is left out.
    table.erase(Erasure(run="again", until={STREAM: 22}))
    add(table, [*several[20:], message(24, run="again")])
    assert [row["sequence"] for row in rows(table)] == [*range(1, 8), 9, 23, 24]
    named = {file.path for file in table.snapshot().files()}
    assert {name for name in table.store.names() if not name.startswith("_delta_log/")} == named


def test_files_that_are_merged_follow_each_other(monkeypatch: pytest.MonkeyPatch):
    def file(first: int, size: int) -> File:
        return File(
            path=str(first),
            day=message(1).day,
            stream=RESPONSES,
            rows=1,
            bytes=size,
            written=1e18,
            first=first,
            last=first,
            oldest=STREAM,
            newest=STREAM,
        )

    small, large, full = 10, 5_000_000, 100_000_000
    files = [
        file(at, size) for at, size in enumerate([small, small, full, small, large, small, small, small])
    ]
    assert due(files, 4, 128_000_000) == []
    assert [one.first for one in due(files, 3, 128_000_000)] == [5, 6, 7]
    files += [file(20 + at, large) for at in range(2)]
    assert [one.first for one in due(files, 3, 128_000_000)] == [5, 6, 7]
    tails = [one for one in files if one.first != 6]
    assert [one.first for one in due(tails, 3, 128_000_000)] == [3, 4, 5, 7, 20, 21]


async def test_all_hold_no_more_than_there_is_room_for():
    memory = Memory(100)
    one, other = object(), object()
    wanted = memory.join(one)
    await memory.take(one, 90)
    await memory.take(other, 10)
    assert not memory.is_wanted_of(one)
    waiting = [asyncio.create_task(memory.take(other, size)) for size in (60, 20)]
    async with asyncio.timeout(10):
        await wanted.wait()
    assert memory.is_wanted_of(one) and not memory.is_wanted_of(other)
    memory.free(one, 90)
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting)
    # One that is larger than all the room finds it when nothing else is held.
    memory.free(other)
    await memory.take(one, 1_000)


async def until_archived(table: Events, bus, *streams: str) -> None:
    async with asyncio.timeout(60):
        for stream in streams:
            while True:
                at = await position_of(bus.js, stream)
                if table.snapshot().position(at.created, stream) >= at.last:
                    break
                await asyncio.sleep(0.05)


@pytest.mark.usefixtures("clean_streams")
async def test_every_message_of_the_streams_is_archived_once(bus, tmp_path):
    settings = Settings(
        archive=ArchiveSettings(url=str(tmp_path / "archive"), flush_seconds=0.1, flush_rows=7)
    )
    table = Events(str(tmp_path / "archive"))
    responses = [ResponseRecorded(id=str(number), model="m", answer="a" * number) for number in range(40)]
    for half in (responses[:20], responses[20:]):
        metrics = Metrics()
        service = ArchiveService(settings, bus, metrics)
        await service.start()
        for one in half:
            await bus.create(recorded(one))
            await bus.js.publish(
                subject_of("extracted", "live", "verification", "faithscore", one.key), b"bytes"
            )
            await bus.create(outgoing(outcome(int(one.id))))
        await until_archived(table, bus, RESPONSES, EXTRACTED, OUTCOMES)
        await service.drain(30)
        assert service.problems() == []
        assert metrics.archive_rows.labels("events")._value.get() == 60
    found = rows(table)
    assert len(found) == 120
    for stream in ARCHIVED:
        mine = [row for row in found if row["stream"] == stream]
        held = [read async for read in read_stream(bus.js, stream)]
        assert [(row["sequence"], row["subject"], row["data"], dict(row["headers"])) for row in mine] == [
            (read.sequence, read.subject, read.data, read.headers) for read in held
        ]
        assert [row["time"].timestamp() for row in mine] == [read.time for read in held]


@pytest.mark.usefixtures("clean_streams")
async def test_an_outcome_that_is_replaced_is_replaced_among_events_too(bus, tmp_path):
    settings = Settings(archive=ArchiveSettings(url=str(tmp_path / "archive"), flush_seconds=0.1))
    table = Events(str(tmp_path / "archive"))
    service = ArchiveService(settings, bus, Metrics())
    await service.start()
    dead = outcome(3, outcome=OutcomeKind.UNSCORED, reason="dead_letter", score=None, claims=())
    await bus.create(outgoing(dead))
    await until_archived(table, bus, OUTCOMES)
    await replace_dead(bus, outgoing(outcome(3)))
    await until_archived(table, bus, OUTCOMES)
    await service.drain(30)
    assert [row["sequence"] for row in rows(table)] == [2]
    assert pa.types.is_binary(table.spec.schema.field("data").type)
