"""What a process tells of its connection while its services run: metrics of the broker, and traces."""

import contextlib
from collections.abc import AsyncIterator

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.broker_metrics import broker_metrics
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.runtime.telemetry.traces import Traces


@contextlib.asynccontextmanager
async def observed(bus: Bus, name: str, settings: Settings, metrics: Metrics) -> AsyncIterator[None]:
    """To be entered before services are made, so that they end first."""
    metrics.not_stored.set_function(lambda: len(bus.storage.problems()))
    bus.broker.add_middleware(broker_metrics(metrics.registry, name))
    if not settings.telemetry.traces:
        yield
        return
    bus.traces = Traces(name, settings.telemetry.traces)
    try:
        yield
    finally:
        await bus.traces.close()
