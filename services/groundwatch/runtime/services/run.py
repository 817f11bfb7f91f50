"""The run loop of a process: start services, watch their connection, wait for the end, drain."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence

import nats.errors
from faststream.message import StreamMessage
from faststream.nats.prometheus.provider import BatchNatsMetricsSettingsProvider
from faststream.prometheus import ConsumeAttrs, PrometheusMiddleware
from nats.aio.msg import Msg
from prometheus_client import CollectorRegistry

from groundwatch import termination
from groundwatch.errors import TransientError, words
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.services.service import Service
from groundwatch.runtime.services.tasks import SupervisedTask
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.telemetry.logs import logger
from groundwatch.runtime.telemetry.metrics import Metrics, show_end
from groundwatch.runtime.telemetry.traces import Traces

DRAIN_SECONDS = 25.0
"""Below Kubernetes' default of 30 seconds between SIGTERM and SIGKILL."""

LOOK_SECONDS = 5.0


@contextlib.asynccontextmanager
async def running(services: Sequence[Service], bus: Bus) -> AsyncIterator[None]:
    """Services started inside the block, drained after it all at once, then disconnected."""
    started: list[Service] = []
    staying = SupervisedTask("what-stays", lambda: tell_what_stays(services, bus))
    try:
        for service in services:
            try:
                await service.start()
            except (nats.errors.Error, TimeoutError, ConnectionError) as fault:
                raise TransientError(f"{service.name} cannot start, NATS is away: {words(fault)}") from fault
            started.append(service)
            logger.info("service.started", service=service.name)
        staying.start()
        yield
    finally:
        await staying.stop()
        logger.info("draining", services=[service.name for service in started])
        drained = await asyncio.gather(
            *(service.drain(DRAIN_SECONDS) for service in started), return_exceptions=True
        )
        for service, error in zip(started, drained, strict=True):
            if error is not None:
                logger.error("service.drain_failed", service=service.name, error=repr(error))
        await bus.close()


async def tell_what_stays(services: Sequence[Service], bus: Bus) -> None:
    """What has been wrong since NATS was away, and still is when all has had its time to find out that it is
    back: lines that told of it when it began were left out."""
    known, before = bus.reconnects, dict[str, None]()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if bus.outage.lasts:
            continue
        now = dict.fromkeys((*problems_of(services), *notes_of(services)))
        if known != bus.reconnects:
            known = bus.reconnects
            for problem in (one for one in now if one not in before):
                logger.warning("service.still_wrong", problem=problem)
        before = now


class _ByConsumer(BatchNatsMetricsSettingsProvider):
    """FastStream's label is the subject of a message, and here every response has one of its own."""

    def get_consume_attrs_from_message(self, msg: StreamMessage[list[Msg]]) -> ConsumeAttrs:
        messages = msg.raw_message
        return {
            "destination_name": messages[0].metadata.consumer,
            "message_size": sum(len(message.data) for message in messages),
            "messages_count": len(messages),
        }


def broker_metrics(registry: CollectorRegistry, app_name: str) -> PrometheusMiddleware:
    """The middleware, with a label for each durable consumer."""
    return PrometheusMiddleware(
        settings_provider_factory=lambda _: _ByConsumer(), registry=registry, app_name=app_name
    )


@contextlib.asynccontextmanager
async def observed(bus: Bus, name: str, settings: Settings, metrics: Metrics) -> AsyncIterator[None]:
    """What a process tells of its connection while its services run: metrics of the broker, and traces.

    To be entered before services are made, so that they end first.
    """
    metrics.not_stored.set_function(lambda: len(bus.storage.problems()))
    metrics.nats_connected.set_function(lambda: bus.connected)
    for key in ("tls_cert", "tls_ca"):
        if path := getattr(settings.nats, key):
            show_end(metrics, f"nats.{key}", path)
    bus.broker.add_middleware(broker_metrics(metrics.registry, name))
    if not settings.telemetry.traces or not settings.telemetry.traces_share:
        yield
        return
    bus.traces = Traces(name, settings.telemetry.traces, settings.telemetry.traces_share)
    try:
        yield
    finally:
        await bus.traces.close()


async def until_told_to_stop() -> None:
    """Return on SIGTERM or Ctrl-C."""
    async with stopping() as stopped:
        await stopped.wait()


@contextlib.asynccontextmanager
async def stopping() -> AsyncIterator[asyncio.Event]:
    """An event that is set on SIGTERM or Ctrl-C."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stopped.set()

    stop_listening = termination.listen(lambda: loop.call_soon_threadsafe(stop))
    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if not stopped.is_set():
            # Only then: once told, a second SIGTERM must not cut short what the first one began.
            stop_listening()


def problems_of(services: Sequence[Service]) -> list[str]:
    return [problem for service in services for problem in service.problems()]


def notes_of(services: Sequence[Service]) -> list[str]:
    return [note for service in services for note in getattr(service, "notes", list)()]
