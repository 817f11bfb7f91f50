"""The schema of the chart's values: `python deploy/helm/update.py` writes it.

What stands under `settings` is taken from `groundwatch.runtime.settings`, so that a setting which the
services do not know is refused when the chart is rendered. A test fails when the committed file is not what
this says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from schema_parts import (
    ACCESS,
    ANY_OBJECT,
    CONTAINERS,
    CRON,
    DEFINITIONS,
    DNS_NAME,
    EGRESS,
    ENVIRONMENT,
    ENVIRONMENT_FROM,
    FLAG,
    IDENTITY,
    IMAGE,
    INGRESS,
    INSIDE,
    LABELS,
    MOUNTS,
    NAMESPACE,
    OPTIONAL_SIZE,
    PEER,
    PLACEMENT,
    PORT,
    RESOURCES,
    ROUTE,
    SCALING,
    SECRET_KEY,
    SIZE,
    SPREAD,
    STAGE,
    STRINGS,
    VOLUMES,
    Schema,
    closed,
    listed,
    number,
    table,
    text,
    whole,
)
from settings_schema import settings_definitions

from groundwatch.topology import STAGES

sys.path.insert(0, str(Path(__file__).parents[1] / "prometheus"))
from rules import SOURCE, alerts, thresholds

RULES = SOURCE.read_text("utf-8")
AUTHENTICATION = closed(
    {
        "name": DNS_NAME,
        "kind": text(enum=["TriggerAuthentication", "ClusterTriggerAuthentication"]),
        "modes": text(enum=["bearer", "basic", "tls", "tls,basic", "custom"]),
    }
)
BESIDE = ("archive", "outflow", "annotation", "audit", "replay", "erase", "provision", "cli")
SERVICES = ("gateway", *STAGES, *BESIDE)


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
                    "capacity": whole(0),
                    "apiKey": closed({"secret": DNS_NAME, "key": SECRET_KEY["properties"]["key"]}),
                }
            ),
            "load": closed({"responsesPerSecond": number(minimum=0), "imageBytes": whole(0)}),
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
                            "loadBalancerSourceRanges": listed(text(r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")),
                            "annotations": STRINGS,
                        }
                    ),
                    "autoscaling": closed(
                        {
                            "enabled": FLAG,
                            "minReplicas": whole(1, 1000),
                            "maxReplicas": whole(1, 1000),
                            "cpuUtilization": whole(1, 100),
                            "memoryUtilization": whole(0, 100),
                            "behavior": ANY_OBJECT,
                        }
                    ),
                    "drainSeconds": whole(0, 300),
                    "tokensSecret": DNS_NAME,
                    "open": {"type": ["boolean", "null"]},
                    "login": closed(
                        {"url": text("^(https?://.+)?$"), "cookieSecret": DNS_NAME, "clientSecret": DNS_NAME}
                    ),
                    "grpc": closed(
                        {
                            "enabled": FLAG,
                            "port": PORT,
                            "tlsSecret": DNS_NAME,
                            "ingress": closed(INGRESS),
                            "grpcRoute": closed(ROUTE),
                        }
                    ),
                    "ingress": closed(
                        {
                            **INGRESS,
                            "path": text("^/"),
                            "extraHosts": listed(
                                closed(
                                    {"host": {**DNS_NAME, "minLength": 1}, "paths": listed(text("^/"))},
                                    required=("host",),
                                )
                            ),
                        }
                    ),
                    "httpRoute": closed({**ROUTE, "path": text("^/")}),
                    **INSIDE,
                }
            ),
            "archive": closed(
                {
                    "enabled": FLAG,
                    "image": IMAGE,
                    "resources": RESOURCES,
                    "storage": closed(
                        {
                            "size": SIZE,
                            "className": text(),
                            "accessMode": ACCESS,
                            "existingClaim": DNS_NAME,
                            "annotations": STRINGS,
                        }
                    ),
                    **INSIDE,
                }
            ),
            "outflow": closed(
                {
                    "enabled": FLAG,
                    "replicas": whole(1, 100),
                    "image": IMAGE,
                    "resources": RESOURCES,
                    **INSIDE,
                }
            ),
            "annotation": closed(
                {
                    "enabled": FLAG,
                    "replicas": whole(1, 100),
                    "image": IMAGE,
                    "resources": RESOURCES,
                    **INSIDE,
                }
            ),
            "auditor": closed(
                {
                    "enabled": FLAG,
                    "every": text("^[1-9][0-9]*(s|m|h|d)$"),
                    "image": IMAGE,
                    "resources": RESOURCES,
                    **INSIDE,
                }
            ),
            "replay": closed(
                {
                    "enabled": FLAG,
                    "replicas": whole(1, 100),
                    "image": IMAGE,
                    "autoscaling": closed(
                        {
                            "enabled": FLAG,
                            "maxReplicas": whole(1, 100),
                            "prometheusUrl": text("^(https?://.+)?$"),
                            "authentication": AUTHENTICATION,
                            "cooldownPeriod": whole(0, 3600),
                        }
                    ),
                    "resources": RESOURCES,
                    **INSIDE,
                }
            ),
            "toolbox": closed(
                {
                    "enabled": FLAG,
                    "replicas": whole(0, 10),
                    "users": listed(text(enum=list(SERVICES))),
                    "nats": closed({"enabled": FLAG, "image": IMAGE}),
                    "image": IMAGE,
                    "resources": RESOURCES,
                    **INSIDE,
                }
            ),
            "retention": closed(
                {
                    "enabled": FLAG,
                    "schedule": text(r"^(@(hourly|daily|weekly|monthly)|\S+( \S+){4})$"),
                    "image": IMAGE,
                    "resources": RESOURCES,
                    **INSIDE,
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
                    **INSIDE,
                }
            ),
            "telemetry": closed({"port": whole(1024, 65535)}),
            "terminationGracePeriodSeconds": whole(30, 3600),
            "podDisruptionBudgets": closed({"enabled": FLAG}),
            "topologySpread": closed({"enabled": FLAG, "whenUnsatisfiable": SPREAD}),
            **PLACEMENT,
            **IDENTITY,
            "extraEnv": ENVIRONMENT,
            "extraEnvFrom": ENVIRONMENT_FROM,
            "extraVolumes": VOLUMES,
            "extraVolumeMounts": MOUNTS,
            "extraInitContainers": CONTAINERS,
            "extraContainers": CONTAINERS,
            "extraManifests": listed({"type": ["object", "string"]}),
            "commonLabels": LABELS,
            "caBundle": closed(
                {"configMap": DNS_NAME, "secret": DNS_NAME, "key": SECRET_KEY["properties"]["key"]}
            ),
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
                    "loginEgress": EGRESS,
                    "modelHubEgress": EGRESS,
                    "dnsEgress": EGRESS,
                    "extraEgress": EGRESS,
                }
            ),
            "monitoring": closed(
                {
                    "podMonitor": closed(
                        {
                            "enabled": FLAG,
                            "interval": text("^[0-9]+(s|m)$"),
                            "labels": STRINGS,
                            "cluster": text(),
                            "relabelings": listed(ANY_OBJECT),
                            "metricRelabelings": listed(ANY_OBJECT),
                        }
                    ),
                    "prometheusRule": closed(
                        {
                            "enabled": FLAG,
                            "labels": STRINGS,
                            "runbookUrl": text("^(https?://.+)?$"),
                            "without": listed(text(enum=alerts(RULES))),
                            "thresholds": closed(dict.fromkeys(sorted(thresholds(RULES)), number(minimum=0))),
                        }
                    ),
                    "dashboards": closed({"enabled": FLAG, "labels": STRINGS, "annotations": STRINGS}),
                }
            ),
            "test": closed({"timeoutSeconds": whole(10, 3600), **INSIDE}),
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
    server = {
        "image": IMAGE,
        "args": listed(text()),
        "replicas": whole(1, 100),
        "capacity": whole(0),
        "models": listed(text(r"^[A-Za-z0-9_-]+$")),
        "gpus": whole(0, 16),
        "gpuResource": text(r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$"),
        **IDENTITY,
        "sharedMemory": SIZE,
        "cache": closed({"size": OPTIONAL_SIZE, "className": text(), "accessMode": ACCESS}),
        "startupSeconds": whole(30, 7200),
        "resources": RESOURCES,
        "autoscaling": closed(
            {
                "enabled": FLAG,
                "minReplicas": whole(0, 100),
                "maxReplicas": whole(1, 100),
                "prometheusUrl": text("^(https?://.+)?$"),
                "authentication": AUTHENTICATION,
                "queueMilliseconds": number(exclusiveMinimum=0),
                "gpuUtilization": number(minimum=0, maximum=1),
                "schedules": listed(
                    closed(
                        {
                            "timezone": text("^[A-Za-z]"),
                            "start": CRON,
                            "end": CRON,
                            "replicas": whole(1, 100),
                        },
                        required=("timezone", "start", "end", "replicas"),
                    )
                ),
                "cooldownPeriod": whole(0, 3600),
            }
        ),
        **INSIDE,
    }
    asking = listed(text(enum=list(STAGES)))
    one = closed({**server, "stages": {**asking, "minItems": 1, "uniqueItems": True}}, required=("stages",))
    return closed(
        {"enabled": FLAG, **server, "servers": table(one, names="^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$")}
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
            "storage": closed({"size": SIZE, "className": text(), "annotations": STRINGS}),
            "jetstream": closed(
                {
                    "maxFileStore": OPTIONAL_SIZE,
                    "maxMemoryStore": OPTIONAL_SIZE,
                    "encryption": closed(
                        {
                            "secret": DNS_NAME,
                            "key": SECRET_KEY["properties"]["key"],
                            "cipher": text(enum=["aes", "chacha"]),
                        }
                    ),
                }
            ),
            "extraConfig": text(),
            "rebuildRate": SIZE,
            **IDENTITY,
            "sync": text("^(always|[1-9][0-9]*(ms|s|m))$"),
            "maxPayload": whole(65_536, 67_108_864),
            "zoneSpread": SPREAD,
            "resources": RESOURCES,
            "tls": closed(
                {
                    "secret": DNS_NAME,
                    "certManager": closed(
                        {"issuer": DNS_NAME, "kind": text(enum=["Issuer", "ClusterIssuer"])}
                    ),
                    "verifyClients": FLAG,
                }
            ),
            "auth": closed(
                {
                    "enabled": FLAG,
                    "method": text(enum=["nkey", "jwt"]),
                    "certificates": closed(dict.fromkeys(("all", *SERVICES), DNS_NAME)),
                    "secrets": closed(dict.fromkeys(SERVICES, DNS_NAME)),
                    "caSecret": DNS_NAME,
                    "serverConfigSecret": DNS_NAME,
                }
            ),
            **PLACEMENT,
        }
    )


def rendered() -> str:
    """The file's text."""
    return json.dumps(values_schema(), indent=1, ensure_ascii=False) + "\n"
