"""Rendering the chart with the real helm, for the tests beside this file."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "groundwatch"
RELEASE = "gw"
NAMESPACE = "watch"

LLM: Object = {"llm": {"baseUrl": "https://llm.example/v1", "model": "judge", "apiKey": {"secret": "openai"}}}
RECEIVERS: Object = {
    "outflow": {"receivers": {"collector": {"kind": "otlp-http", "url": "https://otlp.example:4318"}}}
}
STORED: Object = {
    **LLM,
    "settings": {"archive": {"url": "s3://bucket/groundwatch"}},
    "gateway": {"tokensSecret": "tokens"},
}
"""What production needs beside its profile."""
EXTERNAL_NATS: Object = {
    "nats": {
        "enabled": False,
        "url": "tls://nats-0.example:4222,tls://nats-1.example:4222",
        "streamReplicas": 3,
        "monitoring": {"endpoint": "nats.example:8222", "account": "watch", "useHttps": True},
    }
}
AUTH = {
    "enabled": True,
    "caSecret": "ca",
    "serverConfigSecret": "users",
    "secrets": {
        name: f"nkey-{name}"
        for name in (
            *("gateway", "extraction", "captioning", "generation", "matching", "verification", "scoring"),
            *("archive", "outflow", "annotation", "provision", "audit", "replay", "erase", "cli"),
        )
    },
}
OWN_CONTAINER: Object = {
    "image": "registry.example/site:1",
    "imagePullPolicy": "IfNotPresent",
    "resources": {
        "requests": {"cpu": "5m", "memory": "8Mi"},
        "limits": {"cpu": "100m", "memory": "32Mi"},
    },
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    },
}
CASES: dict[str, tuple[tuple[str, ...], Object]] = {
    "default": ((), LLM),
    "small": (("small",), LLM),
    "production": (("production",), STORED),
    "gpu": (("gpu",), LLM),
    "production-gpu": (("production", "gpu"), STORED),
    "partitions": (
        ("production", "gpu"),
        {**STORED, "settings": {**STORED["settings"], "nats": {"partitions": 3}}},
    ),
    "external-nats": ((), {**LLM, **EXTERNAL_NATS, "autoscaling": {"enabled": True}}),
    "auth": (
        (),
        {
            **LLM,
            "nats": {"auth": AUTH, "tls": {"secret": "certificate"}},
            "archive": {"enabled": True},
            "outflow": {"enabled": True},
            "annotation": {"enabled": True},
            "auditor": {"enabled": True},
            "toolbox": {"enabled": True},
            "replay": {"enabled": True, "priorityClassName": "low"},
            "retention": {"enabled": True},
            "gateway": {
                "grpc": {"enabled": True, "tlsSecret": "grpc"},
                "tokensSecret": "tokens",
                "open": False,
                "login": {"url": "https://watch.example", "cookieSecret": "login", "clientSecret": "oidc"},
            },
            "settings": {
                "retention": {"responses": 7, "tenants": {"a b": {"responses": 1}}},
                "gateway": {
                    "login": {
                        "hours": 8,
                        "oidc": {
                            "issuer": "https://id.example:8443/realm",
                            "client_id": "groundwatch",
                            "groups": [
                                {"name": "quality", "role": "reviewer", "tenant": "*"},
                                {"name": "acme", "role": "viewer", "tenant": "acme"},
                            ],
                        },
                    }
                },
                **RECEIVERS,
            },
        },
    ),
    "everything": (
        ("production", "gpu"),
        {
            **LLM,
            "image": {"registry": "registry.example", "digest": "sha256:" + "0" * 64},
            "imagePullSecrets": ["pull"],
            "priorityClassName": "high",
            "toolbox": {"enabled": True, "nats": {"enabled": True}},
            "outflow": {"enabled": True, "replicas": 2},
            "annotation": {"enabled": True, "replicas": 2},
            "settings": {**RECEIVERS, **STORED["settings"]},
            "gateway": {
                "open": True,
                "ingress": {
                    "enabled": True,
                    "host": "watch.example",
                    "tlsSecret": "tls",
                    "className": "nginx",
                },
                "grpc": {
                    "enabled": True,
                    "port": 9090,
                    "ingress": {
                        "enabled": True,
                        "host": "grpc.example",
                        "tlsSecret": "tls",
                        "className": "nginx",
                        "annotations": {"nginx.ingress.kubernetes.io/backend-protocol": "GRPC"},
                    },
                },
                "env": [{"name": "LANG", "value": "C.UTF-8"}],
                "affinity": {"nodeAffinity": {}},
                "podAnnotations": {"a": "b"},
            },
            "networkPolicy": {
                "gatewayClients": [{"namespaceSelector": {"matchLabels": {"team": "models"}}}],
                "modelHubEgress": [{"ports": [{"port": 443, "protocol": "TCP"}]}],
            },
            "monitoring": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
        },
    ),
    "cloud": (
        ("production",),
        {
            **LLM,
            "nodeSelector": {"pool": "watch"},
            "tolerations": [{"key": "watch", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "topologySpreadConstraints": [
                {"maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
            ],
            "podAnnotations": {"team": "watch"},
            "podLabels": {"azure.workload.identity/use": "true"},
            "runtimeClassName": "gvisor",
            "serviceAccount": {
                "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/watch"},
                "labels": {"team": "watch"},
            },
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
            "extraEnvFrom": [{"configMapRef": {"name": "site"}}],
            "extraVolumes": [{"name": "site", "configMap": {"name": "site"}}],
            "extraVolumeMounts": [{"name": "site", "mountPath": "/etc/site", "readOnly": True}],
            "caBundle": {"configMap": "trusted", "key": "bundle.pem"},
            "runAsUser": None,
            "fsGroup": None,
            "archive": {
                "enabled": True,
                "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
                "serviceAccount": {"annotations": {"own": "1"}},
            },
            "settings": {"archive": {"url": "s3://bucket/path"}},
            "gateway": {
                "tokensSecret": "tokens",
                "autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 9},
                "grpc": {
                    "enabled": True,
                    "grpcRoute": {
                        "enabled": True,
                        "parentRefs": [{"name": "public", "namespace": "edge", "sectionName": "grpc"}],
                        "hostnames": ["grpc.example"],
                    },
                },
                "httpRoute": {
                    "enabled": True,
                    "parentRefs": [{"name": "public", "namespace": "edge"}],
                    "hostnames": ["watch.example"],
                    "annotations": {"a": "b"},
                },
            },
            "provisioning": {"nodeSelector": {"pool": "jobs"}, "runtimeClassName": "runc"},
            "toolbox": {"enabled": True, "replicas": 0},
            "nats": {
                "runAsUser": None,
                "fsGroup": 3000,
                "jetstream": {"maxFileStore": "900Gi", "maxMemoryStore": "256Mi"},
            },
            "networkPolicy": {
                "dnsEgress": [{"ports": [{"port": 5353, "protocol": "UDP"}]}],
                "extraEgress": [
                    {
                        "to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}],
                        "ports": [{"port": 80, "protocol": "TCP"}],
                    }
                ],
            },
        },
    ),
    "site": (
        (),
        {
            **LLM,
            "commonLabels": {"team": "watch"},
            "extraInitContainers": [{"name": "before", **OWN_CONTAINER}],
            "extraContainers": [{"name": "beside", **OWN_CONTAINER}],
            "extraManifests": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "{{ .Release.Name }}-own"},
                    "data": {"a": "b"},
                },
                "apiVersion: v1\nkind: ConfigMap\n"
                'metadata: {name: {{ include "groundwatch.fullname" . }}-text}\n',
            ],
            "stages": {"scoring": {"initContainers": [{"name": "own", **OWN_CONTAINER}]}},
            "gateway": {
                "tokensSecret": "tokens",
                "autoscaling": {
                    "enabled": True,
                    "memoryUtilization": 80,
                    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 600}},
                },
                "service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["203.0.113.0/24"]},
                "ingress": {
                    "enabled": True,
                    "host": "a.example",
                    "tlsSecret": "tls",
                    "extraHosts": [{"host": "b.example", "paths": ["/", "/v1"]}, {"host": "c.example"}],
                },
            },
            "archive": {"enabled": True, "storage": {"existingClaim": "mine"}},
            "toolbox": {"enabled": True},
            "nats": {
                "storage": {"annotations": {"backup": "daily"}},
                "jetstream": {"encryption": {"secret": "disk"}},
                "tls": {"secret": "gw-nats-tls", "certManager": {"issuer": "authority"}},
                "auth": {"caSecret": "gw-nats-tls"},
                "extraConfig": "max_connections: 500\n",
            },
            "monitoring": {
                "podMonitor": {
                    "enabled": True,
                    "cluster": "c1",
                    "relabelings": [{"targetLabel": "region", "replacement": "eu"}],
                    "metricRelabelings": [{"action": "drop", "sourceLabels": ["le"], "regex": "0.1"}],
                }
            },
        },
    ),
    "jwt": (
        (),
        {
            **LLM,
            "nats": {
                "auth": {
                    **AUTH,
                    "method": "jwt",
                    "certificates": {"all": "client", "gateway": "client-gateway"},
                },
                "tls": {"secret": "certificate", "verifyClients": True},
            },
            "gateway": {"grpc": {"enabled": True}},
            "toolbox": {"enabled": True},
        },
    ),
    "tritons": (
        (),
        {
            **LLM,
            "triton": {
                "enabled": True,
                "gpus": 1,
                "capacity": 64,
                "autoscaling": {
                    "enabled": True,
                    "prometheusUrl": "http://prometheus.example:9090",
                    "authentication": {"name": "prometheus", "kind": "ClusterTriggerAuthentication"},
                },
                "servers": {
                    "verify": {
                        "stages": ["verification"],
                        "models": ["verifier"],
                        "gpuResource": "nvidia.com/mig-3g.40gb",
                        "runtimeClassName": "nvidia",
                        "autoscaling": {
                            "minReplicas": 0,
                            "schedules": [
                                {
                                    "timezone": "Europe/Berlin",
                                    "start": "0 7 * * 1-5",
                                    "end": "0 20 * * 1-5",
                                    "replicas": 2,
                                }
                            ],
                        },
                    },
                    "describe": {
                        "stages": ["captioning", "generation"],
                        "image": {"repository": "describe", "tag": "2"},
                        "capacity": 0,
                        "autoscaling": {"enabled": False},
                        "replicas": 2,
                    },
                },
            },
            "replay": {"enabled": True},
            "settings": {
                "verification": {"engine": "triton"},
                "captioning": {"engine": "triton"},
                "generation": {
                    "engine": "openai",
                    "llm": {"base_url": "https://d.example/v1", "model": "d"},
                },
            },
        },
    ),
    "archive-in-s3": (
        (),
        {**LLM, "archive": {"enabled": True}, "settings": {"archive": {"url": "s3://b/p"}}},
    ),
    "models-apart": (
        (),
        {
            "settings": {
                "extraction": {
                    "engine": "llm",
                    "llm": {"base_url": "http://llm.models.svc/v1", "model": "a"},
                },
                "verification": {"engine": "reference"},
                "captioning": {
                    "models": {
                        "osprey 13b": {
                            "base_url": "https://osprey.example:8443/v1",
                            "model": "osprey",
                            "api_key_env": "OSPREY_KEY",
                        }
                    }
                },
                "generation": {"engine": "openai", "llm": {"base_url": "https://d.example/v1", "model": "d"}},
                "triton": {"url": "triton.models.svc:8001"},
                "gateway": {"sampling": [{"rate": 0.1, "tenant": 'a "quoted" one'}, {"rate": 1}]},
                "protocols": {"faithscore": {"weights": {"count": 2, "color": 0.5}}},
                "telemetry": {"traces": "http://collector.monitoring.svc:4318"},
            },
            "apiKeys": {"OSPREY_KEY": {"secret": "osprey", "key": "key"}},
            "networkPolicy": {
                "llmEgress": [
                    {"to": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"port": 8000}]}
                ]
            },
        },
    ),
    "second-opinion": (
        (),
        {
            **LLM,
            "settings": {
                "extraction": {"engine": "llm"},
                "matching": {"engine": "llm"},
                "verification": {"engine": "reference"},
                "judges": {
                    "strong": {
                        "verification": {
                            "engine": "llm",
                            "llm": {
                                "base_url": "https://strong.example:8443/v1",
                                "model": "strong",
                                "api_key_env": "STRONG_KEY",
                            },
                        }
                    }
                },
                "second_opinion": {"judge": "strong", "share": 0.05},
            },
            "apiKeys": {"STRONG_KEY": {"secret": "strong", "key": "key"}},
        },
    ),
    "without-extras": (
        (),
        {
            **LLM,
            "networkPolicy": {"enabled": False},
            "podDisruptionBudgets": {"enabled": False},
            "topologySpread": {"enabled": False},
            "provisioning": {"enabled": False},
            "stages": {"captioning": {"enabled": False}, "generation": {"enabled": False}},
        },
    ),
}
"""Values that must render, by name: profiles, then what is set on top."""


def find_helm() -> str | None:
    """`GROUNDWATCH_HELM`, else beside this interpreter (fetch_helm.py), else on PATH."""
    beside = Path(sys.executable).with_name("helm")
    return os.environ.get("GROUNDWATCH_HELM") or (str(beside) if beside.is_file() else shutil.which("helm"))


def helm(*arguments: str, values: Object | None = None) -> subprocess.CompletedProcess[str]:
    """Run helm; `values` come on top of what the arguments name."""
    binary = find_helm()
    assert binary is not None
    return subprocess.run(
        [binary, *arguments, *(["--values", "-"] if values is not None else [])],
        input=json.dumps(values) if values is not None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def template(profiles: tuple[str, ...], values: Object) -> subprocess.CompletedProcess[str]:
    """`helm template` with these profiles and values."""
    files = [part for name in profiles for part in ("--values", str(CHART / f"values-{name}.yaml"))]
    return helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *files, values=values)


@functools.cache
def _rendered(case: str) -> str:
    done = template(*CASES[case])
    assert done.returncode == 0, done.stderr
    return json.dumps([one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one])


def rendered(case: str) -> list[Object]:
    """Every object of a case, the caller's own to change."""
    found: list[Object] = json.loads(_rendered(case))
    return found


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    """Those of these kinds."""
    return [one for one in objects if one["kind"] in kinds]


def named(objects: list[Object], kind: str, name: str) -> Object:
    """The one of this kind and name, without the release's prefix."""
    (found,) = (
        one for one in of_kind(objects, kind) if one["metadata"]["name"] == f"{RELEASE}-groundwatch-{name}"
    )
    return found


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Every pod's template as (what makes it, metadata and spec)."""
    for one in objects:
        if one["kind"] == "Pod":
            yield one["metadata"]["name"], one
        elif one["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield f"{one['kind']} {one['metadata']['name']}", one["spec"]["template"]
        elif one["kind"] == "CronJob":
            yield f"Job {one['metadata']['name']}", one["spec"]["jobTemplate"]["spec"]["template"]


def containers(pod: Object) -> list[Object]:
    """All of a pod's containers."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def closed(schema: Any) -> Any:
    """The schema with unknown fields refused, as the API server's strict validation does."""
    if isinstance(schema, dict):
        free = schema.get("x-kubernetes-preserve-unknown-fields")
        if schema.get("type") == "object" and "properties" in schema and not free:
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            closed(value)
    elif isinstance(schema, list):
        for value in schema:
            closed(value)
    return schema
