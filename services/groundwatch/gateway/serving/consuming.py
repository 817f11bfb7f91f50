"""Messages of a durable consumer, each acknowledged only when it needs to come no more."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from nats.aio.msg import Msg

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.pull import PullSubscriber
from groundwatch.runtime.delivery.work import Arrived, Heartbeat
from groundwatch.runtime.telemetry.logs import logger

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
