"""Background tasks: started again when they fail, told about while they do, and ended for sure."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import nats.errors

from groundwatch.errors import GroundwatchError, words
from groundwatch.runtime.telemetry.logs import logger, outage

T = TypeVar("T")

AGAIN_SECONDS = 0.1
FIRST_DELAY = 0.1
MAX_DELAY = 30.0
STEADY_SECONDS = 10.0
"""Work that has gone on for so long is well again."""

PASSING = (GroundwatchError, nats.errors.Error, OSError, TimeoutError)
"""What a line tells: NATS was away, and not where in our code that was noticed."""


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


def still_wanted() -> None:
    """Raises `CancelledError` where this task was cancelled while a library waited and kept it to itself, as
    Python 3.11's `asyncio.wait_for` can. For work that would else go on for ever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def until_set(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, at most so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def unless(stopped: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What the work gives; None, and the work given up, where it is to stop before that is there."""
    task, told = asyncio.create_task(work), asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, told):
            # Once: what it does at its end takes its time.
            one.cancel()
        await asyncio.gather(task, told, return_exceptions=True)


async def first_of(*waiting: Awaitable[Any]) -> None:
    """Wait until one of them ends, and cancel the others. Raises what it raised."""
    tasks = [asyncio.ensure_future(one) for one in waiting]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancelled(task for task in tasks if isinstance(task, asyncio.Task))


class SupervisedTask:
    """Work that goes on until it is stopped: when it raises or returns it is started again, later each time.

    The one way to run work in the background. `problem` belongs among a service's problems: it says why the
    work does not go on, until it has gone on for `STEADY_SECONDS`. Until then a failure is logged once.
    """

    def __init__(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self._work = work
        self._delay = FIRST_DELAY
        self._failure = ""
        self._told = False
        self._started = 0.0
        self._ending = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work. Does nothing when it has begun."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=self.name)

    async def stop(self) -> None:
        self._ending = True
        await cancelled([self._task])

    async def finish(self, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds until the work, which was told to end, returns; then stop."""
        self._ending = True
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout)
        await self.stop()

    @property
    def problem(self) -> str:
        """Why the work does not go on; empty while it does, and after it was told to end."""
        if self._ending:
            return ""
        if self._task is None:
            return f"{self.name}: not started"
        self._look()
        return f"{self.name}: {self._failure}; it is started again" if self._failure else ""

    async def _run(self) -> None:
        while True:
            self._started = time.monotonic()
            error: BaseException | None = None
            try:
                await self._work()
            except Exception as raised:
                error = raised
            except asyncio.CancelledError as raised:
                # A library that gives up cancels its own futures: nobody has cancelled this task.
                task = asyncio.current_task()
                if self._ending or (task is not None and task.cancelling()):
                    raise
                error = raised
            if self._ending:
                return
            self._look()
            self._started = 0.0
            failure = "ended, and should not" if error is None else f"failed: {words(error)}"
            bug = None if isinstance(error, PASSING) else error
            if not self._told and not (outage.lasts and error is not None and bug is None):
                self._told = True
                logger.error("task.failed", task=self.name, error=failure, exc_info=bug)
            self._failure = failure
            await asyncio.sleep(self._delay)
            self._delay = min(self._delay * 2, MAX_DELAY)

    def _look(self) -> None:
        """Whether it has gone on for long enough to be well again."""
        if not self._started or time.monotonic() - self._started < STEADY_SECONDS:
            return
        if self._told:
            logger.info("task.goes_on", task=self.name)
        self._failure, self._told, self._delay = "", False, FIRST_DELAY
