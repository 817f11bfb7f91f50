"""The run loop of a process: start services, wait for the end, drain."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence

import nats.errors

from groundwatch import termination
from groundwatch.errors import TransientError
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.service import Service
from groundwatch.runtime.telemetry.logs import logger

DRAIN_SECONDS = 25.0
"""Below Kubernetes' default of 30 seconds between SIGTERM and SIGKILL."""


@contextlib.asynccontextmanager
async def running(services: Sequence[Service], bus: Bus) -> AsyncIterator[None]:
    """Services started inside the block, drained after it all at once, then disconnected."""
    started: list[Service] = []
    try:
        for service in services:
            try:
                await service.start()
            except (nats.errors.Error, TimeoutError, ConnectionError) as fault:
                raise TransientError(f"{service.name} cannot start, NATS went away: {fault!r}") from fault
            started.append(service)
            logger.info("service.started", service=service.name)
        yield
    finally:
        logger.info("draining", services=[service.name for service in started])
        drained = await asyncio.gather(
            *(service.drain(DRAIN_SECONDS) for service in started), return_exceptions=True
        )
        for service, error in zip(started, drained, strict=True):
            if error is not None:
                logger.error("service.drain_failed", service=service.name, error=repr(error))
        await bus.close()


async def until_told_to_stop() -> None:
    """Return on SIGTERM or Ctrl-C."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    stop_listening = termination.listen(lambda: loop.call_soon_threadsafe(stop.set))
    loop.add_signal_handler(signal.SIGINT, stop.set)
    try:
        await stop.wait()
    except BaseException:
        # Only here: once told, a second SIGTERM must not cut short what the first one began.
        stop_listening()
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@contextlib.asynccontextmanager
async def stopping() -> AsyncIterator[asyncio.Event]:
    """An event that is set on SIGTERM or Ctrl-C."""
    stopped = asyncio.Event()

    async def listen() -> None:
        await until_told_to_stop()
        stopped.set()

    listener = asyncio.create_task(listen())
    try:
        yield stopped
    finally:
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)


def problems_of(services: Sequence[Service]) -> list[str]:
    """Everything that keeps these services from being ready."""
    return [problem for service in services for problem in service.problems()]
