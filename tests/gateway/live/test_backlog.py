"""What the gateway tells of consumers: also of those that no process asks."""

from __future__ import annotations

from groundwatch.gateway.live.gauges import StreamGauges
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import CONSUMERS, DEAD, RESPONSES


async def test_lag_of_a_stage_without_any_process(gateway, response) -> None:
    for _ in range(3):
        assert (await gateway.post(response())).status_code == 202
    gauges = StreamGauges(gateway.bus, gateway.metrics)
    await gauges.look()
    labels = {"stage": "extraction", "consumer": "extraction"}
    assert gateway.count("groundwatch_consumer_lag", **labels) == 3
    assert gateway.metrics.registry.get_sample_value("groundwatch_consumer_pulls", labels) == 0
    assert gateway.metrics.registry.get_sample_value("groundwatch_consumer_delivered", labels) == 0
    up = {
        spec.name: gateway.metrics.registry.get_sample_value(
            "groundwatch_consumer_up", {"consumer": spec.name}
        )
        for spec in CONSUMERS
    }
    assert set(up.values()) == {1.0}

    subscription = await gateway.bus.js.pull_subscribe_bind(consumer="extraction", stream=RESPONSES)
    for message in await subscription.fetch(2, timeout=5):
        await message.ack_sync()
    await gauges.look()
    assert gateway.count("groundwatch_consumer_lag", **labels) == 1
    assert gateway.count("groundwatch_consumer_delivered", **labels) == 2


async def test_a_consumer_that_somebody_deleted(bus: Bus, clean_streams: None) -> None:
    metrics = Metrics()
    gauges = StreamGauges(bus, metrics)
    await gauges.look()
    await bus.js.delete_consumer(RESPONSES, "extraction")
    await gauges.look()
    value = metrics.registry.get_sample_value
    assert value("groundwatch_consumer_up", {"consumer": "extraction"}) == 0
    assert value("groundwatch_consumer_lag", {"stage": "extraction", "consumer": "extraction"}) is None
    assert value("groundwatch_consumer_up", {"consumer": "scoring"}) == 1


async def test_dead_letters_that_wait(bus: Bus, clean_streams: None) -> None:
    metrics = Metrics()
    gauges = StreamGauges(bus, metrics)
    await gauges.look()
    assert metrics.registry.get_sample_value("groundwatch_dead_letters_waiting") == 0
    await bus.js.publish("gw.dead.extraction.live.abc", b"x", stream=DEAD)
    await gauges.look()
    assert metrics.registry.get_sample_value("groundwatch_dead_letters_waiting") == 1


async def test_the_objective_is_told(gateway_factory) -> None:
    from groundwatch.runtime.settings import AlarmSettings

    running = await gateway_factory(alarm=AlarmSettings(objective=0.04))
    assert running.metrics.registry.get_sample_value("groundwatch_objective_ratio") == 0.04
