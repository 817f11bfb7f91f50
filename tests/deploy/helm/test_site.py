"""What a cluster of one's own demands: placement, accounts, certificates, routes, a pod for operators."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml
from tests.deploy.helm.charts import (
    LLM,
    NAMESPACE,
    Object,
    containers,
    named,
    of_kind,
    pods,
    rendered,
    template,
)

from groundwatch.runtime.services.run import DRAIN_SECONDS
from groundwatch.runtime.settings.reading import load

pytestmark = pytest.mark.slow


def owner(name: str) -> str:
    """What makes a pod, without kind and release."""
    return name.partition(" ")[2].removeprefix("gw-groundwatch-") or name.removeprefix("gw-groundwatch-")


def test_placement_holds_for_every_pod() -> None:
    for name, pod in pods(rendered("cloud")):
        spec, metadata = pod["spec"], pod["metadata"]
        job = owner(name).startswith("provision")
        assert spec["nodeSelector"] == {"pool": "jobs" if job else "watch"}, name
        assert {"key": "watch", "operator": "Exists"} in spec["tolerations"]
        assert spec["affinity"] == {"nodeAffinity": {}}
        assert spec["runtimeClassName"] == ("runc" if job else "gvisor")
        (spread,) = spec["topologySpreadConstraints"]
        assert spread["maxSkew"] == 2
        assert spread["labelSelector"]["matchLabels"].items() <= metadata["labels"].items()
        assert metadata["annotations"]["team"] == "watch"
        assert metadata["labels"]["azure.workload.identity/use"] == "true"
        security = spec["securityContext"]
        assert "runAsUser" not in security
        assert security.get("fsGroup") == (3000 if owner(name) == "nats" else None)


def test_clouds_know_the_pods_by_their_accounts() -> None:
    accounts = of_kind(rendered("cloud"), "ServiceAccount")
    for one in accounts:
        assert one["metadata"]["annotations"]["eks.amazonaws.com/role-arn"] == "arn:aws:iam::1:role/watch"
        assert one["metadata"]["labels"]["team"] == "watch"
        assert (one["metadata"]["annotations"].get("own") == "1") == one["metadata"]["name"].endswith(
            "-archive"
        )


def test_every_process_has_the_environment_the_volumes_and_the_certificates_of_the_site() -> None:
    for name, pod in pods(rendered("cloud")):
        for container in containers(pod):
            if (
                container["name"] in ("nats", "reloader", "store")
                or container.get("command", [""])[0] == "python3"
            ):
                continue
            variables = {one["name"]: one.get("value") for one in container["env"]}
            assert variables["HTTPS_PROXY"] == "http://proxy.example:3128", name
            assert container["envFrom"] == [{"configMapRef": {"name": "site"}}]
            assert variables["SSL_CERT_FILE"] == "/run/secrets/groundwatch/bundle/bundle.crt"
            mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
            assert mounts["/etc/site"] == "site"
            (bundle,) = (
                one["configMap"]
                for one in pod["spec"]["volumes"]
                if one["name"] == mounts["/run/secrets/groundwatch/bundle"]
            )
            assert bundle == {"name": "trusted", "items": [{"key": "bundle.pem", "path": "bundle.crt"}]}
            # Whoever reads events may find them in the archive.
            assert variables["AWS_REGION"] == "eu-central-1"


def test_names_and_what_a_cloud_tells_its_pods_are_reached() -> None:
    for one in of_kind(rendered("cloud"), "NetworkPolicy"):
        rules = one["spec"]["egress"]
        assert {"ports": [{"port": 5353, "protocol": "UDP"}]} in rules
        metadata = any("169.254.169.254/32" in str(rule.get("to")) for rule in rules)
        assert metadata != one["metadata"]["name"].endswith("-nats")


def test_jwt_credentials_and_certificates_of_clients() -> None:
    objects = rendered("jwt")
    assert "verify: true" in named(objects, "ConfigMap", "nats-config")["data"]["nats.conf"]
    for component, secret, certificate in (
        ("gateway", "nkey-gateway", "client-gateway"),
        ("scoring", "nkey-scoring", "client"),
        ("toolbox", "nkey-cli", "client"),
    ):
        spec = named(objects, "Deployment", component)["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        variables = {one["name"]: one.get("value") for one in container["env"]}
        assert "GROUNDWATCH_NATS__NKEY_SEED_FILE" not in variables
        held = {one["name"]: one["secret"] for one in spec["volumes"] if "secret" in one}
        folders = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        for variable, name in (("CREDENTIALS", secret), ("TLS_CERT", certificate), ("TLS_KEY", certificate)):
            folder, _, file = variables[f"GROUNDWATCH_NATS__{variable}"].rpartition("/")
            assert held[folders[folder]]["secretName"] == name
            assert file in [one["path"] for one in held[folders[folder]]["items"]]


def closed(**properties: Any) -> Object:
    """An object with these keys alone."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def many(items: Object) -> Object:
    return {"type": "array", "minItems": 1, "items": items}


TEXT, PORT = {"type": "string"}, {"type": "integer", "minimum": 1, "maximum": 65535}
ROUTE = closed(
    parentRefs=many({**closed(name=TEXT, namespace=TEXT, sectionName=TEXT), "required": ["name"]}),
    hostnames=many(TEXT),
    rules=many(
        closed(
            matches=many(closed(path=closed(type={"enum": ["Exact", "PathPrefix"]}, value=TEXT))),
            backendRefs=many({**closed(name=TEXT, port=PORT), "required": ["name", "port"]}),
        )
    ),
)
"""What the Gateway API calls these fields (gateway.networking.k8s.io/v1)."""


def test_routes_of_the_gateway_api_lead_to_the_service(tmp_path: Any) -> None:
    objects = rendered("cloud")
    ports = {one["name"]: one["port"] for one in named(objects, "Service", "gateway")["spec"]["ports"]}
    for kind, name, port in (("HTTPRoute", "gateway", "http"), ("GRPCRoute", "gateway-grpc", "grpc")):
        route = named(objects, kind, name)
        assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
        jsonschema.validate(route["spec"], ROUTE)
        ((backend,),) = (rule["backendRefs"] for rule in route["spec"]["rules"])
        assert backend == {"name": "gw-groundwatch-gateway", "port": ports[port]}
    path = tmp_path / "settings.toml"
    path.write_text(named(objects, "ConfigMap", "settings")["data"]["groundwatch.toml"])
    assert "watch.example" in load(path, {}).gateway.hosts


def test_gateways_scale_by_their_processors_and_stop_when_nobody_sends(tmp_path: Any) -> None:
    objects = rendered("cloud")
    scaler = named(objects, "HorizontalPodAutoscaler", "gateway")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "gw-groundwatch-gateway"
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 9)
    path = tmp_path / "settings.toml"
    path.write_text(named(objects, "ConfigMap", "settings")["data"]["groundwatch.toml"])
    delay = load(path, {}).gateway.drain_delay
    assert delay >= 5
    spec = named(objects, "Deployment", "gateway")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] >= delay + DRAIN_SECONDS + 10


def test_what_a_site_brings_itself_is_there() -> None:
    objects = rendered("site")
    own = {one["metadata"]["name"]: one for one in of_kind(objects, "ConfigMap")}
    assert own["gw-own"]["data"] == {"a": "b"} and "gw-groundwatch-text" in own
    made = [one for one in objects if one["metadata"]["name"] not in ("gw-own", "gw-groundwatch-text")]
    assert {one["metadata"]["labels"]["team"] for one in made} == {"watch"}
    for name, pod in pods(objects):
        # A selector never changes: only what is new has the label.
        assert pod["metadata"]["labels"]["team"] == "watch"
        before = [one["name"] for one in pod["spec"].get("initContainers", [])]
        beside = [one["name"] for one in pod["spec"]["containers"]]
        groundwatch = owner(name) != "nats"
        assert ("before" in before) == groundwatch, name
        assert ("own" in before) == (owner(name) == "scoring")
        # A Job would never end beside one that does not.
        job = name.startswith(("Job", "CronJob")) or pod.get("kind") == "Pod"
        assert ("beside" in beside) == (groundwatch and not job), name
    for one in of_kind(objects, "Deployment"):
        assert "team" not in one["spec"]["selector"]["matchLabels"]


def test_a_rollout_has_failed_only_when_its_pods_have() -> None:
    for case in ("site", "production-gpu"):
        for one in of_kind(rendered(case), "Deployment"):
            for container in one["spec"]["template"]["spec"]["containers"]:
                probe = container.get("startupProbe")
                if probe is not None:
                    longest = probe["periodSeconds"] * probe["failureThreshold"]
                    assert one["spec"]["progressDeadlineSeconds"] > longest, one["metadata"]["name"]


def test_doors_of_a_site() -> None:
    objects = rendered("site")
    assert named(objects, "Service", "gateway")["spec"]["loadBalancerSourceRanges"] == ["203.0.113.0/24"]
    ingress = named(objects, "Ingress", "gateway")["spec"]
    assert ingress["tls"] == [{"secretName": "tls", "hosts": ["a.example", "b.example", "c.example"]}]
    paths = {rule["host"]: [path["path"] for path in rule["http"]["paths"]] for rule in ingress["rules"]}
    assert paths == {"a.example": ["/"], "b.example": ["/", "/v1"], "c.example": ["/"]}
    scaler = named(objects, "HorizontalPodAutoscaler", "gateway")["spec"]
    used = {
        one["resource"]["name"]: one["resource"]["target"]["averageUtilization"] for one in scaler["metrics"]
    }
    assert used == {"cpu": 60, "memory": 80}
    assert scaler["behavior"] == {"scaleDown": {"stabilizationWindowSeconds": 600}}
    (monitor,) = of_kind(objects, "PodMonitor")
    for port in monitor["spec"]["podMetricsEndpoints"]:
        assert [one["targetLabel"] for one in port["relabelings"]] == ["cluster", "region"]
        assert [one["action"] for one in port["metricRelabelings"]] == ["drop"]


def test_storage_of_a_site() -> None:
    objects = rendered("site")
    archive = named(objects, "StatefulSet", "archive")["spec"]
    assert "volumeClaimTemplates" not in archive
    for kind, name in (("StatefulSet", "archive"), ("Deployment", "toolbox")):
        volumes = named(objects, kind, name)["spec"]["template"]["spec"]["volumes"]
        claims = [
            one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one
        ]
        assert claims == ["mine"]
    (claim,) = named(objects, "StatefulSet", "nats")["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["annotations"] == {"backup": "daily"}


def test_cert_manager_writes_the_secret_that_the_servers_show() -> None:
    objects = rendered("site")
    certificate = named(objects, "Certificate", "nats")["spec"]
    assert certificate["issuerRef"] == {"group": "cert-manager.io", "kind": "Issuer", "name": "authority"}
    volumes = named(objects, "StatefulSet", "nats")["spec"]["template"]["spec"]["volumes"]
    shown = {one["secret"]["secretName"] for one in volumes if "secret" in one}
    assert shown == {certificate["secretName"]}
    host = f"gw-groundwatch-nats.{NAMESPACE}.svc"
    assert certificate["dnsNames"] == [host, f"*.gw-groundwatch-nats-headless.{NAMESPACE}.svc"]
    settings = named(objects, "ConfigMap", "settings")["data"]["groundwatch.toml"]
    assert f"tls://{host}:4222" in settings


def test_the_toolbox_is_the_operator() -> None:
    objects = rendered("auth")
    spec = named(objects, "Deployment", "toolbox")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert "args" not in container
    held = {one["name"]: one["secret"]["secretName"] for one in spec["volumes"] if "secret" in one}
    found = {one["mountPath"]: held[one["name"]] for one in container["volumeMounts"] if one["name"] in held}
    assert found == {
        "/run/secrets/groundwatch/nats": "nkey-cli",
        "/run/secrets/groundwatch/ca": "ca",
        **{
            f"/run/secrets/groundwatch/users/{user}": f"nkey-{user}"
            for user in ("provision", "replay", "erase")
        },
    }
    gateway = named(objects, "Deployment", "gateway")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == gateway["image"]
    # The archive is on a volume for one node.
    assert "podAffinity" in spec["affinity"]
    assert named(rendered("cloud"), "Deployment", "toolbox")["spec"]["replicas"] == 0


def test_the_services_ask_the_servers_how_they_are(tmp_path: Any) -> None:
    objects = rendered("production")
    path = tmp_path / "settings.toml"
    path.write_text(named(objects, "ConfigMap", "settings")["data"]["groundwatch.toml"])
    settings = load(path, {})
    headless = named(objects, "Service", "nats-headless")["metadata"]["name"]
    assert settings.nats.monitor_url.split(",") == [
        f"http://gw-groundwatch-nats-{number}.{headless}.{NAMESPACE}.svc:8222" for number in range(3)
    ]
    most = {
        one["metadata"]["name"].removeprefix("gw-groundwatch-"): one["spec"]["maxReplicaCount"]
        for one in of_kind(objects, "ScaledObject")
    }
    for stage in ("extraction", "captioning", "generation", "matching", "verification", "scoring"):
        assert getattr(settings, stage).replicas == most[stage]


def test_keda_says_to_prometheus_who_it_is() -> None:
    triggers = [
        trigger
        for case in ("tritons", "production")
        for one in of_kind(rendered(case), "ScaledObject")
        for trigger in one["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    ]
    told = [(one.get("authenticationRef"), one["metadata"].get("authModes")) for one in triggers]
    named = {"name": "prometheus", "kind": "ClusterTriggerAuthentication"}
    assert (named, "bearer") in told and (None, None) in told
    assert {reference is None for reference, modes in told if modes is None} == {True}


def test_the_toolbox_is_there_only_when_it_is_asked_for() -> None:
    for case in ("default", "production"):
        assert "toolbox" not in str([one["metadata"]["name"] for one in rendered(case)])


def test_an_archive_in_an_object_store_is_reached_at_its_port_alone() -> None:
    def ways(case_values: Object) -> list[Object]:
        done = template((), case_values)
        assert done.returncode == 0, done.stderr
        objects = [one for one in yaml.safe_load_all(done.stdout) if one]
        found: list[Object] = named(objects, "NetworkPolicy", "archive")["spec"]["egress"]
        return found

    place = {"url": "s3://a/b"}
    values: Object = {**LLM, "archive": {"enabled": True}, "settings": {"archive": place}}
    (public,) = (rule for rule in ways(values) if "ipBlock" in str(rule))
    assert public["ports"] == [{"port": 443, "protocol": "TCP"}]
    assert "10.0.0.0/8" in public["to"][0]["ipBlock"]["except"]
    store = {**place, "options": {"endpoint_url": "https://store.example.com:9000"}}
    (public,) = (rule for rule in ways(values | {"settings": {"archive": store}}) if "ipBlock" in str(rule))
    assert public["ports"] == [{"port": 9000, "protocol": "TCP"}]
    own = [{"to": [{"podSelector": {}}], "ports": [{"port": 9000, "protocol": "TCP"}]}]
    inside = {**place, "options": {"endpoint_url": "http://minio.storage.svc:9000"}}
    told = ways(values | {"settings": {"archive": inside}, "networkPolicy": {"archiveEgress": own}})
    assert own[0] in told and "ipBlock" not in str(told)


def test_the_program_of_nats_speaks_to_it_as_the_toolbox_does() -> None:
    spec = named(rendered("everything"), "Deployment", "toolbox")["spec"]["template"]["spec"]
    box = next(one for one in spec["containers"] if one["name"] == "nats")
    told = {one["name"]: one["value"] for one in box["env"]}
    assert told["NATS_URL"] == "tls://gw-groundwatch-nats.watch.svc:4222"
    mounted = {mount["mountPath"] for mount in box["volumeMounts"]}
    for name in ("NATS_NKEY", "NATS_CA"):
        assert told[name].rpartition("/")[0] in mounted
    assert "@sha256:" in box["image"]
