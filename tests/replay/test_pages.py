"""Reading page after page: all of it, in order, by one consumer where it can be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundwatch.errors import TransientError
from groundwatch.replay.worker import PagedReader
from groundwatch.runtime.delivery.bus import Bus, Outgoing, wait_acks
from groundwatch.runtime.delivery.streams import MOST
from groundwatch.topology import OUTCOMES

pytestmark = pytest.mark.usefixtures("clean_streams")

COUNT = 700
OURS = "gw.outcome.ours.>"


async def fill(bus: Bus) -> None:
    """Every third message is somebody else's; the last 100 are all."""
    receipts = []
    for number in range(1, COUNT + 1):
        run = "others" if number % 3 == 0 or number > 600 else "ours"
        event = Outgoing(subject=f"gw.outcome.{run}.p.{number:032x}", payload=b"%d" % number)
        receipts.append(await bus.start_create(event))
    await wait_acks(receipts)


def ours(first: int, last: int) -> list[int]:
    return [one for one in range(first, min(last, 600) + 1) if one % 3]


async def consumers(bus: Bus) -> set[str]:
    return {one.name or "" for one in await bus.js.consumers_info(OUTCOMES)}


def reader(bus: Bus, last: int = COUNT, most: int = MOST) -> PagedReader:
    return PagedReader(bus.history, OUTCOMES, OURS, last, most=lambda: most)


async def sequences(read: PagedReader, first: int, last: int) -> list[int]:
    return [message.sequence async for part in read.page(first, last) for message in part]


@pytest.mark.parametrize(("size", "most"), [(100, MOST), (7, 3), (33, 500), (350, MOST)])
async def test_pages_one_after_the_other_take_one_consumer(bus: Bus, size: int, most: int) -> None:
    await fill(bus)
    before = await consumers(bus)
    read, seen = reader(bus, most=most), set[str]()
    found: list[int] = []
    for first in range(1, COUNT + 1, size):
        page = await sequences(read, first, first + size - 1)
        assert page == ours(first, first + size - 1)
        found += page
        seen |= await consumers(bus) - before
    assert found == ours(1, COUNT)
    assert len(seen) == 1
    await read.close()
    assert await consumers(bus) == before


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pages=st.lists(st.tuples(st.integers(1, COUNT), st.integers(0, 200)), min_size=1, max_size=6))
async def test_pages_in_any_order(bus: Bus, pages: list[tuple[int, int]]) -> None:
    if (await bus.js.stream_info(OUTCOMES)).state.messages == 0:
        await fill(bus)
    start = (await bus.js.stream_info(OUTCOMES)).state.first_seq - 1
    assert start == 0
    read = reader(bus)
    for first, length in pages:
        assert await sequences(read, first, first + length) == ours(first, first + length)
    await read.close()


async def test_a_page_left_half_way_is_begun_again_where_it_is_asked_for(bus: Bus) -> None:
    await fill(bus)
    read = reader(bus, most=20)
    async with contextlib.aclosing(read.page(1, 100)) as page:
        part = await anext(page)
    assert [one.sequence for one in part] == ours(1, part[-1].sequence)
    # Of what came, half was worked at.
    at = part[len(part) // 2].sequence
    assert await sequences(read, at, 100) == ours(at, 100)
    assert await sequences(read, 101, 200) == ours(101, 200)
    await read.close()


async def test_after_a_break_it_reads_on(bus: Bus) -> None:
    await fill(bus)
    read = reader(bus, most=20)
    found: list[int] = []

    def note(numbers: Iterable[int]) -> None:
        found.extend(numbers)

    with pytest.raises(TransientError):
        async for part in read.page(1, 600):
            note(message.sequence for message in part)
            for name in await consumers(bus):
                if name.startswith("reading-"):
                    await bus.js.delete_consumer(OUTCOMES, name)
    assert 0 < len(found) < len(ours(1, 600))
    assert found + await sequences(read, found[-1] + 1, 600) == ours(1, 600)
    await read.close()
