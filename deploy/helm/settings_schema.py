"""The services' settings as the chart's schema has them: see `values_schema`."""

from __future__ import annotations

from typing import Any

from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.reading import JUDGING

Schema = dict[str, Any]

CHART_DECIDES = {
    "Settings": ("data_dir",),
    "NatsSettings": (
        "url",
        "credentials",
        "nkey_seed_file",
        "tls_ca",
        "tls_cert",
        "tls_key",
        "replicas",
        "max_payload",
    ),
    "StageSettings": ("replicas",),
    "CaptioningSettings": ("replicas",),
    "GatewaySettings": (
        "host",
        "port",
        "grpc_port",
        "tokens_file",
        "open",
        "drain_delay",
        "replays",
        "replay_nkey_seed_file",
    ),
    "LoginSettings": ("url", "cookie_secret_file", "cookie_secret_env"),
    "OidcSettings": ("client_secret_file", "client_secret_env"),
    "GrpcSettings": ("tls_cert", "tls_key"),
    "TelemetrySettings": ("host", "port"),
}
"""Settings that are not the user's here: the chart sets them."""

ENGINES = {
    "extraction": ("reader", "llm", "noop"),
    "captioning": ("openai", "triton"),
    "generation": ("none", "openai", "triton"),
    "matching": ("semantic", "lexical", "llm"),
    "verification": (
        "embedded",
        "reference",
        "visual",
        "triton",
        "detector",
        "llm",
        "calibrated",
        "similarity",
        "cascade",
        "noop",
    ),
}


def settings_definitions() -> dict[str, Schema]:
    """The services' settings as JSON Schema definitions, without what the chart decides."""
    root = Settings.model_json_schema()
    found: dict[str, Schema] = root.pop("$defs") | {"Settings": root}
    for name, schema in found.items():
        for key in ("title", "description"):
            schema.pop(key, None)
        for key in CHART_DECIDES.get(name, ()):
            schema["properties"].pop(key, None)
        for property in schema["properties"].values():
            for key in ("default", "description", "title"):
                property.pop(key, None)
    for stage, engines in ENGINES.items():
        reference = found["Settings"]["properties"][stage]
        found["Settings"]["properties"][stage] = {
            **reference,
            "properties": {"engine": {"enum": ["", *engines]}},
        }
    # Parts of sections, over those in use: `admin config check` knows whether the whole is right.
    section = {"type": "object", "additionalProperties": True}
    found["Settings"]["properties"]["judges"]["additionalProperties"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": dict.fromkeys(JUDGING, section),
    }
    return found
