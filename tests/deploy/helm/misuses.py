"""Values that must be refused: each with the place that is named and a part of the sentence."""

from __future__ import annotations

from tests.deploy.helm.charts import AUTH, EXTERNAL_NATS, Object


def over(base: Object, change: Object) -> Object:
    """Values with others on top."""
    return {
        **base,
        **{
            key: over(base[key], value)
            if isinstance(value, dict) and isinstance(base.get(key), dict)
            else value
            for key, value in change.items()
        },
    }


OIDC: Object = {
    "issuer": "https://id.example",
    "client_id": "a",
    "groups": [{"name": "*", "role": "viewer", "tenant": "*"}],
}
SCALED: Object = {"autoscaling": {"enabled": True}}
TRITON: Object = {"triton": {"enabled": True}, "settings": {"verification": {"engine": "triton"}}}
EXTERNAL: Object = {"nats": {"enabled": False, "url": "nats://nats.example:4222"}}

MISSPELLED: dict[str, tuple[Object, str, str]] = {
    # The schema: misspelled, of the wrong type, out of bounds.
    "misspelled": ({"stagse": {}}, "at ''", "additional properties 'stagse' not allowed"),
    "misspelled-stage": ({"stages": {"extracton": {}}}, "at '/stages'", "'extracton' not allowed"),
    "misspelled-key": (
        {"stages": {"scoring": {"replcas": 2}}},
        "at '/stages/scoring'",
        "'replcas' not allowed",
    ),
    "misspelled-setting": ({"settings": {"retry": {"atempts": 3}}}, "at '/settings/retry'", "'atempts'"),
    "misspelled-engine": (
        {"settings": {"verification": {"engine": "lm"}}},
        "at '/settings/verification/engine'",
        "must be one of",
    ),
    "misspelled-service": (
        {"nats": {"auth": {"secrets": {"scorin": "a"}}}},
        "at '/nats/auth/secrets'",
        "'scorin'",
    ),
    "chart-decides": (
        {"settings": {"nats": {"url": "nats://a:4222"}}},
        "at '/settings/nats'",
        "'url' not allowed",
    ),
    "port-of-settings": ({"settings": {"telemetry": {"port": 1}}}, "at '/settings/telemetry'", "'port'"),
    "text-for-a-number": ({"gateway": {"replicas": "2"}}, "at '/gateway/replicas'", "want integer"),
    "no-gateway": ({"gateway": {"replicas": 0}}, "at '/gateway/replicas'", "minimum"),
    "two-servers": ({"nats": {"replicas": 2}}, "at '/nats/replicas'", "must be one of 1, 3, 5"),
    "sync": ({"nats": {"sync": "sometimes"}}, "at '/nats/sync'", "pattern"),
    "disk": ({"nats": {"storage": {"size": "20GB"}}}, "at '/nats/storage/size'", "pattern"),
    "quantity": (
        {"stageDefaults": {"resources": {"limits": {"memory": "512MB"}}}},
        "at '/stageDefaults/resources/limits/memory'",
        "pattern",
    ),
    "digest": ({"image": {"digest": "sha256:abc"}}, "at '/image/digest'", "pattern"),
    "rate": (
        {"settings": {"gateway": {"sampling": [{"rate": 10}]}}},
        "at '/settings/gateway/sampling/0/rate'",
        "maximum",
    ),
    "root": ({"runAsUser": 0}, "at '/runAsUser'", "minimum"),
    "short-grace": ({"terminationGracePeriodSeconds": 10}, "at '/terminationGracePeriodSeconds'", "minimum"),
    "secret-name": ({"nats": {"auth": {"caSecret": "My Secret"}}}, "at '/nats/auth/caSecret'", "pattern"),
    "secret-value": (
        {"apiKeys": {"OPENAI_API_KEY": "sk-123"}},
        "at '/apiKeys/OPENAI_API_KEY'",
        "want object",
    ),
    "peer": (
        {"networkPolicy": {"gatewayClients": [{"podselector": {}}]}},
        "gatewayClients/0",
        "'podselector'",
    ),
    "service-type": (
        {"gateway": {"service": {"type": "Public"}}},
        "at '/gateway/service/type'",
        "must be one of",
    ),
    "llm-address": ({"llm": {"baseUrl": "llm.example"}}, "at '/llm/baseUrl'", "pattern"),
}

UNFIT: dict[str, tuple[Object, str, str]] = {
    # Who may, where nobody is asked.
    "closed-to-everybody": ({"gateway": {"open": False}}, "gateway.open", "name a Secret of tokens"),
    "open-by-ingress": (
        {"gateway": {"ingress": {"enabled": True, "host": "watch.example"}}},
        "gateway.ingress.enabled",
        "say gateway.open=true",
    ),
    "open-by-route": (
        {"gateway": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "a"}], "hostnames": ["b.c"]}}},
        "gateway.httpRoute.enabled",
        "ask nobody",
    ),
    "open-by-grpc": (
        {"gateway": {"grpc": {"enabled": True, "ingress": {"enabled": True, "host": "grpc.example"}}}},
        "gateway.grpc.ingress.enabled",
        "ask nobody",
    ),
    "open-by-grpc-route": (
        {
            "gateway": {
                "grpc": {
                    "enabled": True,
                    "grpcRoute": {"enabled": True, "parentRefs": [{"name": "a"}], "hostnames": ["b.c"]},
                }
            }
        },
        "gateway.grpc.grpcRoute.enabled",
        "ask nobody",
    ),
    "open-by-service": (
        {"gateway": {"service": {"type": "LoadBalancer"}}},
        "gateway.service.type",
        "ask nobody",
    ),
    # What the schema cannot say.
    "no-model": (
        {"llm": {"baseUrl": "", "model": "", "apiKey": {"secret": ""}}},
        "llm.baseUrl",
        "stage extraction",
    ),
    "no-model-name": ({"llm": {"model": ""}}, "llm.model", "name the model"),
    "model-without-address": ({"llm": {"baseUrl": ""}}, "llm.baseUrl", "is empty, but"),
    "nobody-asks": (
        {"settings": {"extraction": {"engine": "noop"}, "verification": {"engine": "reference"}}},
        "llm.baseUrl",
        "no stage would ask it",
    ),
    "generator": (
        {"settings": {"generation": {"engine": "openai"}}},
        "settings.generation.llm",
        "base_url and model",
    ),
    "heavy-engine": (
        {"settings": {"matching": {"engine": "semantic"}}},
        "settings.matching.engine",
        "light image lacks",
    ),
    "latest": ({"image": {"tag": "latest"}}, "image.tag", "name a version"),
    "latest-nats": ({"nats": {"image": {"tag": "latest"}}}, "nats.image.tag", "name a version"),
    "latest-stage": (
        {"stages": {"scoring": {"image": {"tag": "latest"}}}},
        "stages.scoring.image.tag",
        "name a version",
    ),
    "secret-in-env": (
        {"stages": {"scoring": {"env": [{"name": "MY_TOKEN", "value": "x"}]}}},
        "stages.scoring.env",
        "MY_TOKEN looks like a secret",
    ),
    "setting-in-env": (
        {"gateway": {"env": [{"name": "GROUNDWATCH_GATEWAY__PORT", "value": "1"}]}},
        "gateway.env",
        "is a setting",
    ),
    "key-nobody-uses": (
        {"apiKeys": {"OTHER_KEY": {"secret": "a", "key": "b"}}},
        "apiKeys.OTHER_KEY",
        "no stage's settings name it",
    ),
    "both-nats": ({"nats": {"url": "nats://a:4222"}}, "nats.url", "nats.enabled=false"),
    "no-nats": ({"nats": {"enabled": False}}, "nats.url", "is needed"),
    "password": (
        {"nats": {"enabled": False, "url": "nats://me:secret@a:4222"}},
        "nats.url",
        "without user and password",
    ),
    "nats-scheme": ({"nats": {"enabled": False, "url": "http://a:4222"}}, "nats.url", "no address such as"),
    "keda-in-the-dark": (over(EXTERNAL, SCALED), "nats.monitoring.endpoint", "KEDA needs"),
    "own-monitoring": (
        {"nats": {"monitoring": {"endpoint": "a:8222"}}},
        "nats.monitoring.endpoint",
        "existing NATS",
    ),
    "copies": ({"nats": {"streamReplicas": 3}}, "nats.streamReplicas", "3 copies do not fit"),
    "foreign-certificate": (
        over(EXTERNAL_NATS, {"nats": {"tls": {"secret": "a"}}}),
        "nats.tls.secret",
        "has its certificate",
    ),
    "no-trust": ({"nats": {"tls": {"secret": "a"}}}, "nats.auth.caSecret", "is needed"),
    "no-certificate": ({"nats": {"auth": {"caSecret": "a"}}}, "nats.tls.secret", "is needed"),
    "no-users": (
        {"nats": {"tls": {"secret": "a"}, "auth": {**AUTH, "serverConfigSecret": ""}}},
        "nats.auth.serverConfigSecret",
        "auth.conf",
    ),
    "no-seed": (
        {
            "nats": {
                "tls": {"secret": "a"},
                "auth": {**AUTH, "secrets": {k: v for k, v in AUTH["secrets"].items() if k != "scoring"}},
            }
        },
        "nats.auth.secrets.scoring",
        "name the Secret",
    ),
    "auth-off": ({"nats": {"auth": {"secrets": {"gateway": "a"}}}}, "nats.auth.enabled", "is false, but"),
    "no-extraction": (
        {"stages": {"extraction": {"enabled": False}}},
        "stages.extraction.enabled",
        "every response",
    ),
    "no-scoring": ({"stages": {"scoring": {"enabled": False}}}, "stages.scoring.enabled", "every response"),
    "fewest-above-most": (
        over(SCALED, {"stages": {"matching": {"autoscaling": {"minReplicas": 11}}}}),
        "stages.matching.autoscaling",
        "minReplicas 11 is above maxReplicas 10",
    ),
    "two-deciders": (
        over(SCALED, {"stages": {"matching": {"replicas": 2}}}),
        "stages.matching.replicas",
        "autoscaling decides",
    ),
    "two-thresholds": (
        over(SCALED, {"stages": {"matching": {"autoscaling": {"lagThreshold": 5, "targetDelaySeconds": 9}}}}),
        "stages.matching.autoscaling",
        "the same thing",
    ),
    "idle-scaling": (
        {"stages": {"matching": {"autoscaling": {"maxReplicas": 5}}}},
        "stages.matching.autoscaling",
        "does nothing",
    ),
    "no-triton": (
        {"settings": {"verification": {"engine": "triton"}}},
        "settings.verification.engine",
        "set triton.enabled=true",
    ),
    "one-protocols-triton": (
        {"settings": {"verification": {"protocols": {"faithscore": {"engine": "triton"}}}}},
        "settings.verification.engine",
        "set triton.enabled=true",
    ),
    "one-protocols-model-inside": (
        {"settings": {"verification": {"protocols": {"tri-he": {"engine": "similarity"}}}}},
        "settings.verification.engine",
        "similarity runs a model inside the service",
    ),
    "one-protocols-llm": (
        {
            "llm": {"baseUrl": "", "model": "", "apiKey": {"secret": ""}},
            "settings": {
                "extraction": {"engine": "noop"},
                "verification": {"engine": "reference", "protocols": {"tri-he": {"engine": "llm"}}},
            },
        },
        "llm.baseUrl",
        "stage verification has the engine llm and needs a model",
    ),
    "a-cascades-triton": (
        {"settings": {"verification": {"cascade": [{"engine": "triton"}, {"engine": "reference"}]}}},
        "settings.verification.engine",
        "set triton.enabled=true",
    ),
    "a-cascades-llm": (
        {
            "llm": {"baseUrl": "", "model": "", "apiKey": {"secret": ""}},
            "settings": {
                "extraction": {"engine": "noop"},
                "verification": {
                    "protocols": {
                        "pope": {
                            "engine": "cascade",
                            "cascade": [{"engine": "reference"}, {"engine": "visual"}],
                        }
                    }
                },
            },
        },
        "llm.baseUrl",
        "stage verification has the engine llm and needs a model",
    ),
    "idle-triton": ({"triton": {"enabled": True}}, "triton.enabled", "no stage would ask it"),
    "two-tritons": (
        over(TRITON, {"settings": {"triton": {"url": "a:8001"}}}),
        "settings.triton.url",
        "leave one of them out",
    ),
    "shared-volume": (
        over(TRITON, {"triton": {"replicas": 2, "cache": {"size": "10Gi"}}}),
        "triton.cache.accessMode",
        "ReadWriteMany",
    ),
    "blind-triton": (
        over(TRITON, {"triton": {"autoscaling": {"enabled": True}}}),
        "triton.autoscaling.prometheusUrl",
        "name the Prometheus",
    ),
    "triton-off": (
        {"triton": {"autoscaling": {"enabled": True}}},
        "triton.autoscaling.enabled",
        "nothing to scale",
    ),
    "request-above-limit": (
        {"stages": {"scoring": {"resources": {"requests": {"memory": "2Gi"}}}}},
        "stages.scoring.resources.requests.memory",
        "2Gi is more than the limit 512Mi",
    ),
    "cores-above-limit": (
        {"gateway": {"resources": {"requests": {"cpu": "2500m"}}}},
        "gateway.resources.requests.cpu",
        "more than the limit",
    ),
    "no-limit": (
        {"nats": {"resources": {"limits": {"memory": None}}}},
        "nats.resources.limits.memory",
        "is needed",
    ),
    "no-host": ({"gateway": {"ingress": {"enabled": True}}}, "gateway.ingress.host", "name the host"),
    "ingress-off": (
        {"gateway": {"ingress": {"host": "a.example"}}},
        "gateway.ingress.enabled",
        "is false, but",
    ),
    "login-nowhere": (
        {"settings": {"gateway": {"login": {"oidc": OIDC}}}},
        "gateway.login.url",
        "where browsers",
    ),
    "login-apart": (
        {
            "gateway": {"replicas": 2, "login": {"url": "https://a.example"}},
            "settings": {"gateway": {"login": {"oidc": OIDC}}},
        },
        "gateway.login.cookieSecret",
        "several gateways need one secret",
    ),
    "login-of-nobody": (
        {"gateway": {"login": {"clientSecret": "a"}}},
        "settings.gateway.login.oidc",
        "name the provider",
    ),
    "grpc-off": ({"gateway": {"grpc": {"tlsSecret": "a"}}}, "gateway.grpc.enabled", "is false, but"),
    "grpc-no-host": (
        {"gateway": {"grpc": {"enabled": True, "ingress": {"enabled": True}}}},
        "gateway.grpc.ingress.host",
        "name the host",
    ),
    "grpc-port": (
        {"gateway": {"grpc": {"enabled": True, "port": 8787}}},
        "gateway.grpc.port",
        "choose another",
    ),
    "grpc-same-host": (
        {
            "gateway": {
                "ingress": {"enabled": True, "host": "a.example"},
                "grpc": {"enabled": True, "ingress": {"enabled": True, "host": "a.example"}},
            }
        },
        "gateway.grpc.ingress.host",
        "a host of its own",
    ),
    "grpc-in-settings": (
        {"settings": {"gateway": {"grpc_port": 1}}},
        "at '/settings/gateway'",
        "'grpc_port' not allowed",
    ),
    "blind-replays": (
        {"replay": {"enabled": True, "autoscaling": {"enabled": True}}},
        "replay.autoscaling.prometheusUrl",
        "name the Prometheus",
    ),
    "light-replays": (
        {
            "settings": {"matching": {"engine": "semantic"}},
            "stages": {"matching": {"image": {"repository": "embedded", "tag": "1"}}},
            "replay": {"enabled": True},
        },
        "replay.image",
        "settings.matching.engine too, semantic",
    ),
    "replays-off": (
        {"replay": {"autoscaling": {"enabled": True}}},
        "replay.autoscaling.enabled",
        "nothing to scale",
    ),
    "retention-off": (
        {"settings": {"retention": {"responses": 3}}},
        "retention.enabled",
        "nobody would keep to it",
    ),
    "schedule": (
        {"retention": {"enabled": True, "schedule": "hourly"}},
        "at '/retention/schedule'",
        "pattern",
    ),
    "same-port": ({"telemetry": {"port": 8787}}, "telemetry.port", "gateway's own"),
    "model-inside": (
        {"llm": {"baseUrl": "http://vllm.models.svc:8000/v1"}},
        "networkPolicy.llmEgress",
        "llm.baseUrl is http://vllm.models.svc:8000/v1, inside the cluster",
    ),
    "a-cascades-model-inside": (
        {
            "settings": {
                "verification": {
                    "cascade": [
                        {"engine": "reference"},
                        {
                            "engine": "llm",
                            "llm": {"base_url": "http://vllm.models.svc:8000/v1", "model": "m"},
                        },
                    ]
                }
            }
        },
        "networkPolicy.llmEgress",
        "settings.verification.cascade[1].llm.base_url is http://vllm.models.svc:8000/v1, inside the cluster",
    ),
    "outflow-off": (
        {"settings": {"outflow": {"receivers": {"a": {"kind": "phoenix", "url": "http://p"}}}}},
        "outflow.enabled",
        "is false, but",
    ),
    "outflow-without-receivers": ({"outflow": {"enabled": True}}, "settings.outflow.receivers", "name a"),
    "archive-off": ({"settings": {"archive": {"url": "s3://a/b"}}}, "archive.enabled", "is false, but"),
    "cold-on-a-volume": (
        {"archive": {"enabled": True}, "settings": {"archive": {"hot_days": 3}}},
        "settings.archive.url",
        "name an object store, such as s3://bucket/path, or set settings.archive.hot_days to 30: it is 3,",
    ),
    "store-above-the-volume": (
        {"nats": {"jetstream": {"maxFileStore": "60Gi"}}},
        "nats.jetstream.maxFileStore",
        "more than the volume (nats.storage.size 50Gi)",
    ),
    "store-below-the-load": (
        {"nats": {"jetstream": {"maxFileStore": "10Gi"}}},
        "nats.jetstream.maxFileStore",
        "10Gi is too small for load",
    ),
    "store-above-the-memory": (
        {"nats": {"jetstream": {"maxMemoryStore": "1500Mi"}}},
        "nats.jetstream.maxMemoryStore",
        "more than half of",
    ),
    "clients-unasked": ({"nats": {"tls": {"verifyClients": True}}}, "nats.tls.secret", "is needed"),
    "clients-without-certificates": (
        {"nats": {"tls": {"secret": "a", "verifyClients": True}, "auth": {"caSecret": "b"}}},
        "nats.auth.certificates",
        "name a Secret for `all`",
    ),
    "archive-inside": (
        {
            "archive": {"enabled": True},
            "settings": {
                "archive": {"url": "s3://a/b", "options": {"endpoint_url": "http://minio.storage.svc:9000"}}
            },
        },
        "networkPolicy.archiveEgress",
        "inside the cluster",
    ),
    "disk-too-small-for-the-load": (
        {"load": {"responsesPerSecond": 0.5}},
        "nats.storage.size",
        "0.5 responses a second with 200000 bytes of images for 30 days need",
    ),
    "memory-too-small-for-the-load": (
        {"load": {"responsesPerSecond": 3, "imageBytes": 0}, "nats": {"storage": {"size": "900Gi"}}},
        "nats.resources.limits.memory",
        "3 responses a second for 30 days need",
    ),
    "no-operator": (
        {
            "toolbox": {"enabled": True},
            "nats": {
                "tls": {"secret": "a"},
                "auth": {**AUTH, "secrets": {k: v for k, v in AUTH["secrets"].items() if k != "cli"}},
            },
        },
        "nats.auth.secrets.cli",
        "or set toolbox.enabled=false",
    ),
    "route-to-nowhere": (
        {"gateway": {"httpRoute": {"enabled": True, "hostnames": ["a.example"]}}},
        "gateway.httpRoute.parentRefs",
        "name the Gateway",
    ),
    "route-without-host": (
        {"gateway": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "a"}]}}},
        "gateway.httpRoute.hostnames",
        "name the host",
    ),
    "route-off": (
        {"gateway": {"httpRoute": {"hostnames": ["a.example"]}}},
        "gateway.httpRoute.enabled",
        "false",
    ),
    "route-to-closed-grpc": (
        {
            "gateway": {
                "grpc": {
                    "grpcRoute": {"enabled": True, "parentRefs": [{"name": "a"}], "hostnames": ["a.example"]}
                }
            }
        },
        "gateway.grpc.enabled",
        "its grpcRoute",
    ),
    "gateways-upside-down": (
        {"gateway": {"autoscaling": {"enabled": True, "minReplicas": 9}}},
        "gateway.autoscaling",
        "minReplicas 9 is above maxReplicas 6",
    ),
    "two-bundles": ({"caBundle": {"secret": "a", "configMap": "b"}}, "caBundle", "not both"),
    "own-labels": (
        {"podLabels": {"app.kubernetes.io/name": "mine"}},
        "invalid propertyName",
        "app.kubernetes.io/name",
    ),
    "secret-for-all": (
        {"extraEnv": [{"name": "A_TOKEN", "value": "x"}]},
        "extraEnv",
        "A_TOKEN looks like a secret",
    ),
    "endpoint-overrun": (
        {"llm": {"capacity": 30}},
        "llm.capacity",
        "extraction, verification could ask for 32 at once",
    ),
    "endpoint-overrun-when-scaled": (
        over(SCALED, {"llm": {"capacity": 300}}),
        "llm.capacity",
        "could ask for 320 at once",
    ),
    "models-overrun": (
        over(TRITON, {"triton": {"capacity": 16, "replicas": 1}}),
        "triton.capacity",
        "verification could ask for 32 at once",
    ),
    "server-for-nobody": (
        over(TRITON, {"triton": {"servers": {"a": {"stages": ["verification", "captioning"]}}}}),
        "triton.servers.a.stages",
        "captioning does not ask Triton",
    ),
    "stage-without-server": (
        over(
            TRITON,
            {
                "settings": {"captioning": {"engine": "triton"}},
                "triton": {"servers": {"a": {"stages": ["verification"]}}},
            },
        ),
        "triton.servers",
        "captioning asks Triton, and no server has it",
    ),
    "two-servers-for-one": (
        over(
            TRITON,
            {"triton": {"servers": {"a": {"stages": ["verification"]}, "b": {"stages": ["verification"]}}}},
        ),
        "triton.servers.b.stages",
        "one is at triton.servers.a already",
    ),
    "servers-off": (
        {"triton": {"servers": {"a": {"stages": ["verification"]}}}},
        "triton.enabled",
        "is false, but",
    ),
    "nobody-wakes-it": (
        over(
            over(EXTERNAL, TRITON),
            {
                "triton": {
                    "autoscaling": {"enabled": True, "minReplicas": 0, "prometheusUrl": "http://p:9090"}
                }
            },
        ),
        "triton.autoscaling.minReplicas",
        "only the backlog starts a server",
    ),
    "delays": ({"settings": {"retry": {"max_delay": 0.5}}}, "settings.retry.max_delay", "must not be below"),
}
