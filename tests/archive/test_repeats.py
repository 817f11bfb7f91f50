"""Ids that the archive has: their arithmetic, how they are read from a real table, and when what has them may
leave its stream."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cooling import write

from groundwatch.archive import cooling
from groundwatch.archive.cold import ColdEvents
from groundwatch.archive.cooling import Settled
from groundwatch.errors import TransientError
from groundwatch.events import ResponseRecorded
from groundwatch.keys import response_key
from groundwatch.runtime.delivery.outcomes import recorded
from groundwatch.runtime.delivery.streams import Position, Read
from groundwatch.runtime.settings import ArchiveSettings
from groundwatch.runtime.stores import repeats
from groundwatch.runtime.stores.repeats import Ids, entry_of
from groundwatch.topology import ASKED, DAY, HEADER_DIGEST, RESPONSES, subject_of

CREATED = 1_772_000_000_000_000
BEGAN = 1_772_323_200.0
"""2026-03-01, midnight UTC."""

# Few enough values that keys are equal in one half, and in the bits that an entry leaves out.
HALVES = st.sampled_from(["0" * 16, "0" * 15 + "1", "f" * 16])
KEYS = st.builds(lambda high, rest: high + rest, HALVES, HALVES)
DIGESTS = st.sampled_from(["", "0" * 32, "f" * 32, "00000001" + "0" * 24, "not hex", "0x11111111"])


def read(sequence: int, key: str, digest: str = "", *, time: float = BEGAN, **more: object) -> Read:
    headers = {"Other": "1"} | ({HEADER_DIGEST: digest} if digest else {})
    fields = {"subject": f"gw.recorded.live.{key}", "data": b"{}", "headers": headers, "sequence": sequence}
    return Read(**(fields | {"time": time} | more))


def position(created: int = CREATED, *, last: int = 100, labelled: bool = True) -> Position:
    return Position(created=created, first=1, last=last, made=created, labelled=labelled)


async def ids_of(past: ColdEvents, stream: str = RESPONSES, until: int = 100, **at: object) -> list[Ids]:
    where = position(**at)
    files = await past.id_files({stream: where})
    assert files is not None
    return [Ids(await past.read_ids(stream, where.created, one, until)) for one in files[stream]]


def known(several: list[Ids], key: str) -> set[int]:
    return {digest for ids in several for digest in ids.digests(*entry_of(key, ""))}


@given(entries=st.lists(st.tuples(KEYS, DIGESTS), min_size=1, max_size=8), asked=KEYS)
async def test_a_file_of_the_archive_knows_what_is_in_it_and_nothing_else(tmp_path_factory, entries, asked):
    url = str(tmp_path_factory.mktemp("archive"))
    write(url, RESPONSES, CREATED, [read(at, *one) for at, one in enumerate(entries, 1)])
    (ids,) = await ids_of(ColdEvents(ArchiveSettings(url=url)))
    assert len(ids) == len(entries)
    same = {
        int(digest[:8], 16) if set(digest[:8]) <= set("0123456789abcdef") and digest else 0
        for key, digest in entries
        if key[:24] == asked[:24]
    }
    assert known([ids], asked) == same


async def test_only_live_traffic_of_this_very_stream_is_known(tmp_path: Path) -> None:
    past = ColdEvents(ArchiveSettings(url=str(tmp_path)))
    one, other, chain = (response_key("default", name) for name in ("one", "other", "chain"))
    reads = [
        read(1, one),
        read(2, other, subject=subject_of("recorded", "again", other)),
        read(3, other, subject="gw.recorded.live.no-key"),
        read(4, f"{chain}-p2"),
    ]
    write(str(tmp_path), RESPONSES, CREATED, reads)
    found = await ids_of(past)
    assert known(found, one) == {0} and known(found, chain) == {0} and not known(found, other)
    # Up to where it is still what was archived of it.
    assert not known(await ids_of(past, until=3), chain)
    asked = [
        read(1, one, subject=subject_of("asked", "live", "captioning", one)),
        read(2, chain, subject=subject_of("chain", "live", "captioning", "genception", chain, "1")),
    ]
    write(str(tmp_path), ASKED, CREATED, asked)
    questions = await ids_of(past, ASKED)
    assert known(questions, one) == {0} and not known(questions, chain)
    # Of a stream that was made anew nothing is a repeat; of one that nobody knows yet, nobody can tell.
    assert await ids_of(past, created=CREATED + 1) == []
    with pytest.raises(TransientError, match="nothing says that it is the present one"):
        await ids_of(past, created=CREATED + 1, labelled=False)
    assert await ids_of(past, created=CREATED + 1, labelled=False, last=0) == []


async def test_the_days_that_are_known_are_counted_from_the_last_one(tmp_path: Path) -> None:
    for number, day in enumerate((0, 1, 3), 1):
        write(str(tmp_path), RESPONSES, CREATED, [read(number, str(number) * 32, time=BEGAN + day * DAY)])
    found = await ids_of(ColdEvents(ArchiveSettings(url=str(tmp_path), repeat_days=2)))
    assert [bool(known(found, str(number) * 32)) for number in (1, 2, 3)] == [False, True, True]


async def test_an_archive_that_lies_elsewhere_has_no_ids(tmp_path: Path) -> None:
    past = ColdEvents(ArchiveSettings(url=str(tmp_path / "not" / "here")))
    assert await past.id_files({RESPONSES: position()}) is None


def test_the_digest_of_a_recorded_response_is_what_is_known_of_it() -> None:
    event = recorded(ResponseRecorded(id="a", model="m", answer="a"))
    assert msgspec.json.decode(event.payload)["id"] == "a"
    assert len(event.headers[HEADER_DIGEST]) == 32


def test_nothing_is_settled_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(cooling.time, "monotonic", lambda: now)
    settled = Settled()
    assert settled.up_to(RESPONSES, CREATED, 5) == 0
    now = repeats.HOLD_SECONDS - 1
    assert settled.up_to(RESPONSES, CREATED, 9) == 0
    now = repeats.HOLD_SECONDS
    assert settled.up_to(RESPONSES, CREATED, 9) == 5
    # Of another stream of the name nothing is.
    assert settled.up_to(RESPONSES, CREATED + 1, 9) == 0
    # An archive that came back with an older state.
    assert settled.up_to(RESPONSES, CREATED, 3) == 3
    now = 3 * repeats.HOLD_SECONDS
    assert settled.up_to(RESPONSES, CREATED, 20) == 3
    # Another process has to wait anew.
    assert Settled().up_to(RESPONSES, CREATED, 20) == 0
