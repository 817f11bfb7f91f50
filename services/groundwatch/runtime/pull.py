"""Fetching from a durable consumer: no waiting for full batches, no loss on shutdown, honest health.

FastStream's batch subscriber keeps fetching until its batch is full or its time is up, drops what it
holds when it stops, and cannot tell a deleted consumer from a quiet one. `Pull` stands between it and
nats-py and mends the three.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import nats.errors
import nats.js.errors

from groundwatch.runtime.logs import logger

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

WAIT = 2.0
"""Seconds that one request lingers at the server; also the longest that a drain waits for it."""

PAUSE = 1.0
"""Seconds between requests while the consumer or the server is away."""


class Pull:
    """The part of nats-py's `PullSubscription` that FastStream uses."""

    def __init__(self, subscription: JetStreamContext.PullSubscription, *, consumer: str, batch: int) -> None:
        self._subscription = subscription
        self._consumer = consumer
        self._batch = batch
        self._draining = False
        self._fetching = asyncio.Event()
        self.idle = asyncio.Event()
        self.problem = ""
        self.last_answer = time.monotonic()

    async def fetch(self, batch: int, timeout: float | None = None) -> list[Msg]:
        """Wait until there is at least one message, and return what there is."""
        if batch < self._batch:
            # FastStream asks for the rest of a batch it has begun; what we have is worth more now.
            raise TimeoutError
        while not self._draining:
            try:
                messages: list[Msg] = await self._subscription.fetch(batch, timeout=WAIT)
            except (TimeoutError, nats.errors.TimeoutError):
                self._answered()
                continue
            except (nats.errors.Error, nats.js.errors.Error, OSError) as error:
                await self._failed(error)
                continue
            self._answered()
            return messages
        self.idle.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def unsubscribe(self) -> None:
        """Called by FastStream when it stops."""
        await self._subscription.unsubscribe()

    async def drain(self) -> None:
        """Fetch no more; return when nothing fetched is left unhandled."""
        self._draining = True
        await self.idle.wait()

    def _answered(self) -> None:
        if self.problem:
            logger.info("consumer.back", consumer=self._consumer)
        self.problem = ""
        self.last_answer = time.monotonic()

    async def _failed(self, error: Exception) -> None:
        if not self.problem:
            logger.warning("consumer.unreachable", consumer=self._consumer, error=repr(error))
        self.problem = repr(error)
        await asyncio.sleep(PAUSE)
