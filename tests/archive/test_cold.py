"""Reading events that have left the streams from a real table."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.cooling import cool, write

from groundwatch.archive import cold
from groundwatch.archive.cold import ColdEvents
from groundwatch.errors import MissingExtraError, TransientError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.streams import Count, Read
from groundwatch.runtime.security.connecting import covers
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.topology import EXTRACTED, OUTCOMES, RESPONSES, subject_of

CREATED = 1_772_000_000_000_000
DAY = 1_772_323_200.0
"""2026-03-01, midnight UTC."""


def events(url: str) -> ColdEvents:
    return ColdEvents(ArchiveSettings(url=url))


def read(sequence: int, subject: str, **more: object) -> Read:
    return Read(
        **{
            "subject": subject,
            "data": b"%d" % sequence,
            "headers": {"N": str(sequence)},
            "sequence": sequence,
            "time": DAY + sequence,
        }
        | more
    )


async def found(past: ColdEvents, stream: str = EXTRACTED, **options: object) -> list[Read]:
    given = {"subjects": (), "first": 1, "last": 1_000} | options
    return [one async for several in past.read(stream, CREATED, **given) for one in several]


SUBJECTS = [
    *(
        subject_of("extracted", run, stage, protocol, key)
        for run in ("live", "again")
        for stage in ("verification", "matching")
        for protocol in ("faithscore", "chair")
        for key in ("a1", "b2")
    ),
    "gw.extracted.live.verification",
    "gw.extracted.live.x.y.z.foreign",
]
FILTERS = [
    ">",
    "gw.>",
    "gw.extracted.>",
    "gw.extracted.*.>",
    "gw.extracted.live.>",
    "gw.extracted.live.matching.>",
    "gw.extracted.*.*.*.a1",
    "gw.extracted.*.*.faithscore.*",
    "gw.extracted.again.*.chair.b2",
    "gw.extracted.live.verification.chair.b2",
    "gw.extracted.*",
    "gw.*.live.>",
    "gw.judged.>",
]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_filters_are_those_of_a_stream(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "table"
    shutil.rmtree(folder, ignore_errors=True)
    names = data.draw(st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=40))
    reads = [read(sequence, name) for sequence, name in enumerate(names, start=1)]
    size = -(-len(reads) // data.draw(st.integers(1, 3)))
    for start in range(0, len(reads), size):
        write(str(folder), EXTRACTED, CREATED, reads[start : start + size])
    if data.draw(st.booleans()):
        # Another tool may have merged the files, in whatever order.
        DeltaTable(str(folder / "events")).optimize.compact()
    past = events(str(folder))
    filters = data.draw(st.lists(st.sampled_from(FILTERS + SUBJECTS), max_size=3))
    first, last = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))

    def covered(one: Read, several: Sequence[str]) -> bool:
        return not several or any(covers(pattern, one.subject) for pattern in several)

    wanted = [one for one in reads if first <= one.sequence <= last and covered(one, filters)]
    assert await found(past, subjects=filters, first=first, last=last) == wanted
    number = await past.count(EXTRACTED, CREATED, subjects=filters, first=first, last=last)
    assert number == len(wanted)
    newest = {
        pattern: several[-1]
        for pattern in filters
        if (several := [one for one in reads if one.sequence <= last and covered(one, [pattern])])
    }
    assert await past.last_of_each(EXTRACTED, CREATED, filters, last) == newest


async def test_only_rows_of_this_stream_and_creation(tmp_path: Path) -> None:
    url = str(tmp_path)
    past = events(url)
    assert await found(past) == []
    name = subject_of("extracted", "live", "matching", "chair", "k")
    write(url, EXTRACTED, CREATED, [read(1, name), read(2, name)])
    write(url, EXTRACTED, CREATED + 1, [read(3, name)])
    write(url, OUTCOMES, CREATED, [read(4, name)])
    past._state = None
    assert [one.sequence for one in await found(past)] == [1, 2]
    (bare, _) = await found(past, headers_only=True)
    assert bare == read(1, name, data=b"")


async def test_what_left_the_stream_since_the_last_look_is_there(tmp_path: Path) -> None:
    past, name = events(str(tmp_path)), subject_of("recorded", "live", "k")
    write(str(tmp_path), RESPONSES, CREATED, [read(1, name)])
    assert [one.sequence for one in await found(past, RESPONSES, last=1)] == [1]
    write(str(tmp_path), RESPONSES, CREATED, [read(2, name)])
    assert [one.sequence for one in await found(past, RESPONSES, last=2)] == [1, 2]


async def test_files_that_are_merged_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold, "MOST", 2)
    url, name = str(tmp_path), subject_of("extracted", "live", "matching", "chair", "k")
    for first in range(1, 40, 4):
        write(url, EXTRACTED, CREATED, [read(first + at, name) for at in range(4)])
    past, sequences = events(url), []
    async for several in past.read(EXTRACTED, CREATED, subjects=(), first=1, last=100):
        sequences += [one.sequence for one in several]
        if len(sequences) == 10:
            table = DeltaTable(f"{url}/events")
            table.optimize.compact()
            table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    assert sequences == list(range(1, 41))


async def test_files_that_are_lost_are_told(tmp_path: Path) -> None:
    url, name = str(tmp_path), subject_of("extracted", "live", "matching", "chair", "k")
    write(url, EXTRACTED, CREATED, [read(1, name)])
    shutil.rmtree(tmp_path / "events" / f"stream={EXTRACTED}")
    with pytest.raises(TransientError, match="has lost"):
        await found(events(url))
    with pytest.raises(TransientError, match="has lost"):
        await events(url).count(EXTRACTED, CREATED, subjects=(), first=1, last=9)


async def test_a_disk_that_is_not_here_is_told(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="mount it here"):
        await found(events(str(tmp_path / "elsewhere")))


async def test_what_is_missing_is_told_when_it_is_needed(
    bus: Bus, clean_streams: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = History(bus.js, events(str(tmp_path)))
    name = subject_of("recorded", "live", "k")
    await bus.js.publish(name, b"{}")
    with monkeypatch.context() as bare:
        bare.setattr("groundwatch.archive.place.installed", lambda: False)
        assert len([one async for one in past.read(RESPONSES)]) == 1
        assert await past.last(RESPONSES, "gw.recorded.live.other") is None
    await cool(bus, str(tmp_path), RESPONSES)
    monkeypatch.setattr("groundwatch.archive.place.installed", lambda: False)
    with pytest.raises(MissingExtraError, match="pip install 'groundwatch\\[archive\\]'"):
        _ = [one async for one in past.read(RESPONSES)]


async def test_both_halves_of_a_real_stream(bus: Bus, clean_streams: None, tmp_path: Path) -> None:
    names = [subject_of("recorded", "live", f"k{number}") for number in range(1, 31)]
    for name in names:
        await bus.js.publish(name, name.encode(), headers={"Gw-Protocols": "chair"})
    before = [one async for one in History(bus.js).read(RESPONSES)]
    await cool(bus, str(tmp_path), RESPONSES, 20, files=3)
    past = History(bus.js, events(str(tmp_path)))
    after = [one async for one in past.read(RESPONSES)]
    assert [msgspec.structs.replace(one, pending=0) for one in after] == [
        msgspec.structs.replace(one, pending=0) for one in before
    ]
    assert await past.count(RESPONSES, "gw.recorded.live.>") == Count(30)
    each = await past.last_of_each(RESPONSES, [names[3], names[25], "gw.recorded.live.none"])
    assert [one and one.data for one in each] == [names[3].encode(), names[25].encode(), None]
