"""The schema of the chart's values: `python deploy/helm/update.py` writes it.

What stands under `settings` is taken from `groundwatch.runtime.settings`, so that a setting which the
services do not know is refused when the chart is rendered. A test fails when the committed file is not what
this says.
"""

from __future__ import annotations

import json
from typing import Any

from settings_schema import settings_definitions

from groundwatch.topology import STAGES

Schema = dict[str, Any]


def text(pattern: str = "", **more: Any) -> Schema:
    """A string."""
    return {"type": "string", **({"pattern": pattern} if pattern else {}), **more}


def whole(minimum: int, maximum: int | None = None) -> Schema:
    """An integer within bounds."""
    return {"type": "integer", "minimum": minimum, **({"maximum": maximum} if maximum is not None else {})}


def number(**bounds: float) -> Schema:
    """A number within bounds."""
    return {"type": "number", **bounds}


def closed(properties: Schema, *, required: tuple[str, ...] = ()) -> Schema:
    """An object that has these keys and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"required": list(required)} if required else {}),
    }


def table(values: Schema, *, names: str = "") -> Schema:
    """An object with free keys."""
    return {
        "type": "object",
        "additionalProperties": values,
        **({"propertyNames": {"pattern": names}} if names else {}),
    }


def listed(items: Schema) -> Schema:
    """An array."""
    return {"type": "array", "items": items}


DEFINITIONS: dict[str, Schema] = {}


def shared(name: str, schema: Schema) -> Schema:
    """A reference to a schema that stands once, among the definitions."""
    DEFINITIONS[name] = schema
    return {"$ref": f"#/$defs/{name}"}


FLAG: Schema = {"type": "boolean"}
DNS_NAME = text(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", maxLength=253)
NAMESPACE = text(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", maxLength=63)
QUANTITY = shared(
    "quantity", {"anyOf": [text(r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"), number(minimum=0)]}
)
SIZE = text(r"^([1-9][0-9]*(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T))$")
OPTIONAL_SIZE = text(r"^([1-9][0-9]*(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T))?$")
PORT = whole(1, 65535)
AMOUNTS = table(QUANTITY, names="^(cpu|memory|ephemeral-storage|[a-z0-9.-]+/[a-z0-9-]+)$")
RESOURCES = shared("resources", closed({"requests": AMOUNTS, "limits": AMOUNTS}))
STRINGS = shared("strings", table({"type": "string"}))
TOLERATIONS = shared(
    "tolerations",
    listed(
        closed(
            {
                "key": text(),
                "operator": text(enum=["Exists", "Equal"]),
                "value": text(),
                "effect": text(enum=["NoSchedule", "PreferNoSchedule", "NoExecute"]),
                "tolerationSeconds": whole(0),
            }
        )
    ),
)
ANY_OBJECT: Schema = {"type": "object"}
AFFINITY = shared(
    "affinity", closed({"nodeAffinity": ANY_OBJECT, "podAffinity": ANY_OBJECT, "podAntiAffinity": ANY_OBJECT})
)
ENVIRONMENT = shared(
    "environment",
    listed(
        closed(
            {"name": text("^[A-Za-z_][A-Za-z0-9_]*$"), "value": text(), "valueFrom": ANY_OBJECT},
            required=("name",),
        )
    ),
)
PLACEMENT = {
    "env": ENVIRONMENT,
    "nodeSelector": STRINGS,
    "tolerations": TOLERATIONS,
    "affinity": AFFINITY,
    "podAnnotations": STRINGS,
}
SELECTOR = shared("selector", closed({"matchLabels": STRINGS, "matchExpressions": listed(ANY_OBJECT)}))
PEER = shared(
    "peer",
    closed(
        {
            "podSelector": SELECTOR,
            "namespaceSelector": SELECTOR,
            "ipBlock": closed({"cidr": text("/"), "except": listed(text("/"))}, required=("cidr",)),
        }
    ),
)
EGRESS = shared(
    "egress",
    listed(
        closed(
            {
                "to": listed(PEER),
                "ports": listed(
                    closed(
                        {
                            "port": {"type": ["integer", "string"]},
                            "endPort": PORT,
                            "protocol": text(enum=["TCP", "UDP", "SCTP"]),
                        }
                    )
                ),
            }
        )
    ),
)
DIGEST = text("^(sha256:[0-9a-f]{64})?$")
IMAGE = closed({"registry": text(), "repository": text(), "tag": text(), "digest": DIGEST})
SECRET_KEY = closed({"secret": DNS_NAME, "key": text(r"^[-._a-zA-Z0-9]+$")}, required=("secret", "key"))
SPREAD = text(enum=["ScheduleAnyway", "DoNotSchedule"])
SCALING = {
    "enabled": FLAG,
    "minReplicas": whole(0, 1000),
    "maxReplicas": whole(1, 1000),
    "targetDelaySeconds": number(exclusiveMinimum=0),
    "headroom": number(exclusiveMinimum=0, maximum=1),
    "pollingInterval": whole(1),
    "cooldownPeriod": whole(0),
    "scaleDownStabilization": whole(0, 3600),
}
STAGE = shared(
    "stage",
    closed(
        {
            "enabled": FLAG,
            "replicas": whole(1, 1000),
            "eventsPerSecond": number(exclusiveMinimum=0),
            "image": IMAGE,
            "resources": RESOURCES,
            "autoscaling": closed({**SCALING, "lagThreshold": whole(1)}),
            **PLACEMENT,
        },
        required=("enabled", "eventsPerSecond"),
    ),
)
INGRESS = {
    "enabled": FLAG,
    "className": text(),
    "host": DNS_NAME,
    "tlsSecret": DNS_NAME,
    "annotations": STRINGS,
}
SERVICES = ("gateway", *STAGES, "archive", "outflow", "audit", "replay", "erase", "provision", "cli")


def values_schema() -> Schema:
    """All values."""
    root = closed(
        {
            "nameOverride": text("^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"),
            "fullnameOverride": text("^([a-z]([-a-z0-9]*[a-z0-9])?)?$"),
            "global": ANY_OBJECT,
            "image": closed(
                {**IMAGE["properties"], "pullPolicy": text(enum=["Always", "IfNotPresent", "Never"])}
            ),
            "imagePullSecrets": listed(DNS_NAME),
            "settings": {"$ref": "#/$defs/Settings"},
            "llm": closed(
                {
                    "baseUrl": text("^(https?://.+)?$"),
                    "model": text(),
                    "apiKey": closed({"secret": DNS_NAME, "key": SECRET_KEY["properties"]["key"]}),
                }
            ),
            "apiKeys": table(SECRET_KEY, names="^[A-Z_][A-Z0-9_]*$"),
            "stageDefaults": closed({"replicas": whole(1, 1000), "resources": RESOURCES}),
            "stages": closed(dict.fromkeys(STAGES, STAGE), required=STAGES),
            "autoscaling": closed(SCALING),
            "gateway": closed(
                {
                    "replicas": whole(1, 1000),
                    "image": IMAGE,
                    "resources": RESOURCES,
                    "service": closed(
                        {
                            "type": text(enum=["ClusterIP", "NodePort", "LoadBalancer"]),
                            "port": PORT,
                            "annotations": STRINGS,
                        }
                    ),
                    "tokensSecret": DNS_NAME,
                    "grpc": closed(
                        {"enabled": FLAG, "port": PORT, "tlsSecret": DNS_NAME, "ingress": closed(INGRESS)}
                    ),
                    "ingress": closed({**INGRESS, "path": text("^/")}),
                    **PLACEMENT,
                }
            ),
            "archive": closed(
                {
                    "enabled": FLAG,
                    "image": IMAGE,
                    "resources": RESOURCES,
                    "storage": closed({"size": SIZE, "className": text()}),
                    **PLACEMENT,
                }
            ),
            "outflow": closed(
                {
                    "enabled": FLAG,
                    "replicas": whole(1, 100),
                    "image": IMAGE,
                    "resources": RESOURCES,
                    **PLACEMENT,
                }
            ),
            "auditor": closed(
                {
                    "enabled": FLAG,
                    "every": text("^[1-9][0-9]*(s|m|h|d)$"),
                    "image": IMAGE,
                    "resources": RESOURCES,
                    **PLACEMENT,
                }
            ),
            "replay": closed(
                {
                    "enabled": FLAG,
                    "replicas": whole(1, 100),
                    "image": IMAGE,
                    "priorityClassName": DNS_NAME,
                    "autoscaling": closed(
                        {
                            "enabled": FLAG,
                            "maxReplicas": whole(1, 100),
                            "prometheusUrl": text("^(https?://.+)?$"),
                            "cooldownPeriod": whole(0, 3600),
                        }
                    ),
                    "resources": RESOURCES,
                    **PLACEMENT,
                }
            ),
            "retention": closed(
                {
                    "enabled": FLAG,
                    "schedule": text(r"^(@(hourly|daily|weekly|monthly)|\S+( \S+){4})$"),
                    "image": IMAGE,
                    "resources": RESOURCES,
                    **PLACEMENT,
                }
            ),
            "triton": triton(),
            "nats": nats(),
            "provisioning": closed(
                {
                    "enabled": FLAG,
                    "waitSeconds": whole(10, 3600),
                    "backoffLimit": whole(1, 100),
                    "resources": RESOURCES,
                }
            ),
            "telemetry": closed({"port": whole(1024, 65535)}),
            "terminationGracePeriodSeconds": whole(30, 3600),
            "podDisruptionBudgets": closed({"enabled": FLAG}),
            "topologySpread": closed({"enabled": FLAG, "whenUnsatisfiable": SPREAD}),
            "priorityClassName": DNS_NAME,
            "runAsUser": whole(1),
            "networkPolicy": closed(
                {
                    "enabled": FLAG,
                    "gatewayClients": listed(PEER),
                    "monitoringNamespace": NAMESPACE,
                    "kedaNamespace": NAMESPACE,
                    "llmEgress": EGRESS,
                    "natsEgress": EGRESS,
                    "tritonEgress": EGRESS,
                    "archiveEgress": EGRESS,
                    "outflowEgress": EGRESS,
                    "fetchEgress": EGRESS,
                    "modelHubEgress": EGRESS,
                }
            ),
            "monitoring": closed(
                {
                    "podMonitor": closed(
                        {"enabled": FLAG, "interval": text("^[0-9]+(s|m)$"), "labels": STRINGS}
                    ),
                    "prometheusRule": closed({"enabled": FLAG, "labels": STRINGS}),
                    "dashboards": closed({"enabled": FLAG, "labels": STRINGS, "annotations": STRINGS}),
                }
            ),
            "test": closed({"timeoutSeconds": whole(10, 3600)}),
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values of the chart groundwatch",
        **root,
        "$defs": {**DEFINITIONS, **settings_definitions()},
    }


def triton() -> Schema:
    """The values of Triton."""
    return closed(
        {
            "enabled": FLAG,
            "image": IMAGE,
            "args": listed(text()),
            "replicas": whole(1, 100),
            "gpus": whole(0, 16),
            "sharedMemory": SIZE,
            "cache": closed(
                {
                    "size": OPTIONAL_SIZE,
                    "className": text(),
                    "accessMode": text(enum=["ReadWriteOnce", "ReadWriteMany"]),
                }
            ),
            "startupSeconds": whole(30, 7200),
            "resources": RESOURCES,
            "autoscaling": closed(
                {
                    "enabled": FLAG,
                    "minReplicas": whole(1, 100),
                    "maxReplicas": whole(1, 100),
                    "prometheusUrl": text("^(https?://.+)?$"),
                    "queueMilliseconds": number(exclusiveMinimum=0),
                    "gpuUtilization": number(minimum=0, maximum=1),
                    "cooldownPeriod": whole(0, 3600),
                }
            ),
            **PLACEMENT,
        }
    )


def nats() -> Schema:
    """The values of NATS."""
    return closed(
        {
            "enabled": FLAG,
            "url": text(),
            "streamReplicas": {"enum": [0, 1, 3, 5]},
            "monitoring": closed(
                {"endpoint": text(r"^([^/:]+:[0-9]+)?$"), "account": text(minLength=1), "useHttps": FLAG}
            ),
            "replicas": {"enum": [1, 3, 5]},
            "image": IMAGE,
            "storage": closed({"size": SIZE, "className": text()}),
            "sync": text("^(always|[1-9][0-9]*(ms|s|m))$"),
            "maxPayload": whole(65_536, 67_108_864),
            "zoneSpread": SPREAD,
            "resources": RESOURCES,
            "tls": closed({"secret": DNS_NAME}),
            "auth": closed(
                {
                    "enabled": FLAG,
                    "secrets": closed(dict.fromkeys(SERVICES, DNS_NAME)),
                    "caSecret": DNS_NAME,
                    "serverConfigSecret": DNS_NAME,
                }
            ),
            **{key: PLACEMENT[key] for key in PLACEMENT if key != "env"},
        }
    )


def rendered() -> str:
    """The file's text."""
    return json.dumps(values_schema(), indent=1, ensure_ascii=False) + "\n"
