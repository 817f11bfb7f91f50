"""Background tasks end for sure, and are started again when they should not have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import nats.errors
import pytest
import structlog

from groundwatch.errors import words
from groundwatch.runtime.services import tasks
from groundwatch.runtime.services.tasks import SupervisedTask, cancelled, unless


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


async def test_work_is_given_up_where_it_is_to_stop_and_has_its_time_to_end() -> None:
    stopped, ended = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(3 * tasks.AGAIN_SECONDS)
            ended.set()
        return "done"

    asyncio.get_running_loop().call_later(0.01, stopped.set)
    assert await unless(stopped, work()) is None
    assert ended.is_set()


async def test_what_work_gives_or_raises_is_told_whoever_waits() -> None:
    stopped = asyncio.Event()

    async def fail() -> None:
        raise ValueError("told")

    assert await unless(stopped, asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ValueError, match="told"):
        await unless(stopped, fail())


async def test_what_has_ended_or_failed_is_no_matter() -> None:
    async def fail() -> None:
        raise ValueError("told to whoever awaits it")

    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    await cancelled([task])
    assert isinstance(task.exception(), ValueError)
    await cancelled([])


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SupervisedTask]:
    for name, seconds in (("FIRST_DELAY", 0.01), ("MAX_DELAY", 0.02), ("STEADY_SECONDS", 0.1)):
        monkeypatch.setattr(tasks, name, seconds)
    return lambda work: SupervisedTask("worker", work)


async def until(true) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError(), None])
async def test_work_that_ends_is_started_again_and_tells_so_until_it_goes_on(error, supervised):
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun > 3:
            await asyncio.sleep(60)
        if error is not None:
            raise error

    task = supervised(work)
    assert task.problem == "worker: not started"
    with structlog.testing.capture_logs() as logs:
        task.start()
        await until(lambda: begun == 4)
        assert ("failed" if error is not None else "ended") in task.problem
        await until(lambda: not task.problem)
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("task.failed", "error"),
        ("task.goes_on", "info"),
    ]
    await task.stop()
    assert task.problem == ""
    assert begun == 4


@pytest.mark.parametrize(
    ("error", "whole"),
    [(ValueError("a bug"), True), (TimeoutError(), False), (nats.errors.TimeoutError(), False)],
)
async def test_only_a_bug_is_logged_with_its_traceback(error, whole, supervised):
    async def work() -> None:
        raise error

    task = supervised(work)
    with structlog.testing.capture_logs() as logs:
        task.start()
        await until(lambda: logs)
    await task.stop()
    assert words(error) in logs[0]["error"]
    assert (logs[0]["exc_info"] is error) is whole


async def test_work_that_is_told_to_end_returns_and_is_not_started_again(supervised):
    told, begun, ended = asyncio.Event(), 0, 0

    async def work() -> None:
        nonlocal begun, ended
        begun += 1
        await told.wait()
        ended += 1

    task = supervised(work)
    task.start()
    await asyncio.sleep(0)
    told.set()
    await task.finish(5)
    assert (begun, ended, task.problem) == (1, 1, "")


async def test_work_that_does_not_end_is_cancelled_after_the_timeout(supervised):
    task = supervised(lambda: asyncio.sleep(60))
    task.start()
    await asyncio.sleep(0)
    await task.finish(0.01)
    assert task.problem == ""
    await supervised(lambda: asyncio.sleep(60)).stop()
