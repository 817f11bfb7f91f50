"""How many responses of a tenant this gateway takes: so that one that floods does not fill the streams of
all."""

import time
from collections import OrderedDict
from collections.abc import Callable

from groundwatch.gateway.refusals import Refused
from groundwatch.runtime.settings.gateway import AdmissionSettings, TenantRate
from groundwatch.runtime.telemetry.metrics import Metrics

RESPONSES, HALVES, IMAGES = "responses", "calls in halves", "images"
"""What is counted, each by itself: what a tenant sends of one takes nothing from the others. Of calls whose
halves come one by one each is counted once, when its first half is kept."""

REMEMBERED = 10_000
"""Tenants whose level is known at once; the one unseen longest is forgotten."""


class TokenBucket:
    """`left` things may be taken at the moment `at`; it fills up at a rate, to a most."""

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at

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
        self._metrics = metrics
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()

    def admit(self, tenant: str, kind: str = RESPONSES) -> Refused | None:
        """Count a response of the tenant, or say why it is not taken now."""
        refused = self.refusal(tenant, kind)
        if refused is None and (rate := self._rate(tenant, kind)) is not None:
            self._bucket(tenant, kind, rate).left -= 1
        return refused

    def refusal(self, tenant: str, kind: str = RESPONSES) -> Refused | None:
        """Why a response of the tenant is not taken now, if it is beyond the rate. Counts nothing."""
        rate = self._rate(tenant, kind)
        if rate is None or (left := self._bucket(tenant, kind, rate).left) >= 1:
            return None
        self._metrics.over_rate(tenant)
        message = f"tenant '{tenant}' may send {rate.rate:g} {kind} a second; send it again later"
        return Refused("rate_limited", message, after=(1 - left) / rate.rate)

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
