"""FastStream's own metrics of the broker: what was fetched, how large, for how long it was in hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faststream.nats.prometheus.provider import BatchNatsMetricsSettingsProvider
from faststream.prometheus import ConsumeAttrs, PrometheusMiddleware

if TYPE_CHECKING:
    from faststream.message import StreamMessage
    from nats.aio.msg import Msg
    from prometheus_client import CollectorRegistry


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
