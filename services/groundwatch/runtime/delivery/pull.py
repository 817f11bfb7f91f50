"""Fetching from a durable consumer: no waiting for full batches, no loss on shutdown, honest health.

FastStream's batch subscriber keeps fetching until its batch is full or its time is up, and drops what it
holds when it stops; nats-py's `fetch` lingers for its whole timeout on a batch that is not full; neither
can tell a deleted consumer from a quiet one. `PullSubscriber` is FastStream's subscriber with a loop of its
own that mends the three, with JetStream's own pull protocol: a request that does not wait for what is
there, and only when nothing is, one that waits for a single message.

What it takes for granted of FastStream is tried in `tests/runtime/delivery/test_pull.py`. Nothing else
imports what is FastStream's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec
import nats.errors
from faststream import AckPolicy
from faststream._internal.broker.registrator import Registrator
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.message import StreamMessage
from faststream.nats import JStream, PullSub
from faststream.nats.subscriber.config import NatsSubscriberConfig, NatsSubscriberSpecificationConfig
from faststream.nats.subscriber.specification import NatsSubscriberSpecification
from faststream.nats.subscriber.usecases import BatchPullStreamSubscriber
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig

from groundwatch.errors import GroundwatchError, words
from groundwatch.runtime.telemetry.logs import logger, outage

if TYPE_CHECKING:
    from faststream.nats.configs import NatsBrokerConfig

    from groundwatch.runtime.delivery.connection import Broker

WAIT = 2.0
"""Seconds that a request lingers at the server; also the longest that a drain waits for it."""

GRACE = 1.0
"""Seconds beyond `WAIT` after which a request counts as lost, as in a server restart."""

BEHIND = 0.5
"""Seconds for an answer that lies in the socket: time is up as well when this process stood still itself."""

PAUSE = 1.0
"""Seconds between requests while the consumer or the server is away."""

BUSY_PAUSE = 0.2
"""Seconds between requests while the consumer gives nothing more until what it gave is acknowledged."""

AGAIN_SECONDS = 5.0
"""Until what a handler broke over comes again."""

NO_MESSAGES = "404"
EXPIRED = "408"
FULL = ("Exceeded MaxAckPending", "Exceeded MaxWaiting")
"""What a consumer answers that is busy, and well."""


class ConsumerUnavailable(GroundwatchError):
    """The server answers, but not for this consumer: it was deleted, or nobody answers at all."""


class ConsumerBusy(GroundwatchError):
    """The consumer gives nothing more for now."""


class PullSubscriber(BatchPullStreamSubscriber):
    """One loop on one durable consumer, which exists already; `handler` gets messages as they came."""

    def __init__(
        self,
        broker: Broker,
        *,
        stream: str,
        consumer: str,
        subject: str,
        batch: int,
        handler: Callable[[list[Msg]], Awaitable[None]],
    ) -> None:
        outer = cast("NatsBrokerConfig", broker.config)
        calls = CallsCollection[Any]()
        described = NatsSubscriberSpecificationConfig(
            subject=subject, queue=None, title_=consumer, description_=None
        )
        super().__init__(
            NatsSubscriberConfig(
                subject=subject,
                sub_config=ConsumerConfig(durable_name=consumer),
                _outer_config=outer,
                _ack_policy=AckPolicy.MANUAL,
            ),
            NatsSubscriberSpecification(outer, described, calls),
            calls,
            stream=JStream(stream, declare=False),
            pull_sub=PullSub(batch_size=batch, batch=True),
        )
        # A broker takes subscribers of classes of its own alone; this one stops with it as they do.
        Registrator.subscriber(broker, self)
        self.add_call(parser_=None, decoder_=_as_it_came, dependencies_=())
        self._handler = handler
        self(self._handle)
        self._consumer = consumer
        self._batch = batch
        self._asking = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = ""
        self._arrived: asyncio.Queue[Msg] = asyncio.Queue()
        self._requests = 0
        self._fetching = False
        self._draining = False
        self.idle = asyncio.Event()
        self.problem = ""
        self._told = False
        self.last_answer = time.monotonic()

    async def stop(self) -> None:
        """Also over a connection that is closed."""
        with contextlib.suppress(nats.errors.Error):
            await super().stop()

    async def drain(self) -> None:
        """Fetch no more; return when nothing fetched is left unhandled."""
        self._draining = True
        await self.idle.wait()

    async def _create_subscription(self) -> None:
        """Open the inbox that messages come to, and begin to fetch."""
        if self.subscription:
            return
        self._inbox = self.connection.new_inbox()
        # FastStream only ever unsubscribes from it.
        self.subscription = await self.connection.subscribe(  # type: ignore[assignment]
            f"{self._inbox}.*", cb=self._arrive
        )
        self.add_task(self._consume_pull)

    async def _consume_pull(self) -> None:
        while not self._draining:
            self._fetching = True
            try:
                messages = await self._until_some(self._batch)
            finally:
                self._fetching = False
            if messages:
                await self.consume(messages)
        await self._hand_back_late()
        self.idle.set()

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

    async def _request(self, batch: int, *, wait: bool) -> list[Msg]:
        """One pull request, read to its end: a full batch, or a status that says there is no more.

        A request of ours that went unanswered may still be answered later: its messages are as good as
        any, its statuses say nothing about this one and are told apart by the request's number.
        """
        if not self.connection.is_connected:
            # Requests that pile up while disconnected are all answered later, with more than we can hold.
            raise ConsumerUnavailable("not connected to NATS")
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}"
        request = {"batch": batch, "expires": int(WAIT * 1e9)} if wait else {"batch": batch, "no_wait": True}
        await self.connection.publish(self._asking, msgspec.json.encode(request), inbox)
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
        for seconds in (WAIT + GRACE, BEHIND):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self._arrived.get(), seconds)
        return None

    async def _arrive(self, message: Msg) -> None:
        """What comes when nobody waits for it is somebody else's: here it would grow old unseen."""
        await self._arrived.put(message)
        if not self._fetching:
            await self._hand_back_late()

    async def _handle(self, messages: list[Msg]) -> None:
        """FastStream says nothing of an exception: what a handler breaks over is told, and comes again."""
        try:
            await self._handler(messages)
        except Exception as error:
            logger.error("consumer.bug", consumer=self._consumer, error=repr(error), exc_info=True)
            for message in messages:
                if not message.is_acked:
                    with contextlib.suppress(nats.errors.Error, OSError):
                        await message.nak(delay=AGAIN_SECONDS)

    async def _hand_back_late(self) -> None:
        """What an unanswered request brought after all is somebody else's now."""
        while not self._arrived.empty():
            message = self._arrived.get_nowait()
            if message.reply:
                with contextlib.suppress(nats.errors.Error, OSError):
                    await message.nak()

    def _answered(self) -> None:
        if self._told:
            logger.info("consumer.back", consumer=self._consumer)
        self.problem, self._told = "", False
        self.last_answer = time.monotonic()

    async def _failed(self, error: Exception) -> None:
        self.problem = words(error)
        if not self._told and not outage.lasts:
            self._told = True
            logger.warning("consumer.unreachable", consumer=self._consumer, error=self.problem)
        await asyncio.sleep(PAUSE)


async def _as_it_came(message: StreamMessage[list[Msg]]) -> list[Msg]:
    """Each message is decoded, and can fail, on its own."""
    return message.raw_message
