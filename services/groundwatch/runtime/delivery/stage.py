"""The loop that every stage runs: fetch, decode, handle, publish the results, then acknowledge.

What a handler must know is in `work.Handler`; what can go wrong is dealt with here, once for all stages:

    the judge or NATS is away   the event waits in hand, nothing more is fetched, and it is handled again
    a fault that passes         a failed attempt: back to the server with a delay, a dead letter in the end
    a bug, or no end to it      a failed attempt too, of which fewer are allowed
    a permanent fault           a dead letter with its reason, at once

A handler that breaks on a batch gets its messages one by one.
"""

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import nats.errors
from nats.aio.msg import Msg

from groundwatch.errors import (
    UNDECODED,
    DecodeError,
    GroundwatchError,
    InputError,
    TransientError,
    Unavailable,
    words,
)
from groundwatch.events import Event
from groundwatch.models.asking import ASKED_FOR
from groundwatch.runtime.delivery.away import AwayJudges
from groundwatch.runtime.delivery.bus import Bus, Outgoing, Receipt, Stored, wait_acks
from groundwatch.runtime.delivery.dead_letters import DeadLetters
from groundwatch.runtime.delivery.outcomes import contradiction, replace_dead, replacing_archived
from groundwatch.runtime.delivery.pull import PullSubscriber
from groundwatch.runtime.delivery.work import (
    Arrived,
    AttemptCounts,
    Delivery,
    Handler,
    Heartbeat,
    Kind,
    Result,
    Work,
    WorkClock,
    handled,
)
from groundwatch.runtime.settings import RetrySettings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import HEADER_OUTCOME, ConsumerSpec, parse_subject

E = TypeVar("E", bound=Event)

BUG_ATTEMPTS = 3
"""How often an unexpected exception is tried again before its message counts as poison."""

BEATS = 3
"""How often in an acknowledgement wait the server is told that work goes on."""

NATS_PAUSE = 10.0
"""Longest pause in seconds before NATS is tried again."""

NATS_TRIES = 50
"""After so many, an event that NATS will not take the results of makes room for another."""


class Stage(Generic[E]):
    """One durable consumer with its handler, `concurrency` loops of `batch` messages each.

    Several loops on one durable keep a slow message from holding up the others. `timeout` is for the handling
    of one batch, or of one message of a batch that took longer, in seconds. `receiver` is who is told of the
    events, where they are on their way out.
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
        timeout: float,
        judges: AwayJudges,
        receiver: str = "",
    ) -> None:
        self.name = name
        self.consumer = consumer
        self._decoder: msgspec.json.Decoder[E] = msgspec.json.Decoder(event)
        self._handler = handler
        self._bus = bus
        self._metrics = metrics
        self._retries = retries
        self._dead = DeadLetters(bus, name, metrics, receiver)
        self._counts = AttemptCounts(bus, consumer.name)
        self._clock = WorkClock(name, metrics, timeout)
        self._judges = judges
        self._in_flight: set[Arrived] = set()
        self._draining = asyncio.Event()
        self._progress = asyncio.Event()
        metrics.stage(name)
        self._seconds = metrics.stage_seconds.labels(name)
        self._done = metrics.stage_messages.labels(name, "done")
        self.pulls = [
            PullSubscriber(
                bus.broker,
                stream=consumer.stream,
                consumer=consumer.name,
                subject=consumer.filters[0],
                batch=batch,
                handler=self._consume,
            )
            for _ in range(concurrency)
        ]

    async def start(self) -> None:
        """Begin to fetch. The consumer must have been provisioned."""
        for pull in self.pulls:
            await pull.start()

    async def drain(self, timeout: float) -> None:
        """Finish what was fetched; hand back what waits for a judge, and what is not done in `timeout` s."""
        self._draining.set()
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(pull.drain() for pull in self.pulls if pull.running))
        except TimeoutError:
            left = list(self._in_flight)
            logger.warning("stage.handing_back", stage=self.name, messages=len(left))
            await self._hand_back(left, Unavailable("the stage stops"))
        for pull in self.pulls:
            await pull.stop()

    @property
    def in_flight(self) -> int:
        """Messages fetched and not yet answered for."""
        return len(self._in_flight)

    def problems(self) -> list[str]:
        return self._clock.problems()

    async def _consume(self, messages: list[Msg]) -> None:
        began = time.perf_counter()
        arrivals = [Arrived(message) for message in messages]
        self._in_flight.update(arrivals)
        waited = 0.0
        try:
            with Heartbeat(arrivals, self.consumer.ack_wait / BEATS):
                await self._read_attempts(arrivals)
                waited = await self._work_at(arrivals)
        finally:
            self._in_flight.difference_update(arrivals)
            seconds = time.perf_counter() - began - waited
            for arrived in arrivals:
                self._seconds.observe(seconds)
                if arrived.span is not None:
                    arrived.span.end()

    async def _work_at(self, arrivals: list[Arrived]) -> float:
        """Bring each to an answer; returns how many seconds of that were only waited."""
        waited = 0.0
        try:
            self._begin_spans(arrivals)
            works = await self._decode(arrivals)
            while works:
                waiting = await self._finalize(works, await handled(self.name, self._handle, works))
                before = time.perf_counter()
                works = await self._wait(waiting)
                waited += time.perf_counter() - before
        except Exception as error:
            # Nothing was acknowledged that is not stored.
            logger.error("stage.failed", stage=self.name, error=repr(error), exc_info=True)
            await self._answer_bug([arrived for arrived in arrivals if not arrived.answered], error)
        return waited

    async def _answer_bug(self, arrivals: list[Arrived], error: Exception) -> None:
        """Count an attempt of the event that the loop itself broke over, found by trying one by one."""
        if isinstance(error, nats.errors.Error | OSError):
            await self._hand_back(arrivals, Unavailable(words(error)))
        elif len(arrivals) > 1:
            for arrived in arrivals:
                await self._work_at([arrived])
        elif arrivals and self._is_permanent(arrivals[0], error):
            await self._bury(arrivals[0], None, {}, error)
        else:
            await self._hand_back(arrivals, error)

    def _begin_spans(self, arrivals: list[Arrived]) -> None:
        if (traces := self._bus.traces) is None:
            return
        for arrived in arrivals:
            if arrived.span is None:
                arrived.span = traces.begin(f"{self.name} process", arrived.origin, arrived.headers)
                arrived.trace = traces.headers(arrived.span) if arrived.span is not None else {}

    def _fail_span(self, arrived: Arrived, error: Exception) -> None:
        if self._bus.traces is not None and arrived.span is not None:
            self._bus.traces.fail(arrived.span, error)

    async def _read_attempts(self, arrivals: list[Arrived]) -> None:
        if again := [arrived for arrived in arrivals if arrived.delivered > 1]:
            self._metrics.redeliveries.labels(self.name).inc(len(again))
            for arrived, attempts in zip(
                again, await asyncio.gather(*map(self._counts.of, again)), strict=True
            ):
                arrived.attempts = attempts

    async def _decode(self, arrivals: list[Arrived]) -> list[Delivery[E]]:
        works = []
        for arrived in arrivals:
            try:
                event = self._decoder.decode(arrived.message.data)
            except UNDECODED as error:
                await self._bury(arrived, None, {}, DecodeError(str(error)))
                continue
            unanswered = arrived.attempts.unanswered(arrived.delivered)
            if unanswered > self._retries.attempts:
                # Whoever had it before never answered: it may be what kills them.
                poison = InputError(f"gave up after {unanswered} deliveries without an answer")
                await self._bury(arrived, event, {}, poison)
                continue
            if why := contradiction(arrived.address, event):
                await self._bury(arrived, event, {}, InputError(why))
                continue
            works.append(Delivery(event, arrived))
        return works

    async def _handle(self, works: Sequence[Work[E]]) -> Sequence[Result | GroundwatchError]:
        """Let the handler work at these, no longer than it may."""
        arrivals = [work.arrived for work in works if isinstance(work, Delivery)]
        for arrived in arrivals:
            arrived.handled += 1
            arrived.handled_at = time.monotonic()
        ASKED_FOR.set(arrivals[0].key if len(arrivals) == 1 else "")
        if self._bus.traces is not None:
            self._bus.traces.working_at([arrived.span for arrived in arrivals])
        return await self._clock.within(self._handler(works), arrivals)

    async def _finalize(
        self, works: list[Delivery[E]], results: list[Result | Exception]
    ) -> list[tuple[Delivery[E], Unavailable]]:
        """Store and answer for what has a result; what waits for a judge or for NATS is returned."""
        results = [
            result.carrying(carried)
            if isinstance(result, Result) and (carried := work.arrived.carried)
            else result
            for work, result in zip(works, results, strict=True)
        ]
        # What was judged while the server restarts is not thrown away.
        await self._bus.until_connected(self._bus.publish_timeout)
        failures = [
            dict(result.failures) if isinstance(result, Result) else {"": result} for result in results
        ]
        await self._store(results, failures)
        waiting = []
        for work, failed in zip(works, failures, strict=True):
            if not failed:
                await work.arrived.ack()
                self._done.inc()
                self._clock.ended(work.arrived)
            elif (error := await self._answer_failures(work, failed)) is not None:
                waiting.append((work, error))
                continue
            if self._judges.away:
                self._judges.answered(work.arrived.key)
                self._progress.set()
                self._progress = asyncio.Event()
        return waiting

    async def _store(
        self, results: Sequence[Result | Exception], failures: list[dict[str, Exception]]
    ) -> None:
        """Store all that the results publish; what cannot be is added to the failures of its result.

        While NATS is away the results are kept, so that no judge is asked for them twice.
        """
        left = [
            (index, publication)
            for index, result in enumerate(results)
            if isinstance(result, Result)
            for publication in result.publications
        ]
        tries = 0
        going_on = True
        while left:
            sent = [(index, publication, await self._send(publication)) for index, publication in left]
            await wait_acks(receipt for _, _, receipt in sent if isinstance(receipt, Receipt))
            left = []
            for index, publication, receipt in sent:
                try:
                    await self._stored(publication, receipt)
                except GroundwatchError as error:
                    if not isinstance(error, Unavailable) or not going_on or tries >= NATS_TRIES:
                        address = parse_subject(publication.subject)
                        failures[index][address.protocol if address else ""] = error
                        continue
                    left.append((index, publication))
                    why = str(error)
            if left:
                tries += 1
                if tries == 1:
                    logger.warning("stage.cannot_publish", stage=self.name, error=why)
                going_on = await self._rest(min(self._retries.delay(tries), NATS_PAUSE))

    async def _send(self, publication: Outgoing) -> Receipt | GroundwatchError:
        try:
            return await self._bus.start_create(replacing_archived(publication))
        except GroundwatchError as error:
            return error

    async def _stored(self, publication: Outgoing, receipt: Receipt | GroundwatchError) -> None:
        if isinstance(receipt, GroundwatchError):
            raise receipt
        stored = receipt.result()
        if stored is Stored.EXISTED and HEADER_OUTCOME in publication.headers:
            stored = await replace_dead(self._bus, publication)
        if stored is Stored.NEW and publication.counted is not None:
            publication.counted()

    async def _answer_failures(self, work: Delivery[E], failures: dict[str, Exception]) -> Unavailable | None:
        """Bury what fails for good, hand back what may yet pass; returns what is only to be waited for."""
        permanent = {
            name: error for name, error in failures.items() if self._is_permanent(work.arrived, error)
        }
        retryable = [error for name, error in failures.items() if name not in permanent]
        if permanent:
            reason = next(iter(permanent.values()))
            if not await self._bury(work.arrived, work.event, permanent, reason, ack=not retryable):
                return None
        for error in retryable:
            if not isinstance(error, Unavailable):
                # The message as a whole goes round again; what is stored already is not done twice.
                await self._hand_back([work.arrived], error)
                return None
        return next((error for error in retryable if isinstance(error, Unavailable)), None)

    def _is_permanent(self, arrived: Arrived, error: Exception) -> bool:
        """Whether this failed attempt was the last. Deliveries are no attempts: see `Attempts`."""
        match error:
            case InputError():
                return True
            case Unavailable():
                return False
            case TransientError():
                return arrived.attempts.faults + 1 >= self._retries.attempts
        return arrived.attempts.bugs + 1 >= BUG_ATTEMPTS

    async def _wait(self, waiting: list[tuple[Delivery[E], Unavailable]]) -> list[Delivery[E]]:
        """Those to be handled again, when it is worth it. Until then this loop fetches nothing.

        One that was let through to a judge that is still away makes room: the next trial is another event's,
        so that no event can pass for an outage. So does one whose judge is away while others answer.
        """
        for work, error in waiting:
            seconds = time.monotonic() - work.arrived.handled_at
            self._judges.found_away(work.arrived.key, error, seconds)
        kept = []
        for work, error in waiting:
            elsewhere = bool(error.judge) and not self._judges.nobody_answers
            if error.trial or elsewhere or (work.arrived.handled > NATS_TRIES and not error.judge):
                await self._hand_back([work.arrived], error)
            else:
                kept.append((work, error))
        if not kept:
            return []
        seconds = max(self._pause(work.arrived, error) for work, error in kept)
        if await self._rest(seconds, early=all(error.wakes for _, error in kept)):
            return [work for work, _ in kept]
        for work, error in kept:
            await self._hand_back([work.arrived], error)
        return []

    def _pause(self, arrived: Arrived, error: Unavailable) -> float:
        if error.retry_after is not None:
            return error.retry_after * random.uniform(1.0, 1.1) + 0.01
        pause = self._retries.delay(arrived.handled)
        return pause if error.judge else min(pause, NATS_PAUSE)

    def _turn(self, arrived: Arrived, error: Unavailable) -> float:
        """Until an event that made room comes back: all that wait, and one that is new, come first.

        No longer than `max_delay`, but for those that come back again and again.
        """
        pause = self._pause(arrived, error)
        if not error.trial:
            return pause
        longest = self._retries.max_delay * (1 + arrived.attempts.released)
        return max(pause, min(self._judges.round(error.judge, pause), longest))

    async def _rest(self, seconds: float, *, early: bool = False) -> bool:
        """Sleep, with `early` until somebody's judge has answered. False when the stage is to stop."""
        events = [self._draining, self._progress] if early else [self._draining]
        tasks = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        return not self._draining.is_set()

    async def _hand_back(self, arrivals: Iterable[Arrived], error: Exception) -> None:
        await asyncio.gather(*(self._hand_one_back(one, error) for one in arrivals if not one.answered))

    async def _hand_one_back(self, arrived: Arrived, error: Exception) -> None:
        self._fail_span(arrived, error)
        kind: Kind
        match error:
            case Unavailable():
                kind, result = "released", "handed_back"
                wait = 0.0 if self._draining.is_set() else self._turn(arrived, error)
            case _:
                kind, result = "faults" if isinstance(error, TransientError) else "bugs", "retried"
                wait = self._retries.delay(arrived.attempts.failed + 1)
                logger.warning(
                    "stage.retry",
                    stage=self.name,
                    attempt=arrived.attempts.failed + 1,
                    delay=round(wait, 2),
                    error=str(error),
                )
        self._metrics.stage_messages.labels(self.name, result).inc()
        # First the count: it is read by whoever gets the message next.
        arrived.attempts = arrived.attempts.plus(kind)
        await self._counts.put(arrived, arrived.attempts)
        await arrived.hand_back(wait)

    async def _bury(
        self,
        arrived: Arrived,
        event: E | None,
        failures: dict[str, Exception],
        error: Exception,
        *,
        ack: bool = True,
    ) -> bool:
        """Write the dead letter of these failures; with `ack` the message is done with. False: not now."""
        self._fail_span(arrived, error)
        try:
            await self._dead.bury(arrived, event, tuple(name for name in failures if name), error)
        except TransientError as broken:
            await self._hand_back([arrived], broken)
            return False
        if ack:
            await arrived.ack()
            self._clock.ended(arrived)
            self._metrics.stage_messages.labels(self.name, "dead").inc()
        return True
