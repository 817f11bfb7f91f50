"""Work that is begun no further ahead than somebody listens."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from groundwatch_benchmarks.probing.suites import at_once


async def test_all_is_done_and_no_more_at_once_than_allowed() -> None:
    under_way = most = 0

    async def work(item: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return 2 * item

    found = {place: made async for place, made in at_once(range(50), work, 4)}
    assert found == {place: 2 * place for place in range(50)} and most == 4


async def test_who_stops_listening_stops_the_work() -> None:
    begun = []

    async def work(item: int) -> None:
        begun.append(item)

    async with contextlib.aclosing(at_once(range(200), work, 4)) as coming:
        await anext(coming)
        await anext(coming)
        await asyncio.sleep(0.05)
    await asyncio.sleep(0)
    assert len(begun) <= 6


async def test_the_first_error_ends_all_of_it() -> None:
    begun = []

    async def work(item: int) -> None:
        begun.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError):
        async for _ in at_once(range(200), work, 4):
            pass
    assert len(begun) <= 4
