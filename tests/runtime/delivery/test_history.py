"""Reading what a stream holds and what has left it, while more of it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nats.js.api import StreamConfig

from groundwatch.errors import TransientError
from groundwatch.events import DEAD_LETTER
from groundwatch.runtime.delivery import streams
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.history import History
from groundwatch.runtime.delivery.streams import Count, Read, read_stream
from groundwatch.runtime.security.connecting import covers
from groundwatch.topology import HEADER_REASON, OUTCOMES, subject_of

STREAM = "HISTORY"


class Shelf:
    """A cold half in memory, which takes over before the stream lets go."""

    def __init__(self, bus: Bus, stream: str = STREAM) -> None:
        self.js = bus.js
        self.stream = stream
        self.kept: dict[tuple[int, int], Read] = {}

    async def cool(self, last: int) -> None:
        created = await self.created()
        async for read in read_stream(self.js, self.stream, last_sequence=last):
            self.kept[created, read.sequence] = read
        await self.js.purge_stream(self.stream, seq=last + 1)

    async def created(self) -> int:
        return round((await self.js.stream_info(self.stream)).created.timestamp() * 1e6)

    def _wanted(self, created: int, subjects: Sequence[str], first: int, last: int) -> list[Read]:
        return [
            read
            for (when, sequence), read in sorted(self.kept.items())
            if when == created
            and first <= sequence <= last
            and (not subjects or any(covers(one, read.subject) for one in subjects))
        ]

    async def read(
        self,
        stream: str,
        created: int,
        *,
        subjects: Sequence[str],
        first: int,
        last: int,
        headers_only: bool = False,
    ) -> AsyncGenerator[list[Read]]:
        for read in self._wanted(created, subjects, first, last):
            yield [read]

    async def last_of_each(
        self, stream: str, created: int, subjects: Sequence[str], last: int
    ) -> dict[str, Read]:
        found = {one: self._wanted(created, (one,), 1, last)[-1:] for one in subjects}
        return {one: several[0] for one, several in found.items() if several}

    async def count(
        self, stream: str, created: int, *, subjects: Sequence[str], first: int, last: int
    ) -> int:
        return len(self._wanted(created, subjects, first, last))


@pytest.fixture
async def shelf(bus: Bus) -> AsyncGenerator[Shelf]:
    """A stream of the test's own, empty, and its cold half."""
    await bus.js.add_stream(StreamConfig(name=STREAM, subjects=["history.>"]))
    found = Shelf(bus)
    yield found
    await bus.js.delete_stream(found.stream)


async def fill(bus: Bus, first: int, last: int) -> None:
    for number in range(first, last + 1):
        await bus.js.publish(f"history.{'even' if number % 2 == 0 else 'odd'}.{number}", b"%d" % number)


async def numbers(past: History, **options: object) -> list[int]:
    return [read.sequence async for read in past.read(STREAM, **options)]


async def test_both_halves_are_read_as_one(bus: Bus, shelf: Shelf) -> None:
    past = History(bus.js, shelf)
    assert await numbers(past) == []
    await fill(bus, 1, 20)
    for last in (0, 7, 20):
        if last:
            await shelf.cool(last)
        assert await numbers(past) == list(range(1, 21))
        assert await numbers(past, start_sequence=5, last_sequence=12) == list(range(5, 13))
        assert await numbers(past, subjects=("history.even.*",)) == list(range(2, 21, 2))
        assert (await past.last(STREAM, "history.odd.3")).data == b"3"
        assert await past.last(STREAM, "history.odd.4") is None
        each = await past.last_of_each(STREAM, ["history.odd.19", "history.no", "history.even.2"])
        assert [one and one.sequence for one in each] == [19, None, 2]
        assert (await past.next(STREAM, "history.even.*", 7)).sequence == 8
        assert (await past.next(STREAM, "history.even.*", 21)) is None
        assert await past.count(STREAM, "history.odd.*") == Count(10)
        assert await past.first_sequence(STREAM) == 1
    alone = History(bus.js)
    assert await numbers(alone) == [] and await alone.last(STREAM, "history.odd.3") is None


async def test_a_stream_that_is_empty_begins_behind_its_last_message(bus: Bus, shelf: Shelf) -> None:
    past = History(bus.js, shelf)
    await fill(bus, 1, 7)
    for sequence in (1, 7):
        await bus.js.delete_msg(STREAM, sequence)
    await shelf.cool(7)
    assert await numbers(past) == [2, 3, 4, 5, 6]
    assert (await past.next(STREAM, "history.odd.*", 1)).sequence == 3
    assert await past.count(STREAM, "history.>") == Count(5)


async def test_only_the_present_stream_counts(bus: Bus, shelf: Shelf) -> None:
    past = History(bus.js, shelf)
    await fill(bus, 1, 6)
    await shelf.cool(6)
    await bus.js.delete_stream(STREAM)
    await bus.js.add_stream(StreamConfig(name=STREAM, subjects=["history.>"]))
    await fill(bus, 1, 4)
    await shelf.cool(2)
    assert await numbers(past) == [1, 2, 3, 4]
    assert await past.last(STREAM, "history.even.6") is None


async def test_a_stream_that_is_made_anew_in_the_middle_is_told(
    bus: Bus, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BEGIN", 4)
    await fill(bus, 1, 40)
    reading = History(bus.js, shelf).read(STREAM)
    assert (await anext(reading)).sequence == 1
    await bus.js.delete_stream(STREAM)
    await bus.js.add_stream(StreamConfig(name=STREAM, subjects=["history.>"]))
    await fill(bus, 1, 40)
    with pytest.raises(TransientError):
        _ = [read async for read in reading]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_nothing_is_missed_or_doubled_whenever_it_leaves(
    bus: Bus, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    monkeypatch.setattr(streams, "MOST", data.draw(st.integers(1, 12)))
    monkeypatch.setattr(streams, "BEGIN", data.draw(st.integers(1, 12)))
    shelf.kept.clear()
    await bus.js.delete_stream(shelf.stream)
    # Another name: the server may still be removing files of the one before.
    shelf.stream = f"{STREAM}_{uuid4().hex}"
    await bus.js.add_stream(StreamConfig(name=shelf.stream, subjects=["history.>"]))
    total = data.draw(st.integers(1, 40))
    await fill(bus, 1, total)
    erased = data.draw(st.sets(st.integers(1, total), max_size=3))
    for sequence in erased:
        await bus.js.delete_msg(shelf.stream, sequence)
    filters = data.draw(st.sampled_from([(), ("history.even.*",), ("history.odd.*", "history.even.*")]))
    start, end = data.draw(st.integers(1, total)), data.draw(st.integers(1, total))
    wanted = [
        number
        for number in range(start, end + 1)
        if number not in erased and (len(filters) != 1 or number % 2 == 0)
    ]
    cuts = sorted(data.draw(st.lists(st.integers(1, total), max_size=4)))
    moments = data.draw(st.lists(st.integers(0, total), min_size=len(cuts), max_size=len(cuts)).map(sorted))
    found = []
    past = History(bus.js, shelf)
    waiting = list(zip(moments, cuts, strict=True))

    async def leave() -> None:
        while waiting and waiting[0][0] <= len(found):
            await shelf.cool(waiting.pop(0)[1])

    await leave()
    async for read in past.read(shelf.stream, subjects=filters, start_sequence=start, last_sequence=end):
        found.append(read.sequence)
        assert read.data == b"%d" % read.sequence
        await leave()
    assert found == wanted


async def test_an_outcome_that_was_replaced_when_it_was_cold_is_read_once(
    bus: Bus, clean_streams: None
) -> None:
    shelf = Shelf(bus, OUTCOMES)
    past = History(bus.js, shelf)
    names = [subject_of("outcome", "live", "faithscore", f"k{number}") for number in range(4)]
    for name in names:
        await bus.js.publish(name, b"{}", headers={HEADER_REASON: DEAD_LETTER})
    await shelf.cool(4)
    # One is replaced in the stream, one by an outcome that is cold as well, one by another dead letter.
    await bus.js.publish(names[1], b"{}")
    await bus.js.publish(names[0], b"{}", headers={HEADER_REASON: DEAD_LETTER})
    await shelf.cool(6)
    await bus.js.publish(names[2], b"{}")
    assert [read.sequence async for read in past.read(OUTCOMES)] == [4, 5, 6, 7]
    assert (await past.next(OUTCOMES, "gw.outcome.>", 1)).sequence == 4


async def test_following_begins_with_what_has_left(
    bus: Bus, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST", 4)
    monkeypatch.setattr(streams, "BEGIN", 4)
    await fill(bus, 1, 40)
    await shelf.cool(10)
    found, pending = list[int](), list[int]()
    following = History(bus.js, shelf).follow(STREAM, subjects=("history.even.*",), start_sequence=3)
    async with asyncio.timeout(60):
        async for batch in following:
            found += [read.sequence for read in batch.messages]
            pending.append(batch.pending)
            if found[-1] == 16:
                # More leaves than was read, and all the rest behind that.
                await shelf.cool(30)
            if batch.pending == 0 and found[-1] == 40:
                await fill(bus, 41, 42)
            if found[-1] == 42:
                break
    assert found == list(range(4, 43, 2))
    assert all(pending[:-2])
    nothing = History(bus.js, shelf).follow(STREAM, start_sequence=50)
    assert [batch async for batch in nothing] == []


async def test_following_what_has_all_left_comes_to_its_end(bus: Bus, shelf: Shelf) -> None:
    await fill(bus, 1, 6)
    await shelf.cool(6)
    found = list[int]()
    async with asyncio.timeout(60):
        async for batch in History(bus.js, shelf).follow(STREAM):
            found += [read.sequence for read in batch.messages]
            if batch.pending == 0:
                break
    assert found == [1, 2, 3, 4, 5, 6]
