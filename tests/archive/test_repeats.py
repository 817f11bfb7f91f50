"""The index of ids: its arithmetic, and how it is written to a real NATS server."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.backup import back_up, restore

from groundwatch.archive import repeats as writing
from groundwatch.archive.repeats import IdIndex, due
from groundwatch.events import ResponseRecorded
from groundwatch.gateway.intake.known_ids import KnownIds
from groundwatch.keys import response_key
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.outcomes import recorded
from groundwatch.runtime.delivery.streams import label, position_of
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import ArchiveSettings, Settings
from groundwatch.runtime.stores import repeats
from groundwatch.runtime.stores.repeats import Part, PartName, digest_in, entry_of, packed
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import HEADER_DIGEST, RESPONSES, subject_of

# Few enough values that keys are equal in one half, and in the bits that an entry leaves out.
HALVES = st.sampled_from(["0" * 16, "0" * 15 + "1", "f" * 16])
KEYS = st.builds(lambda high, rest: high + rest, HALVES, HALVES)
DIGESTS = st.sampled_from(["", "0" * 32, "f" * 32, "00000001" + "0" * 24])


@given(entries=st.lists(st.tuples(KEYS, DIGESTS)), gone=st.lists(KEYS, max_size=3), asked=KEYS)
def test_a_part_knows_what_was_put_in_and_nothing_else(entries, gone, asked):
    part = Part(packed(sorted(entry_of(*one) for one in entries)))
    assert len(part) == len({entry_of(*one) for one in entries})
    same = {int(digest[:8] or "0", 16) for key, digest in entries if key[:24] == asked[:24]}
    assert set(part.digests(*entry_of(asked, ""))) == same
    rest = part.without(entry_of(key, "") for key in gone)
    kept = [one for one in entries if one[0][:24] not in {key[:24] for key in gone}]
    assert (rest is None) == (len(kept) == len(entries))
    assert list(Part(rest) if rest is not None else part) == sorted({entry_of(*one) for one in kept})


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(0, writing.MOST_ENTRIES)), max_size=60),
)
def test_parts_become_few_and_none_too_large(sizes):
    numbers = itertools.count()

    def name(day: str, entries: int) -> PartName:
        return PartName(
            stream="S", created=1, day=day, last=next(numbers), entries=entries, nuid=str(next(numbers))
        )

    names = [name(f"2026-01-0{day}", entries) for day, entries in sizes]
    while several := due(names):
        assert len(several) > 1 and len({one.day for one in several}) == 1
        merged = name(several[0].day, sum(one.entries for one in several))
        assert merged.entries <= writing.MOST_ENTRIES
        names = [one for one in names if one not in several] + [merged]
    newest = max((one.day for one in names), default="")
    for day in {one.day for one in names}:
        small = [one for one in names if one.day == day and one.entries <= writing.MOST_ENTRIES // 2]
        assert len(small) <= (1 if day < newest else 5 * (writing.MERGE - 1))


@pytest.mark.parametrize("given", ["", "not hex", "0x11111111", " 1111111"])
def test_a_digest_that_is_none_of_ours_is_none(given):
    assert digest_in({HEADER_DIGEST: given}) == "" == digest_in({})


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "HOLD_SECONDS", 0.0)


async def record(bus: Bus, *names: str) -> None:
    for name in names:
        await bus.create(recorded(ResponseRecorded(id=name, model="m", answer="a")))


async def known(bus: Bus, *names: str) -> list[bool]:
    """Which of these ids a gateway that starts now knows."""
    ids = KnownIds(bus, Metrics())
    await ids.start()
    assert not ids.problem
    await ids.stop()
    return [ids.is_same(RESPONSES, response_key("default", name), "") is not None for name in names]


async def parts(bus: Bus) -> list[PartName]:
    return sorted(await repeats.parts(bus.js), key=lambda name: name.last)


def indexing(bus: Bus, **archive: object) -> IdIndex:
    return IdIndex(Settings(archive=ArchiveSettings(**archive)), bus, Metrics())


@pytest.mark.usefixtures("clean_streams")
async def test_what_comes_bit_by_bit_is_merged_and_nothing_is_lost(bus):
    names = [f"r{number}" for number in range(20)]
    for name in names:
        await record(bus, name)
        # Each time another process, which knows only what is in the bucket.
        await indexing(bus).round()
    assert len(await parts(bus)) <= writing.MERGE
    assert sum(name.entries for name in await parts(bus)) == 20
    assert await known(bus, *names, "other") == [True] * 20 + [False]
    assert await repeats.orphans(bus.js) == set()
    # The object store's other clients can read it.
    store = await bus.js.object_store(repeats.REPEATS_BUCKET)
    for name in await parts(bus):
        assert len((await store.get(name.text)).data or b"") == name.entries * repeats.ENTRY_BYTES


@pytest.mark.usefixtures("clean_streams")
async def test_days_lie_apart_and_the_oldest_go(bus, monkeypatch):
    today = {"day": ""}
    monkeypatch.setattr(repeats, "day_of", lambda time: today["day"])
    for day, name in [("2026-01-01", "a"), ("2026-01-02", "b"), ("2026-01-04", "c")]:
        today["day"] = day
        await record(bus, name)
        await indexing(bus, repeat_days=2).round()
    assert [name.day for name in await parts(bus)] == ["2026-01-02", "2026-01-04"]
    assert await known(bus, "a", "b", "c") == [False, True, True]
    # What is ahead of our clock lets nothing go.
    today["day"] = "2999-01-01"
    await record(bus, "d")
    await indexing(bus, repeat_days=365_000).round()
    assert await known(bus, "b", "c", "d") == [True, True, True]


@pytest.mark.usefixtures("clean_streams")
async def test_only_live_traffic_is_indexed(bus):
    await bus.js.publish(subject_of("recorded", "again", response_key("default", "a")), b"{}")
    await bus.js.publish(subject_of("recorded", "live", "no-key"), b"{}")
    await record(bus, "b")
    index = indexing(bus)
    await index.round()
    assert [name.entries for name in await parts(bus)] == [1]
    at = await position_of(bus.js, RESPONSES)
    another = msgspec.structs.replace(at, created=at.created + 1)
    assert await index.settled(RESPONSES, at) == 3 and await index.settled(RESPONSES, another) == 0


@pytest.mark.usefixtures("clean_streams")
async def test_nothing_is_settled_before_its_time(bus, monkeypatch):
    await record(bus, "a")
    monkeypatch.setattr(repeats, "HOLD_SECONDS", 3600.0)
    index = indexing(bus)
    await index.round()
    at = await position_of(bus.js, RESPONSES)
    assert await index.settled(RESPONSES, at) == 0
    monkeypatch.setattr(repeats, "HOLD_SECONDS", 0.0)
    assert await index.settled(RESPONSES, at) == 1
    # Another process has to wait anew.
    assert await indexing(bus).settled(RESPONSES, at) == 0


@pytest.mark.usefixtures("clean_streams")
async def test_what_is_erased_while_it_is_indexed_is_not_in_it(bus, monkeypatch):
    await record(bus, "a", "b")
    write = repeats.write

    async def slow_write(js, name, data):
        # Somebody removes it from the stream and looks for it in the index, where it is not yet.
        await js.delete_msg(RESPONSES, 1)
        assert await repeats.forget(js, [response_key("default", "a")]) == 0
        monkeypatch.setattr(repeats, "write", write)
        await write(js, name, data)

    monkeypatch.setattr(repeats, "write", slow_write)
    await indexing(bus).round()
    assert await known(bus, "a", "b") == [False, True]


@pytest.mark.usefixtures("clean_streams")
async def test_what_is_erased_while_parts_are_merged_does_not_come_back(bus, monkeypatch):
    for number in range(writing.MERGE):
        await record(bus, f"r{number}")
        if number < writing.MERGE - 1:
            await indexing(bus).round()
    replace, gone = repeats.replace, list[int]()

    async def late_replace(js, names, data):
        monkeypatch.setattr(repeats, "replace", replace)
        gone.append(await repeats.forget(js, [response_key("default", "r0")]))
        return await replace(js, names, data)

    monkeypatch.setattr(repeats, "replace", late_replace)
    await indexing(bus).round()
    assert gone == [1]
    assert await known(bus, "r0", "r1", f"r{writing.MERGE - 1}") == [False, True, True]


@pytest.mark.usefixtures("clean_streams")
async def test_pieces_that_nobody_finished_go_after_an_hour(bus, monkeypatch):
    await bus.js.publish(f"$O.{repeats.REPEATS_BUCKET}.C.{'0' * 32}", b"x")
    await record(bus, "a")
    index = indexing(bus)
    await index.round()
    assert len(await repeats.orphans(bus.js)) == 1
    monkeypatch.setattr(writing, "ORPHAN_SECONDS", -1.0)
    await index.round()
    assert await repeats.orphans(bus.js) == set()
    assert await known(bus, "a") == [True]


@pytest.mark.usefixtures("clean_streams")
@pytest.mark.parametrize("grown", [0, 2, 5], ids=["behind", "almost as far", "further"])
@pytest.mark.parametrize("merged", [False, True])
async def test_an_index_that_is_ahead_of_its_stream_is_made_again_from_it(
    bus: Bus, nats_server: NatsServer, tmp_path: Path, grown: int, merged: bool
) -> None:
    """As after a power failure that took the stream's last messages, and left what was indexed of them."""
    await label(bus.js, RESPONSES, (await position_of(bus.js, RESPONSES)).made)
    kept, lost = [f"kept{number}" for number in range(4)], [f"lost{number}" for number in range(3)]
    await record(bus, *kept)
    # By a process that goes on through all of it.
    index = indexing(bus)
    await index.round()
    await back_up(nats_server.url, tmp_path / "backup", streams=[RESPONSES])
    await record(bus, *lost)
    await index.round()
    if merged:
        first, second = await parts(bus)
        both = [await repeats.load(bus.js, name) for name in (first, second)]
        assert await repeats.replace(bus.js, [first, second], packed(sorted([*both[0], *both[1]])))
    assert await known(bus, *kept, *lost) == [True] * 7

    await bus.js.delete_stream(RESPONSES)
    await restore(nats_server.url, tmp_path / "backup")
    new = [f"new{number}" for number in range(grown)]
    await record(bus, *new)
    gateway = KnownIds(bus, Metrics())
    await gateway.start()
    # Nobody is told that a lost one is recorded.
    assert "ahead of GW_RESPONSES" in gateway.problem
    await gateway.stop()
    at = await position_of(bus.js, RESPONSES)
    assert await index.settled(RESPONSES, at) == 0
    for process in (index, indexing(bus)):
        await process.round()
        assert await process.settled(RESPONSES, at) == 4 + grown
        assert await known(bus, *kept, *new, *lost) == [True] * (4 + grown) + [False] * 3
