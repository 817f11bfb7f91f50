"""Whether more is taken: how many responses of a tenant, so that one that floods does not fill the streams of
all, and how many may wait to be judged."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec
import nats.js.errors

from groundwatch.errors import words
from groundwatch.gateway.refusals import Refused
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings.gateway import AdmissionSettings, TenantRate
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import consumer
from groundwatch.topology.partitions import consumers_in

RESPONSES, HALVES, IMAGES = "responses", "calls in halves", "images"
"""What is counted, each by itself: what a tenant sends of one takes nothing from the others. Of calls whose
halves come one by one each is counted once, when its first half is kept."""

REMEMBERED = 10_000
"""Tenants whose level is known at once; the one unseen longest is forgotten."""


class TokenBucket(msgspec.Struct):
    """`left` things may be taken at the moment `at`; it fills up at a rate, to a most."""

    left: float
    at: float

    def fill(self, rate: TenantRate, now: float) -> None:
        self.left = min(float(rate.most), self.left + (now - self.at) * rate.rate)
        self.at = now


class Admission:
    """Takes responses up to the rate. `clock` gives seconds that never go back."""

    def __init__(
        self,
        settings: AdmissionSettings,
        metrics: Metrics,
        *,
        most_images: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A tenant may send `most_images` times as many images as responses."""
        self._of = settings.tenants
        self._most_images = most_images
        self._usual = TenantRate(rate=settings.rate, burst=settings.burst) if settings.rate else None
        self._rated = bool(self._of or self._usual)
        self._metrics = metrics
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()

    def admit(self, tenant: str, kind: str = RESPONSES, *, id: str = "") -> None:
        """Count a response of the tenant. Raises as `check` does."""
        if self._rated and (bucket := self.check(tenant, kind, id=id)) is not None:
            bucket.left -= 1

    def check(self, tenant: str, kind: str = RESPONSES, *, id: str = "") -> TokenBucket | None:
        """What a response of the tenant is taken from, None where there is no rate; counts nothing. Raises
        `Refused` for one that is beyond the rate now."""
        if (rate := self._rate(tenant, kind)) is None:
            return None
        bucket = self._bucket(tenant, kind, rate)
        if bucket.left >= 1:
            return bucket
        self._metrics.over_rate(tenant)
        message = f"tenant '{tenant}' may send {rate.rate:g} {kind} a second; send it again later"
        raise Refused("rate_limited", message, id=id, after=(1 - bucket.left) / rate.rate)

    def give_back(self, tenant: str) -> None:
        """A response that was counted had been there before, or was not recorded."""
        if (rate := self._rate(tenant)) is not None:
            bucket = self._bucket(tenant, RESPONSES, rate)
            bucket.left = min(bucket.left + 1, rate.most)

    def _rate(self, tenant: str, kind: str = RESPONSES) -> TenantRate | None:
        rate = self._of.get(tenant, self._usual)
        if rate is None or kind != IMAGES:
            return rate
        return TenantRate(rate=rate.rate * self._most_images, burst=rate.most * self._most_images)

    def _bucket(self, tenant: str, kind: str, rate: TenantRate) -> TokenBucket:
        """As of now."""
        now = self._clock()
        bucket = self._buckets.setdefault((tenant, kind), TokenBucket(float(rate.most), now))
        self._buckets.move_to_end((tenant, kind))
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        bucket.fill(rate, now)
        return bucket


CONSUMER = "extraction"
BACKLOG_SECONDS = 1.0
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
            return Refused("unavailable", "the gateway is going down; send it again")
        if self._waiting + self._sent > self._limit:
            message = f"more than {self._limit} responses wait to be judged; send it again later"
            return Refused("backlog", message)
        return None

    async def room(self, deadline: float = 0.0) -> None:
        """Wait for room, at most until `deadline` (of the monotonic clock). Raises `Refused` where there is
        none then."""
        while (refusal := self.refusal()) is not None:
            if self._closing or time.monotonic() >= deadline:
                raise refusal.but()
            await asyncio.sleep(WAIT_SECONDS)

    async def look(self) -> None:
        before = self._sent
        specs = list(consumers_in(consumer(CONSUMER), self._bus.partitions))
        try:
            infos = await asyncio.gather(
                *(self._bus.js.consumer_info(spec.stream, spec.name) for spec in specs)
            )
        except nats.js.errors.NotFoundError:
            # Recording is still safe: the consumer, once made, begins with the first response.
            missing = f"consumer {CONSUMER} or stream {specs[0].stream} does not exist"
            self._unseen = f"{missing}: run groundwatch admin provision"
            return
        except FAULTS as error:
            self._unseen = f"NATS does not answer: {words(error)}"
            return
        self._unseen = ""
        self._waiting = sum(info.num_pending or 0 for info in infos)
        self._sent -= before

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(BACKLOG_SECONDS)
