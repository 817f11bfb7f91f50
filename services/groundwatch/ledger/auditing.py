"""The ledger counted again and again, for Prometheus.

In a process of its own: the first audit reads the headers of every event that is kept, which is no work for a
gateway.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from prometheus_client import CollectorRegistry, Counter, Gauge

from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.tasks import PASSING, until_set
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import declare

Connect = Callable[[], AbstractAsyncContextManager[Bus]]
"""A connection for one audit."""

RETRY_SECONDS = 60.0
"""After an audit that could not be done, unless the next one is due earlier."""

SETTLE_SECONDS = 30.0

STATES = (
    "recorded",
    "scored",
    "unscored",
    "declined",
    "in_flight",
    "unsettled",
    "lost",
    "orphans",
    "expired",
)


class AuditMetrics:
    """What the last complete audit found, for Prometheus."""

    pairs: Gauge
    unaccounted: Gauge
    ended: Gauge
    period: Gauge
    seconds: Gauge
    completed: Counter
    failed: Counter
    sealed: Gauge

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        declare(self, "audit", self.registry)

    def show(self, ledger: Ledger, seconds: float) -> None:
        for state in STATES:
            self.pairs.labels(ledger.run, state).set(getattr(ledger, state))
        self.unaccounted.labels(ledger.run).set(ledger.unaccounted)
        self.seconds.labels(ledger.run).set(seconds)
        self.sealed.labels(ledger.run).set(ledger.sealed_days)
        self.ended.labels(ledger.run).set(time.time())
        self.completed.labels(ledger.run).inc()


async def audit_periodically(
    connect: Connect,
    run_name: str,
    metrics: AuditMetrics,
    every: float,
    stopped: asyncio.Event,
    report: Callable[[Ledger], None],
) -> None:
    """An audit each `every` seconds until `stopped`; one that cannot be done is logged and counted."""
    metrics.period.labels(run_name).set(every)
    # An auditor that never completes one must be overdue some time. Its first audit says since when.
    metrics.ended.labels(run_name).set(time.time())
    metrics.completed.labels(run_name)
    metrics.failed.labels(run_name)
    while not stopped.is_set():
        began = time.monotonic()
        work = asyncio.create_task(audit_once(connect, run_name, metrics))
        told = asyncio.create_task(stopped.wait())
        await asyncio.wait((work, told), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
        (ledger,) = await asyncio.gather(work, return_exceptions=True)
        told.cancel()
        pause = min(every, RETRY_SECONDS)
        if isinstance(ledger, Ledger):
            report(ledger)
            pause = every
        await until_set(stopped, max(0.0, pause - (time.monotonic() - began)))


async def audit_once(connect: Connect, run_name: str, metrics: AuditMetrics) -> Ledger | None:
    """The ledger, which `metrics` then show; None where it could not be counted."""
    began = time.monotonic()
    try:
        async with connect() as bus:
            ledger = await audit(
                bus.js,
                run_name,
                partitions=bus.partitions,
                settle=SETTLE_SECONDS,
                cold=bus.cold,
                on_begin=metrics.ended.labels(run_name).set,
            )
    except PASSING as error:
        metrics.failed.labels(run_name).inc()
        logger.error("audit.failed", run=run_name, error=str(error) or repr(error))
        return None
    metrics.show(ledger, time.monotonic() - began)
    return ledger
