"""How long a stage's handler may work at something, and what has run out of that time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from groundwatch.errors import WorkTimeout
from groundwatch.runtime.telemetry.logs import logger

if TYPE_CHECKING:
    from groundwatch.runtime.delivery.work import Arrived
    from groundwatch.runtime.telemetry.metrics import Metrics

T = TypeVar("T")

CANCEL_SECONDS = 1.0
"""How long work that was cancelled may take to end; after that its stage goes on without it."""

TOLD_SECONDS = 900.0
"""For how long work that ran out of time is told, unless it ends before."""


class WorkClock:
    """Bounds each call of one stage's handler to `timeout` seconds."""

    def __init__(self, stage: str, metrics: Metrics, timeout: float) -> None:
        self._stage = stage
        self._timeout = timeout
        self._timeouts = metrics.stage_timeouts.labels(stage)
        self._began: dict[object, float] = {}
        self._late: dict[str, tuple[str, float]] = {}
        metrics.longest_work(stage, self._longest)

    async def within(self, work: Awaitable[T], arrivals: Sequence[Arrived]) -> T:
        """The result of `work`. Raises `WorkTimeout` when there is none in time; it is cancelled then."""
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        self._began[task] = time.monotonic()
        try:
            await asyncio.wait({task}, timeout=self._timeout)
            if task.done():
                return task.result()
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        finally:
            task.cancel()
            task.add_done_callback(_forget)
            del self._began[task]
        self._timeouts.inc()
        for arrived in arrivals:
            self._late[arrived.key] = (arrived.origin, time.monotonic())
        subjects = ", ".join(arrived.origin for arrived in arrivals[:3])
        logger.error(
            "stage.timeout", stage=self._stage, messages=len(arrivals), subjects=subjects, ended=task.done()
        )
        raise WorkTimeout(f"no result within {self._timeout:g} s")

    def ended(self, arrived: Arrived) -> None:
        """A message is done with: if it ran out of time before, that is over."""
        if self._late:
            self._late.pop(arrived.key, None)

    def problems(self) -> list[str]:
        """What ran out of time and has not ended since."""
        now = time.monotonic()
        self._late = {key: late for key, late in self._late.items() if now - late[1] < TOLD_SECONDS}
        if not self._late:
            return []
        subject, when = next(reversed(self._late.values()))
        return [
            f"{len(self._late)} events had no result within {self._timeout:g} s, the last one "
            f"{now - when:.0f} s ago: {subject}"
        ]

    def _longest(self) -> float:
        return time.monotonic() - min(self._began.values()) if self._began else 0.0


def _forget(task: asyncio.Future[Any]) -> None:
    """Whoever waited for it has gone on: what it raises is of no use to anybody."""
    if not task.cancelled():
        task.exception()
