"""The services' settings as the chart's schema has them: see `values_schema`."""

from __future__ import annotations

from typing import Any

import msgspec

from groundwatch.runtime.services.judges import JUDGING
from groundwatch.runtime.settings.tree import Settings

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
    "GatewaySettings": ("host", "port", "grpc_port", "tokens_file"),
    "GrpcSettings": ("tls_cert", "tls_key", "replays", "replay_nkey_seed_file"),
    "TelemetrySettings": ("host", "port"),
}
"""Settings that are not the user's here: the chart sets them."""

ENGINES = {
    "extraction": ("linguistic", "llm", "noop"),
    "captioning": ("openai", "triton", "stand-in"),
    "generation": ("none", "openai", "triton", "stand-in"),
    "matching": ("semantic", "lexical", "llm"),
    "verification": ("embedded", "reference", "visual", "triton", "llm", "similarity", "noop"),
}
POSITIVE = {"exclusiveMinimum": 0}
AT_LEAST_ONE = {"minimum": 1}
NOT_NEGATIVE = {"minimum": 0}
SHARE = {"minimum": 0, "maximum": 1}
BOUNDS: dict[str, dict[str, Schema]] = {
    "NatsSettings": {"publish_timeout": POSITIVE},
    "RetrySettings": {"attempts": AT_LEAST_ONE, "first_delay": POSITIVE, "max_delay": POSITIVE},
    "StageSettings": {"concurrency": NOT_NEGATIVE, "timeout": NOT_NEGATIVE},
    "CaptioningSettings": {"concurrency": NOT_NEGATIVE, "timeout": NOT_NEGATIVE, "max_tokens": AT_LEAST_ONE},
    "VisualSettings": {
        "threshold": {"exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "top_logprobs": {"minimum": 0, "maximum": 20},
    },
    "SamplingRule": {"rate": SHARE},
    "HttpSettings": {
        "max_connections": AT_LEAST_ONE,
        "max_head": {"minimum": 1024},
        "head_timeout": POSITIVE,
        "body_timeout": POSITIVE,
        "min_rate": NOT_NEGATIVE,
        "max_receiving": AT_LEAST_ONE,
        "watchers": NOT_NEGATIVE,
    },
    "TelemetrySettings": {
        "log_level": {"enum": ["debug", "info", "warning", "error"]},
        "log_format": {"enum": ["auto", "json", "console"]},
        "max_labels": AT_LEAST_ONE,
    },
    "AlarmSettings": {
        "responses": {"minimum": 100},
        "learn": {"minimum": 20},
        "margin": NOT_NEGATIVE,
        "objective": {"minimum": 0, "exclusiveMaximum": 1},
    },
    "ChatSettings": {
        "base_url": {"pattern": "^https?://"},
        "model": {"minLength": 1},
        "timeout": POSITIVE,
        "concurrency": AT_LEAST_ONE,
        "max_tokens": AT_LEAST_ONE,
        "retries": NOT_NEGATIVE,
        "breaker_failures": AT_LEAST_ONE,
        "breaker_pause": POSITIVE,
    },
    "TritonSettings": {
        "url": {"pattern": "^[^/]+:[0-9]+$"},
        "timeout": POSITIVE,
        "concurrency": AT_LEAST_ONE,
    },
}


def settings_definitions() -> dict[str, Schema]:
    """The services' settings as JSON Schema definitions, without what the chart decides."""
    (_,), found = msgspec.json.schema_components([Settings], ref_template="#/$defs/{name}")
    for name, schema in found.items():
        for key in ("title", "description"):
            schema.pop(key, None)
        for key in CHART_DECIDES.get(name, ()):
            schema["properties"].pop(key, None)
        for key, property in schema["properties"].items():
            property.pop("default", None)
            property.pop("description", None)
            property.update(BOUNDS.get(name, {}).get(key, {}))
    for stage, engines in ENGINES.items():
        reference = found["Settings"]["properties"][stage]
        found["Settings"]["properties"][stage] = {
            **reference,
            "properties": {"engine": {"enum": ["", *engines]}},
        }
    intake = found["IntakeSettings"]["properties"]
    for key, property in intake.items():
        property["minimum"] = 0 if key == "max_images" else 1
    # Parts of sections, over those in use: `config check` knows whether the whole is right.
    section = {"type": "object", "additionalProperties": True}
    found["Settings"]["properties"]["judges"]["additionalProperties"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": dict.fromkeys(JUDGING, section),
    }
    return found
