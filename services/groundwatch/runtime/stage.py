"""The loop that every stage runs: fetch, decode, handle, publish the results, then acknowledge.

What a handler must know is in `Handler`; what can go wrong is dealt with here, once for all stages:
transient faults go back to the server with a delay, hopeless events go to the dead letters with their
reason, a handler that breaks on a batch gets its messages one by one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from faststream import AckPolicy
from faststream.message import StreamMessage
from faststream.nats import PullSub
from nats.aio.msg import Msg

from groundwatch.errors import UNDECODED, DecodeError, GroundwatchError, InputError, TransientError
from groundwatch.runtime import retry
from groundwatch.runtime.bus import Bus, Receipt, Stored, settle
from groundwatch.runtime.dead import DeadLetters
from groundwatch.runtime.logs import logger
from groundwatch.runtime.metrics import Metrics
from groundwatch.runtime.outcomes import replace_dead
from groundwatch.runtime.pull import Pull
from groundwatch.runtime.settings import RetrySettings
from groundwatch.runtime.work import Arrived, Heartbeat, Publication, Result, Work
from groundwatch.topology import HEADER_OUTCOME, ConsumerSpec, parse_subject

E = TypeVar("E")

BUG_ATTEMPTS = 3
"""How often an unexpected exception is tried again before its message counts as poison."""

Handler = Callable[[Sequence[Work[E]]], Awaitable[Sequence[Result | GroundwatchError]]]
"""Takes decoded messages; returns one result for each, in order. An error stands for the whole message;
failures of single protocols stand in the `Result`."""


class Stage(Generic[E]):
    """One durable consumer with its handler, `concurrency` loops of `batch` messages each.

    Several loops on one durable keep a slow message from holding up the others.
    """

    def __init__(
        self,
        *,
        name: str,
        consumer: ConsumerSpec,
        event: Any,
        handler: Handler[E],
        bus: Bus,
        metrics: Metrics,
        retries: RetrySettings,
        batch: int,
        concurrency: int,
    ) -> None:
        self.name = name
        self.consumer = consumer
        self._decoder: msgspec.json.Decoder[E] = msgspec.json.Decoder(event)
        self._handler = handler
        self._bus = bus
        self._metrics = metrics
        self._retries = retries
        self._batch = batch
        self._dead = DeadLetters(bus, name, metrics)
        self._in_flight: set[Arrived] = set()
        metrics.stage(name)
        self._seconds = metrics.stage_seconds.labels(name)
        self._done = metrics.stage_messages.labels(name, "done")
        self.pulls: list[Pull] = []
        self._subscribers: list[Any] = []
        for _ in range(concurrency):
            subscriber = bus.broker.subscriber(
                consumer.filters[0],
                stream=consumer.stream,
                durable=consumer.name,
                pull_sub=PullSub(batch_size=batch, timeout=1.0, batch=True),
                ack_policy=AckPolicy.MANUAL,
                decoder=_raw,
                inbox_prefix=bus.inbox,
                title=consumer.name,
            )
            subscriber(self._consume)
            self._subscribers.append(subscriber)

    async def start(self) -> None:
        """Begin to fetch. The consumer must have been provisioned.

        Raises what the client library does when NATS is away; called again, it goes on from there.
        """
        for subscriber in self._subscribers[len(self.pulls) :]:
            pull = Pull(
                self._bus.client, stream=self.consumer.stream, consumer=self.consumer.name, batch=self._batch
            )
            await pull.start()
            await subscriber.start()
            # Before anything else runs: FastStream's loop must not fetch with the original even once.
            original, subscriber.subscription = subscriber.subscription, pull
            await original.unsubscribe()
            self.pulls.append(pull)

    async def drain(self, patience: float) -> None:
        """Finish what was fetched; hand back what is not done within `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                await asyncio.gather(*(pull.drain() for pull in self.pulls))
        except TimeoutError:
            left = list(self._in_flight)
            logger.warning("stage.handing_back", stage=self.name, messages=len(left))
            for arrived in left:
                await arrived.hand_back(0)
        for subscriber in self._subscribers:
            await subscriber.stop()

    @property
    def in_flight(self) -> int:
        """Messages fetched and not yet answered for."""
        return len(self._in_flight)

    async def _consume(self, messages: list[Msg]) -> None:
        began = time.perf_counter()
        arrivals = [Arrived(message) for message in messages]
        self._in_flight.update(arrivals)
        try:
            with Heartbeat(arrivals, self.consumer.ack_wait / 3):
                works = await self._decode(arrivals)
                if works:
                    await self._settle(works, await self._handle(works))
        except Exception as error:
            # Nothing was acknowledged that is not stored; the server delivers the rest again.
            logger.error("stage.failed", stage=self.name, error=repr(error), exc_info=True)
            await self._hand_back(arrivals, error)
        finally:
            self._in_flight.difference_update(arrivals)
            seconds = time.perf_counter() - began
            for _ in arrivals:
                self._seconds.observe(seconds)

    async def _decode(self, arrivals: list[Arrived]) -> list[Work[E]]:
        works = []
        for arrived in arrivals:
            if arrived.delivered > 1:
                self._metrics.redeliveries.labels(self.name).inc()
            try:
                event = self._decoder.decode(arrived.message.data)
            except UNDECODED as error:
                await self._bury(arrived, None, {}, DecodeError(str(error)))
                continue
            if arrived.delivered > self._retries.attempts + 1:
                # Whoever had it before never answered: it may be what kills them.
                poison = InputError(f"gave up after {arrived.delivered - 1} deliveries without an answer")
                await self._bury(arrived, event, {}, poison)
                continue
            works.append(Work(event, arrived))
        return works

    async def _handle(self, works: list[Work[E]]) -> list[Result | Exception]:
        try:
            results: list[Result | Exception] = list(await self._handler(works))
        except Exception as error:
            if len(works) == 1:
                if not isinstance(error, GroundwatchError):
                    logger.error("stage.bug", stage=self.name, error=repr(error), exc_info=True)
                return [error]
            # One bad message must not take its batch along.
            return [one for work in works for one in await self._handle([work])]
        if len(results) != len(works):
            raise RuntimeError(f"{self.name}: {len(results)} results for {len(works)} messages")
        return results

    async def _settle(self, works: list[Work[E]], results: list[Result | Exception]) -> None:
        # What was judged while the server restarts is not thrown away.
        await self._bus.until_connected(self._bus.publish_timeout)
        sent = [
            [await self._send(one) for one in result.publications] if isinstance(result, Result) else []
            for result in results
        ]
        await settle(receipt for each in sent for _, receipt in each if isinstance(receipt, Receipt))
        for work, result, each in zip(works, results, sent, strict=True):
            failures = result.failures if isinstance(result, Result) else {"": result}
            for publication, receipt in each:
                try:
                    await self._stored(publication, receipt)
                except GroundwatchError as error:
                    failures = {**failures, **_by_protocol(publication, error)}
            if failures:
                await self._answer_failures(work, failures)
            else:
                await work.arrived.ack()
                self._done.inc()

    async def _send(self, publication: Publication) -> tuple[Publication, Receipt | GroundwatchError]:
        try:
            return publication, await self._bus.start_create(publication.outgoing)
        except GroundwatchError as error:
            return publication, error

    async def _stored(self, publication: Publication, receipt: Receipt | GroundwatchError) -> None:
        if isinstance(receipt, GroundwatchError):
            raise receipt
        stored = receipt.result()
        if stored is Stored.EXISTED and HEADER_OUTCOME in publication.outgoing.headers:
            stored = await replace_dead(self._bus, publication.outgoing)
        if stored is Stored.NEW and publication.counted is not None:
            publication.counted()

    async def _answer_failures(self, work: Work[E], failures: dict[str, Exception]) -> None:
        hopeless = {name: error for name, error in failures.items() if self._hopeless(work.arrived, error)}
        passing = [error for name, error in failures.items() if name not in hopeless]
        if passing:
            # The message as a whole goes round again; what is stored already is not stored twice.
            await self._hand_back([work.arrived], passing[0])
            return
        reason = next(iter(hopeless.values()))
        await self._bury(work.arrived, work.event, hopeless, reason)

    def _hopeless(self, arrived: Arrived, error: Exception) -> bool:
        if isinstance(error, InputError):
            return True
        allowed = self._retries.attempts if isinstance(error, TransientError) else BUG_ATTEMPTS
        return arrived.delivered >= allowed

    async def _hand_back(self, arrivals: list[Arrived], error: Exception) -> None:
        for arrived in arrivals:
            if arrived.message._ackd:
                continue
            wait = retry.delay(arrived.delivered, self._retries, error)
            logger.warning(
                "stage.retry",
                stage=self.name,
                attempt=arrived.delivered,
                delay=round(wait, 2),
                error=str(error),
            )
            self._metrics.stage_messages.labels(self.name, "retried").inc()
            await arrived.hand_back(wait)

    async def _bury(
        self, arrived: Arrived, event: E | None, failures: dict[str, Exception], error: Exception
    ) -> None:
        try:
            await self._dead.bury(arrived, event, tuple(name for name in failures if name), error)
        except TransientError as broken:
            await self._hand_back([arrived], broken)
            return
        await arrived.ack()
        self._metrics.stage_messages.labels(self.name, "dead").inc()


def _by_protocol(publication: Publication, error: GroundwatchError) -> dict[str, Exception]:
    address = parse_subject(publication.outgoing.subject)
    return {address.protocol if address else "": error}


async def _raw(message: StreamMessage[list[Msg]]) -> list[Msg]:
    """Hand the messages through as they came: each is decoded, and can fail, on its own."""
    return message.raw_message
