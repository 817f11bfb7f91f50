"""What a schema cannot know: that the objects fit each other, and what no pod of ours may lack."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.helm.charts import CASES, LLM, Object, containers, named, of_kind, pods, rendered, template

from groundwatch.runtime.services.run import DRAIN_SECONDS
from groundwatch.runtime.settings.reading import load
from groundwatch.topology import STAGES

pytestmark = pytest.mark.slow

every_case = pytest.mark.parametrize("case", CASES)

QUANTITY = re.compile(r"^\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")
UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    f"{unit}i": 1024.0**power for power, unit in enumerate("KMGT", 1)
}


def amount(quantity: Any) -> float:
    """A quantity in its unit."""
    written = str(quantity)
    assert QUANTITY.match(written), written
    unit = written.lstrip("0123456789.")
    return float(written.removesuffix(unit)) * UNITS[unit]


def selects(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a label selector takes these labels."""
    for one in selector.get("matchExpressions", ()):
        assert one["operator"] == "In"
        if labels.get(one["key"]) not in one["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


@every_case
def test_limits_and_requests(case: str) -> None:
    for _, pod in pods(rendered(case)):
        for container in containers(pod):
            requests, limits = container["resources"]["requests"], container["resources"]["limits"]
            for unit in ("cpu", "memory"):
                assert 0 < amount(requests[unit]) <= amount(limits[unit]), container["name"]
        for volume in pod["spec"].get("volumes", ()):
            if size := volume.get("emptyDir", {}).get("sizeLimit"):
                assert amount(size) > 0


@every_case
def test_no_pod_is_root_or_may_write_or_ask_the_api_server(case: str) -> None:
    objects = rendered(case)
    accounts = {one["metadata"]["name"]: one for one in of_kind(objects, "ServiceAccount")}
    assert not of_kind(objects, "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    for name, pod in pods(objects):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert accounts[spec["serviceAccountName"]]["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        # null leaves it to the cluster, which then gives every namespace users of its own.
        assert spec["securityContext"].get("runAsUser", 1 if case == "cloud" else 0) > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(pod):
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
        for volume in spec.get("volumes", ()):
            assert "hostPath" not in volume


@every_case
def test_images_have_a_version(case: str) -> None:
    for _, pod in pods(rendered(case)):
        for container in containers(pod):
            image = container["image"]
            assert "@sha256:" in image or re.search(r":\d[\w.-]*$", image), image


@every_case
def test_probes_ask_ports_that_there_are(case: str) -> None:
    for name, pod in pods(rendered(case)):
        if pod.get("kind") == "Pod" or name.startswith("Job ") or name.endswith("-toolbox"):
            continue
        own = {"reloader", "beside"}
        (container,) = (one for one in pod["spec"]["containers"] if one["name"] not in own)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert len(set(ports.values())) == len(ports)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["port"] in ports, (name, probe)


@pytest.mark.parametrize("service", ("gateway", *STAGES))
def test_ready_means_that_the_consumer_is_there(service: str) -> None:
    pod = named(rendered("default"), "Deployment", service)["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["args"][:2] == ["serve", service]
    paths = {
        probe: container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")
    }
    assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] > int(container["args"][-1])
    assert pod["spec"]["terminationGracePeriodSeconds"] > DRAIN_SECONDS


@every_case
def test_selectors_take_their_own_pods_and_no_others(case: str) -> None:
    objects = rendered(case)
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(objects)}
    for one in of_kind(objects, "Deployment", "StatefulSet"):
        own = f"{one['kind']} {one['metadata']['name']}"
        taken = [name for name, found in labels.items() if selects(one["spec"]["selector"], found)]
        assert taken == [own]
        for constraint in one["spec"]["template"]["spec"].get("topologySpreadConstraints", ()):
            assert [
                name for name, found in labels.items() if selects(constraint["labelSelector"], found)
            ] == [own]
    for one in of_kind(objects, "PodDisruptionBudget"):
        assert sum(selects(one["spec"]["selector"], found) for found in labels.values()) == 1
    ports = {
        name: {port["name"] for container in containers(pod) for port in container.get("ports", ())}
        for name, pod in pods(objects)
    }
    for one in of_kind(objects, "Service"):
        (pod,) = (
            name for name, found in labels.items() if selects({"matchLabels": one["spec"]["selector"]}, found)
        )
        assert {port["targetPort"] for port in one["spec"]["ports"]} <= ports[pod]


@every_case
def test_mounts_and_references_are_there(case: str) -> None:
    objects = rendered(case)
    maps = {one["metadata"]["name"] for one in of_kind(objects, "ConfigMap")}
    claims = {one["metadata"]["name"] for one in of_kind(objects, "PersistentVolumeClaim")}
    templates = {
        f"StatefulSet {one['metadata']['name']}": {
            claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", ())
        }
        for one in of_kind(objects, "StatefulSet")
    }
    for one in of_kind(objects, "StatefulSet"):
        # As Kubernetes names those that it makes from a template.
        claims |= {
            f"{name}-{one['metadata']['name']}-0"
            for name in templates[f"StatefulSet {one['metadata']['name']}"]
        }
    for name, pod in pods(objects):
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", ())} | templates.get(name, set())
        mounted = {mount["name"] for one in containers(pod) for mount in one.get("volumeMounts", ())}
        assert mounted == volumes, name
        for volume in pod["spec"].get("volumes", ()):
            assert volume.get("configMap", {}).get("name", "") in {"", "site", "trusted", *maps}
            assert volume.get("persistentVolumeClaim", {}).get("claimName", "") in {"", "mine", *claims}


@every_case
def test_secrets_only_by_reference(case: str) -> None:
    objects = rendered(case)
    assert not of_kind(objects, "Secret")
    for name, pod in pods(objects):
        for container in containers(pod):
            for variable in container.get("env", ()):
                if re.search(r"(?i)(key|token|secret|password)$", variable["name"]):
                    if variable.get("value", "").startswith("/run/secrets/"):
                        continue
                    assert "secretKeyRef" in variable["valueFrom"], (name, variable["name"])


def test_a_key_goes_only_to_the_stage_that_uses_it() -> None:
    holders = {
        variable["name"]: name
        for name, pod in pods(rendered("models-apart"))
        for container in containers(pod)
        for variable in container.get("env", ())
        if "valueFrom" in variable
    }
    assert holders["OSPREY_KEY"] == "Deployment gw-groundwatch-captioning"
    holders = {
        name
        for name, pod in pods(rendered("default"))
        for container in containers(pod)
        for variable in container.get("env", ())
        if variable["name"] == "LLM_API_KEY"
    }
    assert holders == {"Deployment gw-groundwatch-extraction", "Deployment gw-groundwatch-verification"}


def test_the_second_judges_key_and_way_are_the_annotation_services() -> None:
    objects = rendered("second-opinion")
    holders = [
        name
        for name, pod in pods(objects)
        for container in containers(pod)
        for variable in container.get("env", ())
        if variable["name"] == "STRONG_KEY"
    ]
    assert holders == ["Deployment gw-groundwatch-annotation"]
    ways = named(objects, "NetworkPolicy", "annotation")["spec"]["egress"]
    assert any({"port": 8443, "protocol": "TCP"} in rule.get("ports", ()) for rule in ways)


def test_each_service_has_its_own_seed() -> None:
    seeds = {
        name: volume["secret"]["secretName"]
        for name, pod in pods(rendered("auth"))
        for volume in pod["spec"].get("volumes", ())
        if volume["name"] == "nats-seed"
    }
    # The toolbox and `helm test` are both the operator.
    assert len(seeds) == len(set(seeds.values())) + 1 == len(STAGES) + 10
    for name, pod in pods(rendered("auth")):
        variables = {one["name"]: one.get("value") for item in containers(pod) for one in item.get("env", ())}
        if name in seeds:
            assert variables["GROUNDWATCH_NATS__NKEY_SEED_FILE"] == "/run/secrets/groundwatch/nats/seed"
            assert variables["GROUNDWATCH_NATS__TLS_CA"] == "/run/secrets/groundwatch/ca/ca.crt"


@pytest.mark.parametrize("case", [name for name in CASES if name != "without-extras"])
def test_every_pod_has_one_network_policy(case: str) -> None:
    objects = rendered(case)
    policies = of_kind(objects, "NetworkPolicy")
    for name, pod in pods(objects):
        found = [one for one in policies if selects(one["spec"]["podSelector"], pod["metadata"]["labels"])]
        assert len(found) == 1, name
        assert found[0]["spec"]["policyTypes"] == ["Ingress", "Egress"]


def reach(objects: list[Object], source: str, target: str) -> set[int]:
    """The ports at which the policies let one component's pods reach another's: both sides must agree."""

    def labels(component: str) -> dict[str, str]:
        (found,) = (
            pod["metadata"]["labels"]
            for _, pod in pods(objects)
            if pod["metadata"]["labels"]["app.kubernetes.io/component"] == component
        )
        return dict(found)

    def allowed(own: str, other: str, direction: str, side: str) -> set[int]:
        (policy,) = (
            one
            for one in of_kind(objects, "NetworkPolicy")
            if selects(one["spec"]["podSelector"], labels(own))
        )
        ports: set[int] = set()
        for rule in policy["spec"].get(direction) or ():
            peers = rule.get(side)
            if peers is None or any(
                "namespaceSelector" not in peer
                and selects(peer.get("podSelector", {"matchLabels": {"": ""}}), labels(other))
                for peer in peers
            ):
                ports |= {port["port"] for port in rule["ports"]}
        return ports

    return allowed(source, target, "egress", "to") & allowed(target, source, "ingress", "from")


BESIDE = (
    *("archive", "outflow", "annotation", "auditor", "replay", "retention", "toolbox", "provisioning"),
    "test",
)
"""Components beside gateway and stages that speak to NATS."""


def test_each_pod_reaches_exactly_what_it_needs() -> None:
    objects = rendered("everything")
    components = ("gateway", *STAGES, *BESIDE, "nats", "triton-verify", "triton-describe")
    found = {
        (source, target): ports
        for source in components
        for target in components
        if (ports := reach(objects, source, target))
    }
    clients = ("gateway", *STAGES, *BESIDE)
    assert found == {
        **{(client, "nats"): {4222} for client in clients},
        ("gateway", "nats"): {4222, 8222},
        ("nats", "nats"): {6222},
        ("verification", "triton-verify"): {8001},
        ("captioning", "triton-describe"): {8001},
        ("replay", "triton-verify"): {8001},
        ("test", "gateway"): {8787},
        ("toolbox", "gateway"): {8787},
    }


def test_only_stages_with_an_endpoint_reach_the_world() -> None:
    def leaves(one: Object) -> bool:
        return any("ipBlock" in peer for rule in one["spec"]["egress"] for peer in rule.get("to", ()))

    policies = of_kind(rendered("default"), "NetworkPolicy")
    assert {one["metadata"]["name"] for one in policies if leaves(one)} == {
        "gw-groundwatch-extraction",
        "gw-groundwatch-verification",
    }


def test_who_makes_spans_reaches_their_collector() -> None:
    policies = of_kind(rendered("models-apart"), "NetworkPolicy")
    assert {
        one["metadata"]["name"].removeprefix("gw-groundwatch-")
        for one in policies
        if {"ports": [{"port": 4318, "protocol": "TCP"}]} in one["spec"]["egress"]
    } == {"gateway", *STAGES}


def test_the_outflow_reaches_its_receivers_alone() -> None:
    objects = rendered("everything")
    (public,) = (
        rule
        for rule in named(objects, "NetworkPolicy", "outflow")["spec"]["egress"]
        if "ipBlock" in str(rule) and "4318" in str(rule["ports"])
    )
    assert public["ports"] == [{"port": 4318, "protocol": "TCP"}]
    assert named(objects, "Deployment", "outflow")["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("gateway", "port"),
    [
        ({"fetch": {"allow": ["https://images.example.com/"]}}, 443),
        ({"proxy": {"upstreams": {"openai": "https://api.openai.com"}}}, 443),
        ({"proxy": {"upstreams": {"vllm": "http://vllm.example.com:8001/v1"}}}, 8001),
    ],
)
def test_the_gateway_reaches_what_it_may_fetch_and_where_it_passes_calls_on(
    gateway: dict[str, Any], port: int
) -> None:
    rule = {"ports": [{"port": port, "protocol": "TCP"}]}
    reaching = LLM | {"settings": {"gateway": gateway}}
    for values, expected in ((LLM, set()), (reaching, {"gateway"})):
        done = template((), values)
        policies = of_kind(list(filter(None, yaml.safe_load_all(done.stdout))), "NetworkPolicy")
        assert {
            one["metadata"]["name"].removeprefix("gw-groundwatch-")
            for one in policies
            if rule in one["spec"]["egress"]
        } == expected


def test_the_auditor_is_a_user_of_its_own_and_is_scraped() -> None:
    objects = rendered("production")
    pod = named(objects, "Deployment", "auditor")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["audit", "--every", "6h", "--metrics-port", "9464"]
    assert container["ports"] == [{"name": "telemetry", "containerPort": 9464}]
    secrets = [one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one]
    assert "groundwatch-nats-audit" in secrets


def test_the_replay_service_has_the_judges_keys_and_goes_after_live_traffic() -> None:
    pod = named(rendered("auth"), "Deployment", "replay")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["args"][:2] == ["serve", "replay"]
    assert pod["spec"]["priorityClassName"] == "low"
    assert [one["name"] for one in container["env"] if "valueFrom" in one] == ["LLM_API_KEY"]
    assert (
        "priorityClassName"
        not in named(rendered("auth"), "Deployment", "scoring")["spec"]["template"]["spec"]
    )


def test_grpc_is_a_port_of_the_gateway_with_files_of_its_own(tmp_path: Path) -> None:
    objects = rendered("auth")
    ports = {one["name"]: one for one in named(objects, "Service", "gateway")["spec"]["ports"]}
    pod = named(objects, "Deployment", "gateway")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"name": "grpc", "containerPort": 8788} in container["ports"]
    assert (ports["grpc"]["targetPort"], ports["grpc"]["appProtocol"]) == ("grpc", "https")
    path = tmp_path / "settings.toml"
    path.write_text(named(objects, "ConfigMap", "settings")["data"]["groundwatch.toml"])
    gateway = load(path, {}).gateway
    assert (gateway.grpc_port, gateway.replays) == (8788, 0)
    folders = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    held = {one["name"]: one["secret"] for one in pod["volumes"] if "secret" in one}
    for file, secret in (
        (gateway.tokens_file, "tokens"),
        (gateway.login.cookie_secret_file, "login"),
        (gateway.login.oidc.client_secret_file, "oidc"),
        (gateway.grpc.tls_cert, "grpc"),
        (gateway.grpc.tls_key, "grpc"),
        (gateway.replay_nkey_seed_file, "nkey-replay"),
    ):
        folder, _, name = file.rpartition("/")
        assert held[folders[folder]]["secretName"] == secret
        assert name in [item["path"] for item in held[folders[folder]]["items"]]


def test_people_log_in_where_the_values_say_or_at_the_ingress(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    told = {}
    for case in ("default", "auth", "everything"):
        path.write_text(named(rendered(case), "ConfigMap", "settings")["data"]["groundwatch.toml"])
        told[case] = load(path, {}).gateway
    assert (told["default"].login.url, told["default"].open) == ("", True)
    assert (told["everything"].login.url, told["everything"].open) == ("https://watch.example", True)
    assert (told["auth"].login.url, told["auth"].open) == ("https://watch.example", False)
    assert [(one.name, one.role, one.tenant) for one in told["auth"].login.oidc.groups] == [
        ("quality", "reviewer", "*"),
        ("acme", "viewer", "acme"),
    ]
    ways = named(rendered("auth"), "NetworkPolicy", "gateway")["spec"]["egress"]
    assert {"ports": [{"port": 8443, "protocol": "TCP"}]} in ways


def test_grpc_has_an_ingress_of_its_own() -> None:
    objects = rendered("everything")
    ingress = named(objects, "Ingress", "gateway-grpc")
    assert ingress["spec"]["tls"] == [{"hosts": ["grpc.example"], "secretName": "tls"}]
    backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    (port,) = (
        one
        for one in named(objects, "Service", backend["name"].removeprefix("gw-groundwatch-"))["spec"]["ports"]
        if one["name"] == backend["port"]["name"]
    )
    assert (port["port"], port["appProtocol"]) == (9090, "kubernetes.io/h2c")
    assert "grpc" not in json.dumps(rendered("default"))


def test_retention_goes_where_the_archive_is() -> None:
    objects = rendered("auth")
    job = named(objects, "CronJob", "retention")["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    (near,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    archive = named(objects, "StatefulSet", "archive")["spec"]
    assert selects(near["labelSelector"], archive["template"]["metadata"]["labels"])
    (claim,) = archive["volumeClaimTemplates"]
    claims = [
        one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one
    ]
    assert claims == [f"{claim['metadata']['name']}-gw-groundwatch-archive-0"]
    assert pod["containers"][0]["args"] == ["admin", "retention", "--json"]
    apart = named(rendered("production"), "CronJob", "retention")["spec"]["jobTemplate"]["spec"]["template"]
    assert "affinity" not in apart["spec"]
