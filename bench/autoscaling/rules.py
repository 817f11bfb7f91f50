"""What decides how many replicas a stage has: KEDA's lag, KEDA between 0 and 1, Kubernetes' HPA from 1 up.

Pure arithmetic on simulated seconds. Sources: KEDA 2.20's scaler `nats-jetstream` and its scale executor;
the HPA controller's algorithm for an external metric with a target per replica (AverageValue), and its
behaviour rules (KEP-853). Names are those of the manifests.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def lag_threshold(*, target: float, per_replica: float, headroom: float) -> int:
    """Events for each replica that the scaler aims at: floor(target × per_replica × headroom), at least 1.

    `target` is the delay that the stage may add, in seconds; `per_replica` its measured throughput, in events
    a second; `headroom` the share of the target that may pass before another replica helps: what is left is
    for noticing and for starting a pod.
    """
    if target <= 0 or per_replica <= 0 or not 0 < headroom <= 1:
        raise ValueError("target and per_replica must be above 0, headroom above 0 and at most 1")
    return max(1, math.floor(target * per_replica * headroom))


def lag(jsz: Mapping[str, Any], *, stream: str, consumer: str, account: str = "$G") -> int:
    """KEDA's lag of a consumer: num_pending + num_ack_pending, from `/jsz?acc=…&consumers=true&config=true`.

    Raises `LookupError` where the consumer is missing. (KEDA before 2.20.1 took the stream's last sequence
    for it, and scaled to the maximum.)
    """
    for held in jsz.get("account_details", ()):
        if held["name"] != account:
            continue
        for one in held.get("stream_detail", ()):
            for found in one.get("consumer_detail") or ():
                if one["name"] == stream and found["name"] == consumer:
                    return int(found.get("num_pending", 0)) + int(found.get("num_ack_pending", 0))
    raise LookupError(f"no consumer {consumer} on stream {stream} of account {account}")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One HPA policy: at most `pods` or `percent` of the replicas within `period` seconds."""

    period: float
    pods: int = 0
    percent: float = 0


@dataclass(frozen=True, kw_only=True)
class ScaledObject:
    """What a stage's manifest says, in seconds. Of `up` and of `down` the policy that allows most wins."""

    lag_threshold: int
    min_replicas: int = 0
    max_replicas: int = 100
    activation_lag_threshold: int = 0
    polling_interval: float = 30
    cooldown_period: float = 300
    sync_period: float = 15
    tolerance: float = 0.1
    stabilization_down: float = 300
    up: tuple[Policy, ...] = (Policy(period=15, percent=100), Policy(period=15, pods=4))
    down: tuple[Policy, ...] = (Policy(period=15, percent=100),)


def desired(usage: int, *, replicas: int, threshold: int, tolerance: float) -> int:
    """The HPA's number for an external metric with AverageValue: ceil(usage / threshold).

    Unless usage is within `tolerance` of what the present replicas should have: then these.
    """
    if replicas > 0 and abs(1 - usage / (threshold * replicas)) <= tolerance:
        return replicas
    return math.ceil(usage / threshold)


@dataclass
class Hpa:
    """The HorizontalPodAutoscaler that KEDA makes: acts while there is at least one replica."""

    rules: ScaledObject
    _recommended: deque[tuple[float, int]] = field(default_factory=deque)
    _changes: deque[tuple[float, int]] = field(default_factory=deque)

    def sync(self, now: float, usage: int, replicas: int) -> int:
        """The replicas after one sync at `now`."""
        if replicas == 0:
            return 0
        rules = self.rules
        raw = desired(usage, replicas=replicas, threshold=rules.lag_threshold, tolerance=rules.tolerance)
        if not self._recommended:
            self._recommended.append((now, replicas))
        self._recommended.append((now, raw))
        while self._recommended[0][0] < now - rules.stabilization_down:
            self._recommended.popleft()
        wanted = raw
        if raw < replicas:
            wanted = min(replicas, max(one for _, one in self._recommended))
        wanted = max(wanted, rules.min_replicas, 1)
        wanted = min(wanted, rules.max_replicas)
        if wanted > replicas:
            wanted = min(wanted, self._most(now, replicas))
        elif wanted < replicas:
            wanted = max(wanted, self._least(now, replicas))
        if wanted != replicas:
            self._changes.append((now, wanted - replicas))
        return wanted

    def _began_with(self, now: float, period: float, replicas: int) -> int:
        """Replicas at the beginning of a policy's period."""
        return replicas - sum(change for at, change in self._changes if at > now - period)

    def _most(self, now: float, replicas: int) -> int:
        self._forget(now)
        allowed = []
        for policy in self.rules.up:
            base = self._began_with(now, policy.period, replicas)
            more = policy.pods or math.ceil(base * policy.percent / 100)
            allowed.append(base + more)
        return max(replicas, *allowed)

    def _least(self, now: float, replicas: int) -> int:
        self._forget(now)
        allowed = []
        for policy in self.rules.down:
            base = self._began_with(now, policy.period, replicas)
            fewer = policy.pods or math.ceil(base * policy.percent / 100)
            allowed.append(base - fewer)
        return min(replicas, *allowed)

    def _forget(self, now: float) -> None:
        longest = max(policy.period for policy in (*self.rules.up, *self.rules.down))
        while self._changes and self._changes[0][0] <= now - longest:
            self._changes.popleft()


@dataclass
class Keda:
    """KEDA's own part: from 0 to 1 as soon as the trigger is active, to 0 after the cooldown."""

    rules: ScaledObject
    last_active: float | None = None

    def poll(self, now: float, usage: int, replicas: int) -> int:
        """The replicas after one poll at `now`."""
        if usage > self.rules.activation_lag_threshold:
            self.last_active = now
            return replicas or max(self.rules.min_replicas, 1)
        if replicas and self.rules.min_replicas == 0:
            cooled = self.last_active is None or now - self.last_active > self.rules.cooldown_period
            return 0 if cooled else replicas
        return max(replicas, self.rules.min_replicas)
