"""Responses that are published on `gw.intake.<tenant>`: whoever may publish there needs no HTTP.

The subject says whose a response is, since NATS lets a tenant's user publish on no other. What stands in the
headers is whatever the sender wrote, and means nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from nats.aio.msg import Msg

from groundwatch.errors import DecodeError, GroundwatchError, InputError, TransientError
from groundwatch.gateway.auth import Caller
from groundwatch.gateway.core import GatewayCore
from groundwatch.gateway.intake.submissions import Submission, read_submission
from groundwatch.gateway.refusals import ANSWER_SECONDS, Refused
from groundwatch.keys import digest
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.dead_letters import DeadLetters
from groundwatch.runtime.delivery.pull import PullSubscriber
from groundwatch.runtime.delivery.work import Arrived, Heartbeat
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import GATEWAY, RETRY, consumer

BATCH = 8
LOOPS = 2
"""With `BATCH`, as many messages are held at once as one server's max_payload allows to be large."""

BEATS = 3
AGAIN_SECONDS = 5.0
"""After which the server delivers again what could not be recorded for no fault of its own."""

SILENCE_SECONDS = 30.0


class Later(Exception):
    """The message is to come again, in so many seconds: nothing is wrong with it."""

    def __init__(self, seconds: float = AGAIN_SECONDS) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Consuming:
    """`take` returns when a message is done with; it raises `Later` for one that is to come again."""

    def __init__(
        self,
        bus: Bus,
        *,
        stream: str,
        consumer: str,
        subject: str,
        ack_wait: float,
        take: Callable[[Msg], Awaitable[None]],
    ) -> None:
        self._consumer = consumer
        self._take = take
        self._ack_wait = ack_wait
        self._pulls = [
            PullSubscriber(
                bus.broker,
                stream=stream,
                consumer=consumer,
                subject=subject,
                batch=BATCH,
                handler=self._consume,
            )
            for _ in range(LOOPS)
        ]
        self._working = 0

    async def start(self) -> None:
        """Begin to fetch. The consumer must be there."""
        for pull in self._pulls:
            await pull.start()

    async def drain(self, timeout: float) -> None:
        """Finish what was fetched in `timeout` seconds; the server delivers the rest again."""
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(pull.drain() for pull in self._pulls if pull.running))
        except TimeoutError:
            logger.warning("gateway.not_drained", consumer=self._consumer)
        for pull in self._pulls:
            await pull.stop()

    @property
    def problem(self) -> str:
        for pull in self._pulls:
            silent = time.monotonic() - pull.last_answer > SILENCE_SECONDS and not self._working
            if pull.problem or silent:
                return f"consumer {self._consumer}: {pull.problem or 'no answer from the server'}"
        return ""

    async def _consume(self, messages: list[Msg]) -> None:
        # Only for what it says to the server: its headers are looked at by whoever knows whose they are.
        arrivals = [Arrived(message, foreign=True) for message in messages]
        self._working += 1
        try:
            with Heartbeat(arrivals, self._ack_wait / BEATS):
                await asyncio.gather(*map(self._one, arrivals))
        finally:
            self._working -= 1

    async def _one(self, arrived: Arrived) -> None:
        try:
            await self._take(arrived.message)
        except Later as later:
            await arrived.hand_back(later.seconds)
        except Exception as error:
            logger.error("gateway.bug", consumer=self._consumer, error=repr(error), exc_info=True)
            await arrived.hand_back(AGAIN_SECONDS)
        else:
            await arrived.ack()


LONGEST_SECONDS = 60.0
"""After which a response of a tenant that sends too much is looked at again, at the latest."""


class SubjectIntake:
    """Records what is published, or makes it a dead letter; takes dead letters that were sent again, too."""

    def __init__(self, core: GatewayCore) -> None:
        self._core = core
        self._dead = DeadLetters(core.bus, GATEWAY, core.metrics)
        core.metrics.stage(GATEWAY)
        self._consuming = [
            Consuming(
                core.bus,
                stream=spec.stream,
                consumer=spec.name,
                subject=spec.filters[0],
                ack_wait=spec.ack_wait,
                take=self._take,
            )
            for spec in (consumer(GATEWAY), consumer(f"{GATEWAY}-retry"))
        ]

    async def start(self) -> None:
        for consuming in self._consuming:
            await consuming.start()

    async def drain(self, timeout: float) -> None:
        await asyncio.gather(*(consuming.drain(timeout) for consuming in self._consuming))

    @property
    def problem(self) -> str:
        return next((consuming.problem for consuming in self._consuming if consuming.problem), "")

    async def _take(self, message: Msg) -> None:
        metadata = message.metadata
        arrived = Arrived(message, foreign=metadata.stream != RETRY)
        if arrived.delivered > 1:
            self._core.metrics.redeliveries.labels(GATEWAY).inc()
        try:
            await self._core.record(partial(self._read, arrived), timeout=ANSWER_SECONDS)
            self._core.metrics.stage_messages.labels(GATEWAY, "done").inc()
        except Refused as error:
            await self._refused(arrived, error)
        except Exception as error:
            logger.error("gateway.bug", subject=arrived.origin, error=repr(error), exc_info=True)
            await self._bury(arrived, error)

    async def _refused(self, arrived: Arrived, refused: Refused) -> None:
        if refused.passing:
            self._core.metrics.stage_messages.labels(GATEWAY, "handed_back").inc()
            # Of a tenant that floods, each comes more rarely, so that the others have their turn.
            again = AGAIN_SECONDS * arrived.delivered if refused.reason == "rate_limited" else AGAIN_SECONDS
            raise Later(min(again, LONGEST_SECONDS))
        if refused.reason == "erased":
            # Kept nowhere: what was erased must not come back as a dead letter.
            logger.info("gateway.erased", subject=arrived.origin, reason=refused.message)
        else:
            await self._bury(arrived, _error(refused))

    def _read(self, arrived: Arrived) -> Submission:
        address = arrived.address
        if address is None or not address.tenant:
            raise Refused("invalid", f"{arrived.origin[:64]} is the subject of no tenant")
        # Delivered again, one without an id must be the same.
        name = digest(arrived.key, str(arrived.stored_at.timestamp()))[:32]
        caller = Caller(address.tenant)
        return read_submission(arrived.message.data, self._core.bounds, caller, name=name)

    async def _bury(self, arrived: Arrived, error: Exception) -> None:
        try:
            await self._dead.bury(arrived, None, (), error)
        except TransientError as away:
            raise Later from away
        self._core.metrics.stage_messages.labels(GATEWAY, "dead").inc()


def _error(refused: Refused) -> GroundwatchError:
    where = f"{refused.field}: " if refused.field else ""
    text = f"{refused.reason}: {where}{refused.message}"
    return DecodeError(text) if refused.reason == "malformed" else InputError(text)
