"""Fetching from a durable consumer: no waiting for full batches, no loss on shutdown, honest health.

FastStream's batch subscriber keeps fetching until its batch is full or its time is up, and drops what it
holds when it stops; nats-py's `fetch` lingers for its whole timeout on a batch that is not full; neither
can tell a deleted consumer from a quiet one. `Pull` takes the place of nats-py's subscription under
FastStream and mends the three, with JetStream's own pull protocol: a request that does not wait for what
is there, and only when nothing is, one that waits for a single message.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import msgspec
import nats.errors

from groundwatch.errors import GroundwatchError
from groundwatch.runtime.telemetry.logs import logger

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

WAIT = 2.0
"""Seconds that a request lingers at the server; also the longest that a drain waits for it."""

GRACE = 1.0
"""Seconds beyond `WAIT` after which a request counts as lost, as in a server restart."""

PAUSE = 1.0
"""Seconds between requests while the consumer or the server is away."""

BUSY_PAUSE = 0.2
"""Seconds between requests while the consumer gives nothing more until what it gave is acknowledged."""

NO_MESSAGES = "404"
EXPIRED = "408"
FULL = ("Exceeded MaxAckPending", "Exceeded MaxWaiting")
"""What a consumer answers that is busy, and well."""


class ConsumerUnavailable(GroundwatchError):
    """The server answers, but not for this consumer: it was deleted, or nobody answers at all."""


class ConsumerBusy(GroundwatchError):
    """The consumer gives nothing more for now."""


class Pull:
    """The part of nats-py's `PullSubscription` that FastStream uses, for one loop on one consumer."""

    def __init__(self, client: Client, *, stream: str, consumer: str, batch: int) -> None:
        self._client = client
        self._consumer = consumer
        self._batch = batch
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._arrived: asyncio.Queue[Msg] = asyncio.Queue()
        self._subscription: Subscription | None = None
        self._requests = 0
        self._fetching = False
        self._draining = False
        self.idle = asyncio.Event()
        self.problem = ""
        self.last_answer = time.monotonic()

    async def start(self) -> None:
        """Open the inbox that messages come to."""
        self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._arrive)

    async def fetch(self, batch: int, timeout: float | None = None) -> list[Msg]:
        """Wait until there is at least one message, and return what there is."""
        if batch < self._batch:
            # FastStream asks for the rest of a batch it has begun; what we have is worth more now.
            raise nats.errors.TimeoutError
        self._fetching = True
        try:
            if messages := await self._until_some(batch):
                return messages
        finally:
            self._fetching = False
        await self._hand_back_late()
        self.idle.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def _until_some(self, batch: int) -> list[Msg]:
        """Messages; none only when draining."""
        while not self._draining:
            try:
                messages = await self._request(batch, wait=False)
                if not messages and not self._draining:
                    messages = await self._request(1, wait=True)
                    if messages and batch > 1 and not self._draining:
                        with contextlib.suppress(ConsumerUnavailable, ConsumerBusy):
                            messages += await self._request(batch - 1, wait=False)
            except ConsumerBusy:
                self._answered()
                await asyncio.sleep(BUSY_PAUSE)
                continue
            except (nats.errors.Error, OSError, ConsumerUnavailable) as error:
                await self._failed(error)
                continue
            self._answered()
            if messages:
                return messages
        return []

    async def unsubscribe(self) -> None:
        """Called by FastStream when it stops, also over a connection that is closed."""
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.Error):
                await self._subscription.unsubscribe()

    async def drain(self) -> None:
        """Fetch no more; return when nothing fetched is left unhandled."""
        self._draining = True
        await self.idle.wait()

    async def _request(self, batch: int, *, wait: bool) -> list[Msg]:
        """One pull request, read to its end: a full batch, or a status that says there is no more.

        A request of ours that went unanswered may still be answered later: its messages are as good as
        any, its statuses say nothing about this one and are told apart by the request's number.
        """
        if not self._client.is_connected:
            # Requests that pile up while disconnected are all answered later, with more than we can hold.
            raise ConsumerUnavailable("not connected to NATS")
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}"
        request = {"batch": batch, "expires": int(WAIT * 1e9)} if wait else {"batch": batch, "no_wait": True}
        await self._client.publish(self._subject, msgspec.json.encode(request), inbox)
        messages: list[Msg] = []
        while len(messages) < batch:
            message = await self._next()
            if message is None:
                if messages:
                    return messages
                raise ConsumerUnavailable(f"no answer from the server within {WAIT + GRACE:g} s")
            if message.reply:
                messages.append(message)
                continue
            if message.subject != inbox:
                continue
            headers = message.headers or {}
            status, why = headers.get("Status", ""), headers.get("Description", "")
            if messages or status in (NO_MESSAGES, EXPIRED):
                return messages
            if why in FULL:
                raise ConsumerBusy(why)
            raise ConsumerUnavailable(f"{status} {why}".strip())
        return messages

    async def _next(self) -> Msg | None:
        if not self._arrived.empty():
            return self._arrived.get_nowait()
        try:
            return await asyncio.wait_for(self._arrived.get(), WAIT + GRACE)
        except TimeoutError:
            return None

    async def _arrive(self, message: Msg) -> None:
        """What comes when nobody waits for it is somebody else's: here it would grow old unseen."""
        await self._arrived.put(message)
        if not self._fetching:
            await self._hand_back_late()

    async def _hand_back_late(self) -> None:
        """What an unanswered request brought after all is somebody else's now."""
        while not self._arrived.empty():
            message = self._arrived.get_nowait()
            if message.reply:
                with contextlib.suppress(nats.errors.Error, OSError):
                    await message.nak()

    def _answered(self) -> None:
        if self.problem:
            logger.info("consumer.back", consumer=self._consumer)
        self.problem = ""
        self.last_answer = time.monotonic()

    async def _failed(self, error: Exception) -> None:
        if not self.problem:
            logger.warning("consumer.unreachable", consumer=self._consumer, error=str(error) or repr(error))
        self.problem = str(error) or repr(error)
        await asyncio.sleep(PAUSE)
