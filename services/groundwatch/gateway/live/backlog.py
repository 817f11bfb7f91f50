"""What waits in the streams: whether more is taken, and what Prometheus is told of it."""

import asyncio
import contextlib
import time

import msgspec
import nats.js.errors

from groundwatch.gateway.refusals import Refused
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import DEAD, RESPONSES, ConsumerSpec, consumer
from groundwatch.topology.partitions import consumers, consumers_in

CONSUMER = "extraction"
LOOK_SECONDS = 1.0
SHOW_SECONDS = 5.0
WAIT_SECONDS = 0.1


class Backlog(SupervisedTask):
    """What waits for extraction: looked up every second, with what was sent since added."""

    def __init__(self, bus: Bus, limit: int) -> None:
        super().__init__("gateway-backlog", self._watch)
        self._bus = bus
        self._limit = limit
        self._waiting = 0
        self._sent = 0
        self._closing = False
        self._unseen = ""

    def close(self) -> None:
        """Take nothing more, and let nobody wait: who is asked from now on refuses."""
        self._closing = True

    def sent(self) -> None:
        self._sent += 1

    @property
    def problem(self) -> str:
        return self._unseen or super().problem

    def refusal(self) -> Refused | None:
        if self._closing:
            return Refused(reason="unavailable", message="the gateway is going down; send it again")
        if self._waiting + self._sent > self._limit:
            message = f"more than {self._limit} responses wait to be judged; send it again later"
            return Refused(reason="backlog", message=message)
        return None

    async def room(self, deadline: float) -> Refused | None:
        """Wait for room, at most until `deadline` (of the monotonic clock); why there is none then."""
        while True:
            refusal = self.refusal()
            if refusal is None or self._closing or time.monotonic() >= deadline:
                return refusal
            await asyncio.sleep(WAIT_SECONDS)

    async def look(self) -> None:
        before = self._sent
        specs = consumers_in(consumer(CONSUMER), self._bus.partitions)
        try:
            infos = await asyncio.gather(
                *(self._bus.js.consumer_info(spec.stream, spec.name) for spec in specs)
            )
        except nats.js.errors.NotFoundError:
            # Recording is still safe: the consumer, once made, begins with the first response.
            self._unseen = (
                f"consumer {CONSUMER} or stream {RESPONSES} does not exist: run groundwatch admin provision"
            )
            return
        except FAULTS as error:
            self._unseen = f"NATS does not answer: {error!r}"
            return
        self._unseen = ""
        self._waiting = sum(info.num_pending or 0 for info in infos)
        self._sent -= before

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)


class WaitingFor(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a consumer and what is in work there, in events, and how many calls ask for more. One
    that is not `there` has yet to be provisioned."""

    service: str
    waiting: int = 0
    in_work: int = 0
    asking: int = 0
    there: bool = True


class StreamGauges(SupervisedTask):
    """Looks at consumers and dead letters every few seconds. What cannot be seen is not shown.

    It is the gateway's, since a stage that is scaled to zero, or that has died, cannot say what waits for it.
    """

    def __init__(self, bus: Bus, metrics: Metrics) -> None:
        super().__init__("gateway-gauges", self._watch)
        self._bus = bus
        self._metrics = metrics
        self._blind = False
        self.waiting: dict[str, WaitingFor] = {}
        """By consumer, as it was seen last."""

    async def look(self) -> None:
        """Ask the server once. Raises what NATS raises."""
        for spec in consumers(self._bus.partitions):
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
            self.waiting[spec.name] = WaitingFor(service=spec.service, there=False)
            metrics.consumer_up.labels(spec.name).set(0)
            for gauge in (metrics.consumer_lag, metrics.consumer_pulls, metrics.consumer_delivered):
                with contextlib.suppress(KeyError):
                    gauge.remove(*labels)
            return
        metrics.consumer_up.labels(spec.name).set(1)
        metrics.consumer_lag.labels(*labels).set((info.num_pending or 0) + (info.num_ack_pending or 0))
        metrics.consumer_pulls.labels(*labels).set(info.num_waiting or 0)
        self.waiting[spec.name] = WaitingFor(
            service=spec.service,
            waiting=info.num_pending or 0,
            in_work=info.num_ack_pending or 0,
            asking=info.num_waiting or 0,
        )
        metrics.consumer_delivered.labels(*labels).set(info.delivered.consumer_seq if info.delivered else 0)

    async def _watch(self) -> None:
        while True:
            try:
                await self.look()
                self._blind = False
            except FAULTS as error:
                # A number that nobody has seen for a while is worse than none.
                self.waiting.clear()
                self._metrics.consumer_lag.clear()
                self._metrics.consumer_pulls.clear()
                if not self._blind:
                    logger.warning("gateway.gauges", error=repr(error))
                self._blind = True
            await asyncio.sleep(SHOW_SECONDS)
