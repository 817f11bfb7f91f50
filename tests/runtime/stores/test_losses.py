"""What senders lost, read while they report."""

from __future__ import annotations

import asyncio

import pytest

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.stores.losses import LossReport, losses_by_sender, put_report


@pytest.mark.usefixtures("clean_streams")
async def test_a_report_that_is_replaced_while_all_are_read_is_counted(bus: Bus) -> None:
    async def report(number: int) -> None:
        one = LossReport(sender="shop", process="p", sequence=number, lost={"exit": number})
        await put_report(bus, "", one)

    async def go_on() -> None:
        for number in range(2, 200):
            await report(number)

    await report(1)
    reporting = asyncio.create_task(go_on())
    seen = [0]
    while not reporting.done():
        seen.append((await losses_by_sender(bus.js)).get("shop", {}).get("exit", 0))
    await reporting
    assert len(seen) > 10 and min(seen[1:]) > 0 and seen == sorted(seen)
    assert await losses_by_sender(bus.js) == {"shop": {"exit": 199}}
