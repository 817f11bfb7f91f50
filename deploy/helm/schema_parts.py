"""What the schema of the chart's values is made of: see `values_schema`."""

from __future__ import annotations

from typing import Any

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
ENVIRONMENT_FROM = listed(
    closed(
        {"prefix": text(), "configMapRef": ANY_OBJECT, "secretRef": ANY_OBJECT},
    )
)
VOLUMES = shared("volumes", listed({"type": "object", "required": ["name"]}))
MOUNTS = shared("mounts", listed({"type": "object", "required": ["name", "mountPath"]}))
LABELS = shared(
    "labels",
    {
        **table(text(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", maxLength=63)),
        "propertyNames": {"not": {"pattern": r"^(app\.kubernetes\.io|helm\.sh)/"}},
    },
)
CONTAINERS = shared("containers", listed({"type": "object", "required": ["name", "image"]}))
SPREADS = shared(
    "spreads", listed({"type": "object", "required": ["maxSkew", "topologyKey", "whenUnsatisfiable"]})
)
ACCOUNT = closed({"annotations": STRINGS, "labels": LABELS})
PLACEMENT = {
    "nodeSelector": STRINGS,
    "tolerations": TOLERATIONS,
    "affinity": AFFINITY,
    "topologySpreadConstraints": SPREADS,
    "podAnnotations": STRINGS,
    "podLabels": LABELS,
    "runtimeClassName": DNS_NAME,
    "priorityClassName": DNS_NAME,
    "serviceAccount": ACCOUNT,
}
"""Where and as what a pod runs."""
INSIDE = {
    "env": ENVIRONMENT,
    "envFrom": ENVIRONMENT_FROM,
    "volumes": VOLUMES,
    "volumeMounts": MOUNTS,
    "initContainers": CONTAINERS,
    "containers": CONTAINERS,
    **PLACEMENT,
}
"""And what its process is given."""
IDENTITY = {"runAsUser": whole(1), "fsGroup": whole(1)}
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
ACCESS = text(enum=["ReadWriteOnce", "ReadWriteMany"])
CRON = text(r"^\S+( \S+){4}$")
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
            **INSIDE,
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
ROUTE = {
    "enabled": FLAG,
    "parentRefs": listed(
        closed(
            {
                "group": text(),
                "kind": text(),
                "name": DNS_NAME,
                "namespace": NAMESPACE,
                "sectionName": DNS_NAME,
                "port": PORT,
            },
            required=("name",),
        )
    ),
    "hostnames": listed(text(r"^(\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", maxLength=253)),
    "annotations": STRINGS,
}
