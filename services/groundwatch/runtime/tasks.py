"""Ending background tasks for sure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_SECONDS = 0.1


async def cancelled(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    """Cancel tasks and wait until they have ended; what they raise is not told. None is left out.

    They are cancelled again and again: Python 3.11's `asyncio.wait_for` loses a cancellation that comes
    together with its result, and a task that loops around it would then never end.
    """
    ending = {task for task in tasks if task is not None}
    while ending:
        for task in ending:
            task.cancel()
        _, ending = await asyncio.wait(ending, timeout=AGAIN_SECONDS)
