"""A task ends even when its cancellation is lost once."""

from __future__ import annotations

import asyncio

from groundwatch.runtime.tasks import cancelled


async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    lost = 0

    async def work() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                lost += 1
                if lost == 3:
                    raise

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await cancelled([task, None])
    assert task.cancelled()
    assert lost == 3


async def test_what_has_ended_or_failed_is_no_matter() -> None:
    async def fail() -> None:
        raise ValueError("told to whoever awaits it")

    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    await cancelled([task])
    assert isinstance(task.exception(), ValueError)
    await cancelled([])
