"""Who can be told, by kind."""

from typing import Any

from groundwatch.outflow.receivers.base import Receiver
from groundwatch.outflow.receivers.langfuse import LangfuseReceiver
from groundwatch.outflow.receivers.otlp import OtlpReceiver
from groundwatch.outflow.receivers.phoenix import PhoenixReceiver
from groundwatch.outflow.receivers.webhook import WebhookReceiver
from groundwatch.runtime.settings.outflow import ReceiverSettings
from groundwatch.runtime.telemetry.metrics import Metrics

KINDS: dict[str, type[Receiver[Any]]] = {
    "otlp-http": OtlpReceiver,
    "langfuse": LangfuseReceiver,
    "phoenix": PhoenixReceiver,
    "webhook": WebhookReceiver,
}


def make_receiver(name: str, settings: ReceiverSettings, metrics: Metrics) -> Receiver[Any]:
    """The receiver of this name. Raises `SettingsError`."""
    return KINDS[settings.kind](name, settings, metrics)
