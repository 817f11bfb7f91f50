"""FastStream's metrics, of what a stage fetches from a real server."""

from __future__ import annotations

from typing import Any

from prometheus_client import generate_latest
from tests.runtime.conftest import done, eventually, record, response

from groundwatch.runtime.services.run import broker_metrics


async def test_what_is_fetched_is_counted_by_consumer(stage_factory) -> None:
    async def handle(works: Any) -> list[Any]:
        return [done(work) for work in works]

    stage = await stage_factory(handle, start=False)
    registry = stage.metrics.registry
    stage.bus.broker.add_middleware(broker_metrics(registry, "extraction"))
    for number in range(5):
        await record(stage.bus, response(f"r{number}"))
    await stage.stage.start()
    await eventually(stage.settled)
    await stage.stage.drain(1)
    labels = {"app_name": "extraction", "broker": "nats", "handler": stage.spec.name}
    name = "faststream_received_messages"
    assert registry.get_sample_value(f"{name}_total", labels) == 5
    assert registry.get_sample_value(f"{name}_in_process", labels) == 0
    assert (registry.get_sample_value(f"{name}_size_bytes_sum", labels) or 0) > 500
    # A subject is one response's: none may become a label.
    assert b"gw.recorded" not in generate_latest(registry)
