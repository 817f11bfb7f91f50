"""What Prometheus is told of the streams: by the gateway, which is there when a stage has no process at all.

A stage that is scaled to zero, or that has died, cannot say what waits for it. So each gateway looks at
every durable consumer and at the dead letters; several gateways say the same.
"""

import asyncio
import contextlib
from typing import Protocol

import nats.errors
import nats.js.errors

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import CONSUMERS, DEAD, ConsumerSpec

LOOK_SECONDS = 5.0


class Gauges(Protocol):
    """What looks at the streams again and again, and tells Prometheus."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    @property
    def problem(self) -> str:
        """Why nobody looks; empty while somebody does."""
        ...


class StreamGauges(SupervisedTask):
    """Looks at consumers and dead letters every few seconds. What cannot be seen is not shown."""

    def __init__(self, bus: Bus, metrics: Metrics) -> None:
        super().__init__("gateway-gauges", self._watch)
        self._bus = bus
        self._metrics = metrics
        self._blind = False

    async def look(self) -> None:
        """Ask the server once. Raises what NATS raises."""
        for spec in CONSUMERS:
            await self._look_at(spec)
        with contextlib.suppress(nats.js.errors.NotFoundError):
            letters = (await self._bus.js.stream_info(DEAD)).state.messages
            self._metrics.dead_letters_waiting.set(letters)

    async def _look_at(self, spec: ConsumerSpec) -> None:
        labels = (spec.service, spec.name)
        metrics = self._metrics
        try:
            info = await self._bus.js.consumer_info(spec.stream, spec.name)
        except nats.js.errors.NotFoundError:
            metrics.consumer_up.labels(spec.name).set(0)
            for gauge in (metrics.consumer_lag, metrics.consumer_pulls, metrics.consumer_delivered):
                with contextlib.suppress(KeyError):
                    gauge.remove(*labels)
            return
        metrics.consumer_up.labels(spec.name).set(1)
        metrics.consumer_lag.labels(*labels).set((info.num_pending or 0) + (info.num_ack_pending or 0))
        metrics.consumer_pulls.labels(*labels).set(info.num_waiting or 0)
        metrics.consumer_delivered.labels(*labels).set(info.delivered.consumer_seq if info.delivered else 0)

    async def _watch(self) -> None:
        while True:
            try:
                await self.look()
                self._blind = False
            except (nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError) as error:
                # A number that nobody has seen for a while is worse than none.
                self._forget()
                if not self._blind:
                    logger.warning("gateway.gauges", error=repr(error))
                self._blind = True
            await asyncio.sleep(LOOK_SECONDS)

    def _forget(self) -> None:
        for gauge in (self._metrics.consumer_lag, self._metrics.consumer_pulls):
            gauge.clear()
