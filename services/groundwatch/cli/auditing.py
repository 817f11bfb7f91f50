"""`groundwatch audit --every`: the ledger counted again and again, for Prometheus.

In a process of its own: the audit reads the headers of every event that is kept, and remembers every
response meanwhile, which is no work for a gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import nats.errors
import nats.js.errors
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from groundwatch.cli.canary import stopping
from groundwatch.cli.common import connected
from groundwatch.cli.output import print_json_line, say
from groundwatch.errors import GroundwatchError, UsageError
from groundwatch.ledger.ledger import Ledger
from groundwatch.ledger.runs import audit
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.topology import AUDITOR

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

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.pairs = Gauge(
            "groundwatch_audit_pairs",
            "Pairs of a response and a protocol, by what became of them",
            ("run", "state"),
            registry=registry,
        )
        self.unaccounted = Gauge(
            "groundwatch_audit_unaccounted",
            "How many the last complete audit knew to be missing or too many; 0 when it balanced",
            ("run",),
            registry=registry,
        )
        self.ended = Gauge(
            "groundwatch_audit_end_time_seconds",
            "When the last complete audit ended, in seconds since the epoch",
            ("run",),
            registry=registry,
        )
        self.period = Gauge(
            "groundwatch_audit_period_seconds", "Time between two audits", ("run",), registry=registry
        )
        self.seconds = Gauge(
            "groundwatch_audit_seconds", "How long the last complete audit took", ("run",), registry=registry
        )
        self.failed = Counter(
            "groundwatch_audit_failed", "Audits that could not be done", ("run",), registry=registry
        )

    def show(self, ledger: Ledger, seconds: float) -> None:
        """Take over what an audit found."""
        for state in STATES:
            self.pairs.labels(ledger.run, state).set(getattr(ledger, state))
        self.unaccounted.labels(ledger.run).set(ledger.unaccounted)
        self.seconds.labels(ledger.run).set(seconds)
        self.ended.labels(ledger.run).set(time.time())


async def audit_again_and_again(
    settings: Settings, run_name: str, every: float, port: int, *, as_json: bool
) -> None:
    """An audit each `every` seconds until told to stop; one that cannot be done is logged and counted.

    Raises `UsageError` when the port for /metrics cannot be had.
    """
    metrics = AuditMetrics()
    metrics.period.labels(run_name).set(every)
    # An auditor that never completes one must be overdue some time.
    metrics.ended.labels(run_name).set(time.time())
    metrics.failed.labels(run_name)
    try:
        server, _ = start_http_server(port, addr=settings.telemetry.host, registry=metrics.registry)
    except OSError as error:
        raise UsageError(f"--metrics-port {port}: {error.strerror or error}") from error
    logger.info("telemetry.started", service="audit", port=server.server_port)
    async with stopping() as stopped:
        while not stopped.is_set():
            began = time.monotonic()
            work = asyncio.create_task(_once(settings, run_name, metrics, as_json=as_json))
            told = asyncio.create_task(stopped.wait())
            await asyncio.wait((work, told), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
            (done,) = await asyncio.gather(work, return_exceptions=True)
            told.cancel()
            pause = every if done is True else min(every, RETRY_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), max(0.0, pause - (time.monotonic() - began)))
    server.shutdown()


async def _once(settings: Settings, run_name: str, metrics: AuditMetrics, *, as_json: bool) -> bool:
    """Whether it could be done."""
    began = time.monotonic()
    try:
        async with connected(settings, AUDITOR, user=AUDITOR) as bus:
            ledger = await audit(bus.js, run_name, settle=SETTLE_SECONDS)
    except (GroundwatchError, nats.errors.Error, nats.js.errors.Error, OSError, TimeoutError) as error:
        metrics.failed.labels(run_name).inc()
        logger.error("audit.failed", run=run_name, error=str(error) or repr(error))
        return False
    metrics.show(ledger, time.monotonic() - began)
    if as_json:
        print_json_line(ledger)
        return True
    say(
        f"{ledger.recorded:,} recorded, {ledger.scored:,} scored, {ledger.unscored:,} unscored, "
        f"{ledger.declined:,} declined, {ledger.in_flight:,} in flight: " + ledger.standing
    )
    return True
