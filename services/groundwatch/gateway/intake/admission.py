"""How many responses of a tenant are taken: so that one that floods does not fill the streams of all.

A tenant's rate holds over all gateways: they share one level for each tenant in a bucket, and each takes from
it ahead of need, by compare-and-set. Nothing is asked of the server response by response.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec
import nats.js.errors
from nats.js.kv import KeyValue

from groundwatch.errors import UNDECODED
from groundwatch.gateway.refusals import Refused
from groundwatch.keys import digest
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import FAULTS
from groundwatch.runtime.settings.gateway import AdmissionSettings, TenantRate
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import ADMISSION_BUCKET

LEASE_SECONDS = 0.25
"""A gateway takes as many at once as come in so long."""

RACES = 20
RACE_SECONDS = 0.05
SKEW_SECONDS = 5.0
"""Gateways' clocks may differ by so much: beyond that they let more through than the rate."""

RESPONSES, HALVES, IMAGES = "responses", "calls in halves", "images"
"""What is counted, each by itself: what a tenant sends of one takes nothing from the others. Of calls whose
halves come one by one each is counted once, when its first half is kept."""

SHARES = 10_000
"""Tenants that a gateway remembers; what it holds for the one unseen longest is lost."""


class Level(msgspec.Struct, frozen=True):
    """How many more responses of a tenant may be taken at the moment `at`, in seconds since the epoch."""

    left: float
    at: float


class Share:
    """What one gateway holds for one tenant. `again` is before when there is nothing more to be had."""

    def __init__(self) -> None:
        self.held = 0
        self.again = 0.0
        self.leasing = asyncio.Lock()


class Admission:
    """Takes responses up to the rate. `clock` gives seconds since 1970."""

    def __init__(
        self,
        settings: AdmissionSettings,
        bus: Bus,
        metrics: Metrics,
        *,
        most_images: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """A tenant may send `most_images` times as many images as responses."""
        self._of = settings.tenants
        self._most_images = most_images
        self._usual = TenantRate(rate=settings.rate, burst=settings.burst) if settings.rate else None
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._store: KeyValue | None = None
        self._shares: OrderedDict[tuple[str, str], Share] = OrderedDict()
        self._fault = ""

    @property
    def notes(self) -> list[str]:
        return [self._fault] if self._fault else []

    async def admit(self, tenant: str, kind: str = RESPONSES) -> Refused | None:
        """Count a response of the tenant, or say why it is not taken now."""
        refused = await self.refusal(tenant, kind)
        if refused is None and self._rate(tenant, kind) is not None:
            self._share(tenant, kind).held -= 1
        return refused

    async def refusal(self, tenant: str, kind: str = RESPONSES) -> Refused | None:
        """Why a response of the tenant is not taken now, if it is beyond the rate. Counts nothing."""
        rate = self._rate(tenant, kind)
        if rate is None:
            return None
        share = self._share(tenant, kind)
        if self._may_ask(share, rate):
            async with share.leasing:
                if self._may_ask(share, rate):
                    await self._lease(tenant, kind, rate, share)
        if share.held >= 1:
            return None
        after = max(0.0, share.again - self._clock())
        self._metrics.over_rate(tenant)
        return Refused(
            reason="rate_limited",
            message=f"tenant '{tenant}' may send {rate.rate:g} {kind} a second; send it again later",
            after=after,
        )

    def _may_ask(self, share: Share, rate: TenantRate) -> bool:
        """Whether there may be more to be had. A longer wait than for one is of a wrong clock."""
        longest = max(1 / rate.rate, RACE_SECONDS)
        return share.held < 1 and not 0 < share.again - self._clock() <= longest

    def give_back(self, tenant: str) -> None:
        """A response that was counted had been there before, or was not recorded."""
        if (rate := self._rate(tenant)) is not None:
            share = self._share(tenant)
            share.held = min(share.held + 1, rate.most)

    def _rate(self, tenant: str, kind: str = RESPONSES) -> TenantRate | None:
        rate = self._of.get(tenant, self._usual)
        if rate is None or kind != IMAGES:
            return rate
        return TenantRate(rate=rate.rate * self._most_images, burst=rate.most * self._most_images)

    def _share(self, tenant: str, kind: str = RESPONSES) -> Share:
        share = self._shares.get((tenant, kind))
        if share is None:
            share = self._shares[tenant, kind] = Share()
            if len(self._shares) > SHARES:
                self._shares.popitem(last=False)
        self._shares.move_to_end((tenant, kind))
        return share

    async def _lease(self, tenant: str, kind: str, rate: TenantRate, share: Share) -> None:
        """Take from what all gateways share. Where that cannot be asked, all is taken, and `notes` say so."""
        try:
            share.held, share.again = await self._taken(tenant, kind, rate)
            self._fault = ""
        except nats.js.errors.NotFoundError:
            self._store = None
            self._unlimited(share, rate, f"no bucket {ADMISSION_BUCKET}: run groundwatch admin provision")
        except FAULTS as error:
            self._unlimited(share, rate, repr(error))

    def _unlimited(self, share: Share, rate: TenantRate, why: str) -> None:
        if not self._fault:
            logger.warning("gateway.admission", problem=why)
        self._fault = f"tenants' rates (gateway.admission) are not held: {why}"
        share.held = max(1, math.floor(rate.rate * LEASE_SECONDS))

    async def _taken(self, tenant: str, kind: str, rate: TenantRate) -> tuple[int, float]:
        """How many, and before when there are no more."""
        if self._store is None:
            self._store = await self._bus.js.key_value(ADMISSION_BUCKET)
        key = digest("admission", kind, tenant)[:32]
        for _ in range(RACES):
            now = self._clock()
            level, revision = await _level(self._store, key)
            if level is None:
                level = Level(float(rate.most), now)
            # Clocks differ a little: one that is behind fills nothing up. What is far ahead was wrong.
            wrong = level.at > now + SKEW_SECONDS
            at = now if wrong else max(level.at, now)
            left = min(float(rate.most), level.left + max(0.0, at - level.at) * rate.rate)
            taken = min(math.floor(left), max(1, math.floor(rate.rate * LEASE_SECONDS)))
            again = 0.0 if taken else now + (1 - left) / rate.rate
            # A wrong time is put right also by who takes nothing: nothing comes in before it is.
            if taken or wrong:
                try:
                    await self._store.update(key, msgspec.json.encode(Level(left - taken, at)), revision)
                except nats.js.errors.KeyWrongLastSequenceError:
                    continue
            return taken, again
        return 0, self._clock() + RACE_SECONDS


async def _level(store: KeyValue, key: str) -> tuple[Level | None, int]:
    """What is left, with the revision to write over; None where nobody has counted, or it cannot be read."""
    try:
        entry = await store.get(key)
    except nats.js.errors.KeyNotFoundError as error:
        gone = error.entry
        return None, (gone.revision if gone is not None else 0) or 0
    try:
        return msgspec.json.decode(entry.value or b"", type=Level), entry.revision or 0
    except UNDECODED:
        return None, entry.revision or 0
